"""The rewards against honest answers and against a written list of attacks, each of which must score 0."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_lib.rewards import correct, extract_answer, format

THINK = "<فكر>٢٧+١٩؛٧+٩=١٦؛٢+١+١=٤</فكر>"


def one(reward, completion: str, answer: str = "46") -> float:
    [score] = reward(["ما ناتج جمع سبعة وعشرين مع تسعة عشر؟"], [completion], answer=[answer])
    return score


HONEST = {
    "direct": ("<جواب>٤٦</جواب>", 0.0),
    "reasoned": (f"{THINK}<جواب>٤٦</جواب>", 1.0),
    "ASCII digits": (f"{THINK}<جواب>46</جواب>", 1.0),
    "Persian digits": (f"{THINK}<جواب>۴۶</جواب>", 1.0),
    "spaces and lines between and within": (f"\n{THINK}\n\n<جواب> ٤٦ </جواب>\n", 1.0),
    "free text before the answer": (
        "أجمع الآحاد ثم العشرات: الجواب ستة وأربعون، و٣ < ٥. <جواب>٤٦</جواب>",
        0.0,
    ),
    "vowel marks in the reasoning": ("<فكر>سَبْعَةٌ</فكر><جواب>٤٦</جواب>", 1.0),
}


@pytest.mark.parametrize("completion", HONEST, ids=str)
def test_honest_answers(completion):
    text, formatted = HONEST[completion]
    assert one(correct, text) == 1.0
    assert one(correct, text, answer="47") == 0.0
    assert one(format, text) == formatted


ATTACKS = {
    # Several answers
    "two answers, right one last": "<جواب>٤٥</جواب><جواب>٤٦</جواب>",
    "two answers, right one first": "<جواب>٤٦</جواب><جواب>٤٥</جواب>",
    "the same answer twice": "<جواب>٤٦</جواب><جواب>٤٦</جواب>",
    "every answer in turn": "".join(f"<جواب>{n}</جواب>" for n in range(99)),
    "answer inside the reasoning too": "<فكر><جواب>٤٥</جواب></فكر><جواب>٤٦</جواب>",
    "answer only inside the reasoning": "<فكر><جواب>٤٦</جواب></فكر>",
    "answer in a reasoning that never closes": "<فكر>٢٧+١٩<جواب>٤٦</جواب>",
    "reasoning that only closes": "٢٧+١٩</فكر><جواب>٤٦</جواب>",
    "reasoning twice": f"{THINK}{THINK}<جواب>٤٦</جواب>",
    "reasoning in reasoning": f"<فكر>{THINK}</فكر><جواب>٤٦</جواب>",
    "reasoning closed before it opens": "</فكر><فكر><جواب>٤٦</جواب>",
    # Tag stuffing
    "extra opening tags": "<جواب><جواب><جواب>٤٦</جواب>",
    "extra closing tags": "<جواب>٤٦</جواب></جواب>",
    "nested answers": "<جواب><جواب>٤٦</جواب></جواب>",
    "second answer never closed": "<جواب>٤٦</جواب><جواب>٤٥",
    "answer never opened": "٤٦</جواب>",
    "answer never closed": "<جواب>٤٦",
    "closing tag twice instead": "</جواب>٤٦</جواب>",
    "empty answer": "<جواب></جواب>",
    "empty answer before the real one": "<جواب></جواب><جواب>٤٦</جواب>",
    "tag with a space": "<جواب >٤٥</جواب><جواب>٤٦</جواب>",
    "tag with a leading space": "< جواب>٤٥</ جواب><جواب>٤٦</جواب>",
    "tag with an attribute": '<جواب رقم="١">٤٥</جواب><جواب>٤٦</جواب>',
    "self-closing tag": "<جواب/><جواب>٤٦</جواب>",
    "full-width tag": "＜جواب＞٤٥＜/جواب＞<جواب>٤٦</جواب>",
    "vowelled tag": "<جَواب>٤٥</جَواب><جواب>٤٦</جواب>",
    "stretched tag": "<جـواب>٤٥</جـواب><جواب>٤٦</جواب>",
    "tag in presentation forms": "<ﺟﻮاب>٤٥</ﺟﻮاب><جواب>٤٦</جواب>",
    "stretched tag alone": "<جـواب>٤٦</جـواب>",
    "other tag": "<answer>٤٦</answer>",
    "other tag inside the answer": "<جواب><b>٤٦</b></جواب>",
    # Lists and expressions
    "list with commas": "<جواب>٤٥، ٤٦، ٤٧</جواب>",
    "list with spaces": "<جواب>٤٥ ٤٦</جواب>",
    "list with lines": "<جواب>٤٥\n٤٦</جواب>",
    "either or": "<جواب>٤٥ أو ٤٦</جواب>",
    "range": "<جواب>٤٠-٤٩</جواب>",
    "expression": "<جواب>٢٧+١٩</جواب>",
    "equation": "<جواب>٢٧+١٩=٤٦</جواب>",
    "fraction": "<جواب>٩٢/٢</جواب>",
    # Signs and number spellings
    "plus sign": "<جواب>+٤٦</جواب>",
    "minus sign": "<جواب>-٤٦</جواب>",
    "unicode minus": "<جواب>−٤٦</جواب>",
    "decimal point": "<جواب>46.0</جواب>",
    "Arabic decimal separator": "<جواب>٤٦٫٠</جواب>",
    "thousands separator": "<جواب>٤٦٬٠</جواب>",
    "exponent": "<جواب>46e0</جواب>",
    "underscore, which int() takes": "<جواب>4_6</جواب>",
    "leading zero": "<جواب>٠٤٦</جواب>",
    "leading zeros without end": f"<جواب>{'0' * 100_000}46</جواب>",
    "more digits than int() takes": f"<جواب>{'9' * 100_000}</جواب>",
    "mixed digit systems": "<جواب>٤6</جواب>",
    "mixed Arabic and Persian digits": "<جواب>٤۶</جواب>",
    "Devanagari digits": "<جواب>४६</جواب>",
    "full-width digits": "<جواب>４６</جواب>",
    "superscript digits": "<جواب>⁴⁶</جواب>",
    "digits inside a word": "<جواب>رقم٤٦</جواب>",
    "digits before a word": "<جواب>٤٦سنة</جواب>",
    "letters between digits": "<جواب>٤و٦</جواب>",
    "number in words": "<جواب>ستة وأربعون</جواب>",
    "vowel mark on a digit": "<جواب>٤\u064e٦</جواب>",
    "digits in reverse": "<جواب>٦٤</جواب>",
    # Invisible characters
    **{
        f"bidi control U+{ord(mark):04X} {where}": text
        for mark in "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
        for where, text in {
            "inside": f"<جواب>{mark}٤٦</جواب>",
            "around": f"{mark}<جواب>٤٦</جواب>",
            "after": f"<جواب>٤٦</جواب>{mark}",
            "in the reasoning": f"<فكر>{mark}٢٧</فكر><جواب>٤٦</جواب>",
        }.items()
    },
    "override that shows 64 as 46": "<جواب>\u202e64\u202c</جواب>",
    "zero-width space": "<جواب>٤\u200b٦</جواب>",
    "zero-width joiner in the tag": "<جو\u200dاب>٤٦</جواب>",
    "soft hyphen": "<جواب>٤\u00ad٦</جواب>",
    "tatweel": "<جواب>٤ـ٦</جواب>",
    "no-break space": "<جواب>\u00a0٤٦</جواب>",
    "null": "<جواب>٤٦\x00</جواب>",
    "escape sequence": "\x1b[2K<جواب>٤٦</جواب>",
    "carriage return": "<جواب>٤٥\r٤٦</جواب>",
    # Text after the answer
    "text after the answer": "<جواب>٤٦</جواب> أو ٤٥",
    "reasoning after the answer": f"<جواب>٤٦</جواب>{THINK}",
    "full stop after the answer": "<جواب>٤٦</جواب>.",
    "special token after the answer": "<جواب>٤٦</جواب><eos>",
    # Nothing
    "no tag": "٤٦",
    "nothing": "",
    "the question itself": "ما ناتج جمع سبعة وعشرين مع تسعة عشر؟",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_score_nothing(name):
    assert one(correct, ATTACKS[name]) == 0.0
    # A number may be wrong in a well-formed answer; every other attack fails the format as well.
    assert one(format, ATTACKS[name]) == 0.0


@pytest.mark.parametrize(
    "completion",
    [
        "<فكر></فكر><جواب>٤٦</جواب>",
        "<فكر> \n</فكر><جواب>٤٦</جواب>",
        f"إليك الحل: {THINK}<جواب>٤٦</جواب>",
        f"{THINK} إذن <جواب>٤٦</جواب>",
        "<فكر>٢<٣</فكر><جواب>٤٦</جواب>",
    ],
)
def test_right_answers_in_a_wrong_format(completion):
    assert one(correct, completion) == 1.0
    assert one(format, completion) == 0.0


def test_format_says_nothing_about_the_number():
    assert one(format, "<فكر>خطأ</فكر><جواب>٩٩</جواب>") == 1.0


def test_both_take_trl_calls():
    columns = {"prompts": ["س"] * 2, "completions": ["<جواب>٣</جواب>", ""], "completion_ids": [[5, 6], []]}
    for reward in (correct, format):
        scores = reward(
            **columns, answer=["3", "٣"], kind=["addition"] * 2, trainer_state=None, log_extra=print
        )
        assert scores == ([1.0, 0.0] if reward is correct else [0.0, 0.0])
        assert all(type(score) is float for score in scores)
        assert list(inspect.signature(reward).parameters)[:3] == ["prompts", "completions", "completion_ids"]


def test_a_missing_answer_column_is_an_error():
    with pytest.raises(ValueError):
        correct([""], ["", ""], answer=["1"])


@given(st.text(alphabet="<>/جواب فكر٤٦46\n\u200f", max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_text_raises_and_every_accepted_one_ends_in_its_answer(completion):
    answer = extract_answer(completion)
    assert one(format, completion) in (0.0, 1.0)
    if answer is not None:
        assert completion.rstrip(" \n").endswith("</جواب>") and completion.count("<جواب>") == 1
