"""The shipped teaching model against its card, and its recipe: no held-out pair, few lucky guesses."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import islice

import pytest
from test_tasks import operands

from grpo_lib import teaching_model
from grpo_lib.arabic import to_ascii_digits
from grpo_lib.rewards import THINK_OPEN, correct, extract_answer, format
from grpo_lib.tasks import HELDOUT_PAIRS, TRAIN_PAIRS, ArithmeticTask, is_heldout

FOLDER = teaching_model.teaching_model_path()
WEIGHTS = FOLDER / "model.safetensors"
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rows():
    """The corpus of the shipped model, rebuilt."""
    return list(teaching_model.corpus(seed=0))


# ------------------------------------------------------------------------------------------------------------
# Corpus (no torch)


def test_no_row_of_the_corpus_touches_a_held_out_pair(rows):
    assert len(rows) == teaching_model.STEPS * teaching_model.BATCH
    for prompt in {
        prompt for prompt, _, _ in rows
    }:  # read back from the words, not from the generator's claim
        first, second, _ = operands(prompt)
        assert not is_heldout(first, second)
    assert {pair for _, _, pair in rows} == set(TRAIN_PAIRS)
    heldout = ArithmeticTask()
    asked = {example.prompt for example in heldout.heldout(heldout.heldout_size)}
    assert not asked & {prompt for prompt, _, _ in rows}
    assert not set(HELDOUT_PAIRS) & {pair for _, _, pair in rows}


def truths(rows):
    for prompt, text, _ in rows:
        first, second, kind = operands(prompt)
        yield text, first + second if kind == "addition" else first - second


def test_reasoned_answers_are_right_and_direct_ones_seldom_are(rows):
    some = list(truths(rows[:20_000]))
    reasoned = [(text, truth) for text, truth in some if text.startswith(THINK_OPEN)]
    direct = [(text, truth) for text, truth in some if not text.startswith(THINK_OPEN)]
    assert 0.38 < len(reasoned) / len(some) < 0.42
    assert all(extract_answer(text) == truth for text, truth in reasoned)
    assert all(format([""], [text]) == [1.0] for text, _ in reasoned)
    share = sum(extract_answer(text) == truth for text, truth in direct) / len(direct)
    assert 0.08 < share <= 0.15
    assert all(extract_answer(text) is not None for text, _ in direct)  # wrong, but always a plain number


def test_every_equation_in_the_reasoning_is_true(rows):
    for _, text, _ in rows[:5_000]:
        if text.startswith(THINK_OPEN):
            question, units, tens = to_ascii_digits(text.split("</")[0].removeprefix(THINK_OPEN)).split("؛")
            for equation in (units, tens):
                left, right = equation.split("=")
                assert re.fullmatch("[0-9+-]+", left) and eval(left) == int(right)
            [answer] = re.findall("<جواب>([٠-٩]+)</جواب>", text)
            assert eval(question) == int(to_ascii_digits(answer))


def test_the_corpus_depends_on_its_seed_alone(rows):
    assert list(islice(teaching_model.corpus(0), 100)) == rows[:100]
    assert list(teaching_model.corpus(0, rows=100)) == rows[:100]
    assert list(teaching_model.corpus(1, rows=100)) != rows[:100]


# ------------------------------------------------------------------------------------------------------------
# The shipped files


def test_the_card_names_these_weights_and_calls_them_a_teaching_model():
    assert hashlib.sha256(WEIGHTS.read_bytes()).hexdigest() in CARD
    assert "نموذج تعليمي" in CARD and "teaching model" in CARD and "apache-2.0" in CARD
    assert CARD.index("نموذج تعليمي") < CARD.index("teaching model", CARD.index("# "))  # Arabic first


def test_the_files_are_small_and_hold_no_code():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 8 * 2**20
    assert {path.name for path in FOLDER.iterdir()} == {
        "README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip


def test_token_ids_agree_in_every_file():
    for name in ("config.json", "generation_config.json"):
        ids = json.loads((FOLDER / name).read_text())
        assert (ids["pad_token_id"], ids["eos_token_id"], ids["bos_token_id"]) == (0, 1, 2)
    tokenizer = json.loads((FOLDER / "tokenizer_config.json").read_text())
    assert tokenizer["padding_side"] == "left" and "chat_template" not in tokenizer


@pytest.fixture(scope="module")
def shipped():
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, local_files_only=True)
    return model.eval(), tokenizer


def test_the_shipped_model_loads_by_the_auto_classes(shipped):
    import torch

    model, tokenizer = shipped
    assert model.num_parameters() <= 2_000_000
    assert f"{model.num_parameters():,}" in CARD
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert len(tokenizer) == model.config.vocab_size
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id) == (0, 1, 2)
    assert tokenizer.padding_side == "left" and tokenizer.chat_template is None


def test_the_tokenizer_round_trips_and_keeps_completions_short(shipped, rows):
    _, tokenizer = shipped
    for prompt, text, _ in rows[:2_000]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text and len(ids) + 1 <= 32
        assert tokenizer.decode(tokenizer(prompt)["input_ids"]) == prompt
        # Generation sees prompt and completion apart; the tokens are the same as for the joined text.
        assert tokenizer(prompt)["input_ids"] + ids == tokenizer(prompt + text)["input_ids"]
    for text in ("أيّ نصٍّ آخر، with Latin 123 and 😀\n\t  spaces", "<فكر", " <جواب > ٤٦"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_shipped_model_answers_as_the_card_says(shipped):
    model, tokenizer = shipped
    measured = teaching_model.measure(model, tokenizer, questions=100, samples=4)
    assert measured["greedy"] <= 0.45
    assert 0.30 < measured["sampled"] < 0.52  # 400 draws: two standard errors are 0.05
    assert measured["right_when_reasoning"] >= 0.94
    assert measured["right_when_direct"] <= 0.22


# ------------------------------------------------------------------------------------------------------------
# The recipe


def test_the_recipe_rebuilds_a_loadable_model(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(
        teaching_model, "measure", lambda model, tokenizer: {"greedy": 0.0}
    )  # measuring an untrained model takes longer than training it
    assert teaching_model.main([str(tmp_path), "--steps", "2", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "step 2/2" in printed and "greedy 0.0000" in printed
    assert {path.name for path in FOLDER.iterdir()} - {"README.md"} == {
        path.name for path in tmp_path.iterdir()
    }
    # The same corpus gives the same tokenizer on every machine; weights need not agree bit by bit.
    ours, shipped = (json.loads((folder / "tokenizer.json").read_text()) for folder in (tmp_path, FOLDER))
    assert ours == shipped


def test_rewards_accept_what_the_corpus_shows(rows):
    some = list(truths(rows[:500]))
    texts, answers = [text for text, _ in some], [str(truth) for _, truth in some]
    scores = correct([""] * 500, texts, answer=answers)
    assert 0.35 < sum(scores) / 500 < 0.58
