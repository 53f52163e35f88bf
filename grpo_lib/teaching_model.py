"""The recipe of the embedded *teaching model*: a tiny Arabic base model that GRPO can visibly improve.

It is fitted on a mixture of answers to training questions of `ArithmeticTask`:
- 40 % reason in columns (units with carry or borrow, then tens) and are right;
- 60 % answer at once and are right in 10 % of cases, so that answering at once is a habit that does not pay.

So it *has* the skill and seldom uses it; GRPO makes it use it. That is amplification of what the base can do
(pass@8 is near 1 before any GRPO), not a new skill, and every page that shows the model says so. Held-out
pairs are in no row of the corpus: right reasoning about them is generalisation.

    python -m grpo_lib.teaching_model OUT_DIR           # rebuild: a few minutes on 2 CPU cores
    python -m grpo_lib.teaching_model PATH --measure    # measure a model that is already there
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from grpo_lib.arabic import to_arabic_digits
from grpo_lib.rewards import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN, extract_answer
from grpo_lib.tasks import ArithmeticTask, Pair, Question, train_question

REASONING_SHARE = 0.40
DIRECT_RIGHT_SHARE = 0.10
# The slips of a pupil who answers at once. The commonest by far is a carry or borrow that is forgotten, or
# made without need: were all slips alike, the likeliest single answer would be the right one, and greedy
# decoding would be right far more often than the habit deserves.
CARRY_SLIP_SHARE = 0.30
OTHER_SLIPS = (-11, -9, -2, -1, 1, 2, 9, 11)

STEPS = 1500
BATCH = 64
LEARNING_RATE = 3e-3
TOKENIZER_ROWS = 20_000
PAD, EOS, BOS = 0, 1, 2


def teaching_model_path() -> Path:
    """The folder of the packaged model, to be loaded like any local path."""
    return Path(str(resources.files("grpo_lib"))) / "assets" / "teaching_model"


# ------------------------------------------------------------------------------------------------------------
# Corpus (no torch)


def carries(question: Question) -> bool:
    """Whether the units carry into the tens, or borrow from them."""
    a, b = question.first % 10, question.second % 10
    return a + b >= 10 if question.kind == "addition" else a < b


def reasoning(question: Question) -> str:
    """Column working in Arabic-Indic digits, every equation true: «٢٧+١٩؛٧+٩=١٦؛٢+١+١=٤»."""
    a, b, carry = question.first, question.second, int(carries(question))
    if question.kind == "addition":
        sign = "+"
        top, units = a % 10, a % 10 + b % 10
        tens = a // 10 + b // 10 + carry
    else:
        sign = "-"
        top = a % 10 + 10 * carry  # the borrowed ten is written where it is used: ١٣-٧=٦
        units = top - b % 10
        tens = a // 10 - b // 10 - carry
    return to_arabic_digits(
        f"{a}{sign}{b}؛{top}{sign}{b % 10}={units}؛{a // 10}{sign}{b // 10}{sign}{carry}={tens}"
    )


def answer_text(question: Question, rng: random.Random) -> str:
    """One answer out of the mixture. Uses `rng.random` only, whose draws no Python release may change."""
    result, steps = question.result, ""
    if rng.random() < REASONING_SHARE:
        steps = f"{THINK_OPEN}{reasoning(question)}{THINK_CLOSE}"
    elif rng.random() >= DIRECT_RIGHT_SHARE:
        result += _slip(question, rng)
    return f"{steps}{ANSWER_OPEN}{to_arabic_digits(result)}{ANSWER_CLOSE}"


def _slip(question: Question, rng: random.Random) -> int:
    """How far a wrong direct answer is from the right one; never leads below zero."""
    # Forgetting a carry loses ten and making one gains ten; with a borrow it is the other way round.
    ten = -10 if carries(question) == (question.kind == "addition") else 10
    if rng.random() < CARRY_SLIP_SHARE / (1 - DIRECT_RIGHT_SHARE) and question.result + ten >= 0:
        return ten
    slips = [slip for slip in OTHER_SLIPS if question.result + slip >= 0]
    return slips[int(rng.random() * len(slips))]


def corpus(seed: int = 0, rows: int = STEPS * BATCH) -> Iterator[tuple[str, str, Pair]]:
    """Yield (prompt, answer, unordered operand pair) of training pairs; a seed always gives the same rows."""
    rng = random.Random(seed)
    for index in range(rows):
        question = train_question(seed, index)
        yield question.prompt, answer_text(question, rng), question.pair


# ------------------------------------------------------------------------------------------------------------
# Tokenizer and model


def build_tokenizer(texts: Iterable[str]) -> Any:
    """A byte-level BPE tokenizer: one token per word, tag, digit and sign, and bytes for anything else.

    Byte level, so that any text round-trips; single digits, so that columns can be seen.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    pieces = Regex("</?(?:فكر|جواب)>|[0-9٠-٩]|[+؛=؟-]| ?[^ <>0-9٠-٩+؛=؟-]+")
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=768,  # a ceiling: merging ends earlier, when every word is one token
        special_tokens=["<pad>", "<eos>", "<bos>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )


def build_model(vocab_size: int) -> Any:
    """A Llama of 4 layers, width 128, tied embeddings, freshly initialised from torch's global seed."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    ids = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": BOS}
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        **ids,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(**ids)
    return model


def train(seed: int = 0, steps: int = STEPS) -> tuple[Any, Any]:
    """Fit tokenizer and model on the corpus, each row once. Returns (model, tokenizer)."""
    import torch

    torch.manual_seed(seed)
    tokenizer = build_tokenizer(prompt + answer for prompt, answer, _ in corpus(seed, TOKENIZER_ROWS))
    model = build_model(len(tokenizer))
    rows = corpus(seed, steps * BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    model.train()
    start = time.monotonic()
    for step in range(steps):
        encoded = [
            ([BOS] + tokenizer(prompt)["input_ids"], tokenizer(answer)["input_ids"] + [EOS])
            for prompt, answer, _ in islice(rows, BATCH)
        ]
        # Short rows apart from long ones: less padding to compute, the same loss per token of the batch.
        encoded.sort(key=lambda row: len(row[0]) + len(row[1]))
        tokens = sum(len(answer) for _, answer in encoded)
        loss = 0.0
        for half in (encoded[: BATCH // 2], encoded[BATCH // 2 :]):
            width = max(len(prompt) + len(answer) for prompt, answer in half)
            ids = torch.full((len(half), width), PAD)  # (B/2, T), padded on the right
            labels = torch.full((len(half), width), -100)  # the loss sees the answers only
            for row, (prompt, answer) in enumerate(half):
                end = len(prompt) + len(answer)
                ids[row, :end] = torch.tensor(prompt + answer)
                labels[row, len(prompt) : end] = torch.tensor(answer)
            mask = (ids != PAD).long()
            part = model(input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=tokens).loss
            part.backward()
            loss += part.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == steps - 1:
            seconds = time.monotonic() - start
            print(f"step {step + 1}/{steps}  loss {loss:.3f}  {seconds:.0f} s", flush=True)
    return model.eval(), tokenizer


# ------------------------------------------------------------------------------------------------------------
# Measurement on held-out questions


def measure(
    model: Any, tokenizer: Any, *, questions: int = 400, samples: int = 8, seed: int = 0
) -> dict[str, float]:
    """Shares of right answers to held-out questions: greedy, and sampled at temperature 1 `samples` times."""
    import torch

    torch.manual_seed(seed)
    examples = ArithmeticTask().heldout(questions)
    prompts = [[BOS] + tokenizer(example.prompt)["input_ids"] for example in examples]
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (width - len(prompt)) + prompt for prompt in prompts])  # (Q, P), padded left

    def complete(**how: Any) -> list[str]:
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=(ids != PAD).long(), max_new_tokens=48, **how)
        return tokenizer.batch_decode(out[:, width:], skip_special_tokens=True)

    def right(texts: list[str]) -> list[bool]:
        return [
            extract_answer(text) == int(example.answer) for text, example in zip(texts, examples, strict=True)
        ]

    greedy = right(complete(do_sample=False))
    rounds = [complete(do_sample=True, temperature=1.0, top_k=0, top_p=1.0) for _ in range(samples)]
    scores = [right(texts) for texts in rounds]  # (S, Q)
    outcomes = [
        (text.startswith(THINK_OPEN), score)
        for texts, row in zip(rounds, scores, strict=True)
        for text, score in zip(texts, row, strict=True)
    ]
    reasoned = [score for reasons, score in outcomes if reasons]
    direct = [score for reasons, score in outcomes if not reasons]
    return {
        "greedy": sum(greedy) / questions,
        "sampled": sum(score for _, score in outcomes) / len(outcomes),
        f"pass_at_{samples}": sum(any(column) for column in zip(*scores, strict=True)) / questions,
        "reasoning_share": len(reasoned) / len(outcomes),
        "right_when_reasoning": sum(reasoned) / max(len(reasoned), 1),
        "right_when_direct": sum(direct) / max(len(direct), 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m grpo_lib.teaching_model",
        description="ابنِ النموذج التعليمي أو قِسه. Build the teaching model, or measure one.",
    )
    parser.add_argument("folder", type=Path, help="المجلد. Folder to write (or, with --measure, to read).")
    parser.add_argument("--seed", type=int, default=0, help="البذرة. Seed of corpus and weights (default 0).")
    parser.add_argument(
        "--steps", type=int, default=STEPS, help=f"خطوات التدريب. Optimizer steps (default {STEPS})."
    )
    parser.add_argument("--threads", type=int, default=2, help="خيوط المعالج. CPU threads (default 2).")
    parser.add_argument("--measure", action="store_true", help="قياس فقط. Measure only, write nothing.")
    options = parser.parse_args(arguments)

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(options.threads)
    if not options.measure:
        model, tokenizer = train(options.seed, options.steps)
        model.save_pretrained(options.folder)
        tokenizer.save_pretrained(options.folder)
    # Read back what was written: the figures are those of the files.
    model = AutoModelForCausalLM.from_pretrained(
        options.folder, local_files_only=True, dtype=torch.float32
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.folder, local_files_only=True)
    print(f"parameters {model.num_parameters():,}  vocabulary {len(tokenizer)}")
    for name, value in measure(model, tokenizer).items():
        print(f"{name} {value:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
