"""Verifiable rewards for tagged answers: correctness and format, apart. Pure functions of text, no torch.

Both have TRL's reward signature `f(prompts, completions, completion_ids=None, *, answer, **columns) ->
list[float]` over plain-text completions whose special tokens are already removed.

A policy under training looks for whatever the reward overlooks, so the parser refuses rather than repairs:
one answer element, at the very end, holding one plain numeral in one digit system, and no invisible character
anywhere. `tests/test_rewards.py` keeps the list of attacks that must score 0.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Protocol

from grpo_lib.arabic import normalise, to_ascii_digits

THINK_OPEN, THINK_CLOSE = "<فكر>", "</فكر>"
ANSWER_OPEN, ANSWER_CLOSE = "<جواب>", "</جواب>"

# One digit system at a time, no sign, no leading zero. Twelve digits bound the work: int() itself raises
# beyond 4300 digits, and a completion must never be able to raise.
_NUMERAL = "(?:0|[1-9][0-9]{0,11}|٠|[١-٩][٠-٩]{0,11}|۰|[۱-۹][۰-۹]{0,11})"
_SPACE = "[ \n]*"
_FINAL_ANSWER = re.compile(f"{ANSWER_OPEN}{_SPACE}({_NUMERAL}){_SPACE}{ANSWER_CLOSE}{_SPACE}")
_THINK_TAG = re.compile("</?فكر>")
_WELL_FORMED = re.compile(
    f"{_SPACE}{THINK_OPEN}([^<>]*){THINK_CLOSE}"
    f"{_SPACE}{ANSWER_OPEN}{_SPACE}{_NUMERAL}{_SPACE}{ANSWER_CLOSE}{_SPACE}"
)
# Anything a reader could take for an answer tag, in the most generous spelling.
_LOOSE_ANSWER_TAG = re.compile(r"<[\s/\\]*جواب")


class RewardFunction(Protocol):
    """TRL's custom reward signature, for text completions and a column of answers."""

    __name__: str

    def __call__(
        self,
        prompts: Sequence[str],
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]] | None = None,
        *,
        answer: Sequence[str],
        **columns: object,
    ) -> list[float]: ...


def extract_answer(completion: str) -> int | None:
    """The number a completion answers with, or None where it does not give exactly one plain answer.

    Returns None unless all of these hold: no control or formatting character (bidi, zero-width, …) but tabs
    and newlines; exactly one answer element, even when look-alike tags are counted; it is the end of the
    completion; it holds one numeral; reasoning before it is absent or one closed element.
    """
    if any(char not in "\t\n" and unicodedata.category(char) in ("Cc", "Cf") for char in completion):
        return None
    if len(_LOOSE_ANSWER_TAG.findall(normalise(completion))) != 2:  # the opening and the closing tag
        return None
    start = completion.find(ANSWER_OPEN)
    match = _FINAL_ANSWER.fullmatch(completion, start) if start >= 0 else None
    if match is None or _THINK_TAG.findall(completion[:start]) not in ([], [THINK_OPEN, THINK_CLOSE]):
        return None
    return int(to_ascii_digits(match.group(1)))


def correct(
    prompts: Sequence[str],
    completions: Sequence[str],
    completion_ids: Sequence[Sequence[int]] | None = None,
    *,
    answer: Sequence[str],
    **columns: object,
) -> list[float]:
    """1.0 where the completion's one answer equals `answer` (decimal digits of any system), else 0.0."""
    return [
        float(extract_answer(completion) == int(to_ascii_digits(truth)))
        for completion, truth in zip(completions, answer, strict=True)
    ]


def format(
    prompts: Sequence[str],
    completions: Sequence[str],
    completion_ids: Sequence[Sequence[int]] | None = None,
    **columns: object,
) -> list[float]:
    """1.0 where the completion is one non-empty reasoning element, then one answer element, and nothing else.

    Says nothing about whether the answer is right: its weight must stay well below that of `correct`.
    """
    return [float(_is_well_formed(completion)) for completion in completions]


def _is_well_formed(completion: str) -> bool:
    match = _WELL_FORMED.fullmatch(completion)
    return match is not None and match.group(1).strip() != "" and extract_answer(completion) is not None
