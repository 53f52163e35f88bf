"""The arithmetic task: pure, endless, and split by unordered operand pair."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from grpo_lib import tasks
from grpo_lib.arabic import words_to_number
from grpo_lib.errors import WrongInput
from grpo_lib.tasks import ALL_PAIRS, HELDOUT_PAIRS, TRAIN_PAIRS, ArithmeticTask, load_task


def operands(prompt: str) -> tuple[int, int, str]:
    """Read a question back from its words, independently of how it was made."""
    words = prompt.removesuffix("؟")
    if words.startswith("ما ناتج جمع "):
        first, second = words.removeprefix("ما ناتج جمع ").split(" مع ")
        return words_to_number(first), words_to_number(second), "addition"
    second, first = words.removeprefix("ما ناتج طرح ").split(" من ")
    return words_to_number(first), words_to_number(second), "subtraction"


def pair(prompt: str) -> tuple[int, int]:
    first, second, _ = operands(prompt)
    return min(first, second), max(first, second)


def test_training_examples_depend_on_seed_and_index_alone():
    forward = [ArithmeticTask(3).train_example(i) for i in range(50)]
    task = ArithmeticTask(3)
    assert [task.train_example(i) for i in reversed(range(50))] == forward[::-1]
    assert [ArithmeticTask(4).train_example(i) for i in range(50)] != forward


def test_examples_are_the_same_in_another_process():
    code = "from grpo_lib.tasks import *; t = ArithmeticTask(1); print([t.train_example(9), t.heldout(3)])"
    here = ArithmeticTask(1)
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONHASHSEED": "12345", "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert out.stdout.strip() == str([here.train_example(9), here.heldout(3)])


def test_these_examples_never_change():
    # A resumed run and the shipped model rely on the stream staying as it is.
    example = ArithmeticTask(0).train_example(0)
    assert (example.prompt, example.answer) == ("ما ناتج جمع اثنين وأربعين مع ثلاثة عشر؟", "55")
    assert ArithmeticTask(0).describe()["sha256"].startswith("cb1bbd7361683ee4")


def test_answers_are_right_and_prompts_say_what_is_asked():
    task = ArithmeticTask(0)
    examples = [task.train_example(i) for i in range(500)] + task.heldout(task.heldout_size)
    for example in examples:
        first, second, kind = operands(example.prompt)
        assert example.kind == kind
        assert int(example.answer) == (first + second if kind == "addition" else first - second) >= 0
        assert 0 <= first <= tasks.MAX_OPERAND and 0 <= second <= tasks.MAX_OPERAND
    kinds = [example.kind for example in examples[:500]]
    assert 0.4 < kinds.count("addition") / 500 < 0.6


def test_the_split_takes_about_a_fifth_of_unordered_pairs():
    assert set(HELDOUT_PAIRS) | set(TRAIN_PAIRS) == set(ALL_PAIRS)
    assert not set(HELDOUT_PAIRS) & set(TRAIN_PAIRS)
    assert 0.17 < len(HELDOUT_PAIRS) / len(ALL_PAIRS) < 0.23
    assert all(tasks.is_heldout(a, b) == tasks.is_heldout(b, a) for a, b in ALL_PAIRS)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 2**31])
def test_training_never_touches_a_held_out_pair(seed):
    task = ArithmeticTask(seed)
    seen = {pair(task.train_example(i).prompt) for i in range(20_000)}
    assert seen == set(TRAIN_PAIRS)  # none held out, and none forgotten


def test_held_out_questions_are_distinct_and_of_held_out_pairs():
    task = ArithmeticTask(0)
    examples = task.heldout(task.heldout_size)
    assert len({example.prompt for example in examples}) == task.heldout_size >= 400
    assert {pair(example.prompt) for example in examples} == set(HELDOUT_PAIRS)


def test_held_out_choice_depends_on_its_own_seed_only():
    assert ArithmeticTask(0).heldout(40) == ArithmeticTask(9).heldout(40)
    assert ArithmeticTask(0).heldout(40, seed=1) != ArithmeticTask(0).heldout(40)
    assert ArithmeticTask(0).heldout(40) == ArithmeticTask(0).heldout(400)[:40]


@pytest.mark.parametrize("n", [-1, 100_000])
def test_too_many_held_out_questions_are_refused(n):
    with pytest.raises(WrongInput) as caught:
        ArithmeticTask(0).heldout(n)
    assert str(ArithmeticTask(0).heldout_size) in caught.value.en


def test_the_description_holds_no_question_and_is_json():
    text = json.dumps(ArithmeticTask(0).describe(), ensure_ascii=False)
    assert "ناتج" not in text
    description = json.loads(text)
    assert description["class"] == "synthetic" and description["personal_data"] == "none"
    assert len(description["sha256"]) == 64


def test_unknown_tasks_are_refused_with_the_known_ones():
    assert load_task("arithmetic", 5).train_example(0) == ArithmeticTask(5).train_example(0)
    with pytest.raises(WrongInput) as caught:
        load_task("arithmetics", 0)
    assert "arithmetic" in caught.value.ar and "arithmetic" in caught.value.en


def test_rewards_put_correctness_first():
    task = ArithmeticTask(0)
    assert [function.__name__ for function in task.reward_functions] == ["correct", "format"]
    assert len(task.reward_weights) == 2 and task.reward_weights[0] > task.reward_weights[1] > 0
    example = task.train_example(0)
    completion = f"<جواب>{example.answer}</جواب>"
    assert task.reward_functions[0]([example.prompt], [completion], answer=[example.answer]) == [1.0]


def test_tasks_import_without_torch():
    code = "import grpo_lib.tasks, grpo_lib.teaching_model, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
