"""Put a question to the base model and to the trained adapter, side by side.

python -m grpo_lib.ask RUN_ID                                   # three held-out questions
python -m grpo_lib.ask RUN_ID -q "ما ناتج جمع سبعة و خمسة؟"     # your own
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grpo_lib.errors import WrongInput, isolate
from grpo_lib.policy import MergedPolicy, decode, encode_prompt, eos_ids, load_base, read_adapter
from grpo_lib.process import exit_with
from grpo_lib.runfolder import RunFolder
from grpo_lib.sampler import sample, uniforms
from grpo_lib.settings import RunSettings, read
from grpo_lib.tasks import load_task

# Shown beside the likeliest answer, since greedy decoding hides how often a policy is right.
SAMPLES = 8
_KEY = 1 << 50  # apart from training prompts and evaluation


@dataclass(frozen=True)
class Answer:
    """What one policy says to one question."""

    question: str
    expected: str  # empty when the question is the user's own
    policy: str  # "base" or "adapter v000060"
    likeliest: str
    right: int | None  # how many of `SAMPLES` samples are right; None when nothing is expected


def ask(run: RunFolder, questions: list[tuple[str, str]] | None = None) -> list[Answer]:
    """Answers of base and newest adapter to (question, expected) pairs; None takes three held-out questions."""
    if not run.settings.is_file() or not run.adapter_versions():
        raise WrongInput(
            ar=f"لا يوجد في {isolate(run.run_id)} مُهايئ مدرَّب. تحقق من المعرّف، أو أكمل التدريب.",
            en=f"Run {run.run_id} holds no trained adapter. Check the id, or finish the training.",
        )
    settings = read(run.settings)
    task = load_task(settings.task, settings.seed)
    if questions is None:
        questions = [(example.prompt, example.answer) for example in task.heldout(3, seed=1)]
    model, tokenizer = load_base(settings.model)
    policy = MergedPolicy(model, settings.lora_alpha / settings.lora_rank)
    answers = _answers(policy, tokenizer, settings, task, questions, "base")
    newest = run.adapter_versions()[-1]
    policy.load(read_adapter(run.adapter(newest)))
    return answers + _answers(policy, tokenizer, settings, task, questions, f"adapter v{newest:06d}")


def _answers(
    policy: MergedPolicy, tokenizer, settings: RunSettings, task, questions, name: str
) -> list[Answer]:
    prompts = [encode_prompt(tokenizer, question) for question, _ in questions]
    limits = {
        "max_new_tokens": settings.max_new_tokens,
        "eos": eos_ids(policy.model, tokenizer),
        "pad": tokenizer.pad_token_id,
    }
    likeliest = decode(tokenizer, [c.ids for c in sample(policy.model, prompts, copies=1, **limits)])
    draws = [uniforms(settings.seed, _KEY + i, SAMPLES, settings.max_new_tokens) for i in range(len(prompts))]
    sampled = sample(
        policy.model,
        prompts,
        copies=SAMPLES,
        temperature=settings.temperature,
        draws=np.concatenate(draws),
        **limits,
    )
    texts = decode(tokenizer, [c.ids for c in sampled])
    answers = []
    for place, (question, expected) in enumerate(questions):
        mine = texts[place * SAMPLES : (place + 1) * SAMPLES]
        right = None
        if expected:
            right = int(
                sum(
                    task.reward_functions[0](
                        prompts=[question] * SAMPLES, completions=mine, answer=[expected] * SAMPLES
                    )
                )
            )
        answers.append(Answer(question, expected, name, likeliest[place], right))
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m grpo_lib.ask",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_id", help="run to ask | معرّف التشغيل")
    parser.add_argument("-q", "--question", action="append", help="a question of your own | سؤالك")
    parser.add_argument("--runs-dir", default="runs", help="folder of runs | مجلد التشغيلات")
    args = parser.parse_args()
    own = [(question, "") for question in args.question] if args.question else None
    answers = ask(RunFolder(Path(args.runs_dir) / args.run_id), own)
    for question in dict.fromkeys(answer.question for answer in answers):
        print(f"\n{question}")
        for answer in (a for a in answers if a.question == question):
            score = "" if answer.right is None else f"  [{answer.right}/{SAMPLES} samples right | صحيحة]"
            print(f"  {answer.policy:16} {isolate(answer.likeliest)}{score}")
    print(
        "\nThis is a teaching model: it knows nothing but this task. | نموذج تعليمي لا يعرف غير هذه المهمة."
    )


if __name__ == "__main__":
    exit_with(main)
