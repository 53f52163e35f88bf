"""Text before it is searched: one spelling, and the way back to the original."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_lib.arabic import BIDI_CONTROLS, TATWEEL, to_arabic_digits, to_extended_digits
from grpo_lib.pii_text import normalise

NUMBER = "784-1990-1234567-1"
# Zero-width space, non-joiner, joiner, word joiner, byte order mark, soft hyphen.
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
DIACRITICS = "\u064b\u064e\u0651\u0670"
ANY_TEXT = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("٠١٩۴5ـًّأىةﷲﻻ½①ﹰ" + "".join(BIDI_CONTROLS) + ZERO_WIDTH),
    )
)


@pytest.mark.parametrize(
    "written", [to_arabic_digits(NUMBER), to_extended_digits(NUMBER), "７８４－１９９０－１２３４５６７－１"]
)
def test_digits_of_every_script_become_ascii(written):
    assert normalise(written).text == NUMBER


@pytest.mark.parametrize("mark", [*sorted(BIDI_CONTROLS), TATWEEL, *ZERO_WIDTH, *DIACRITICS])
def test_what_no_reader_sees_is_dropped_and_the_place_is_kept(mark):
    original = "رقم " + mark.join(NUMBER) + " انتهى"
    normal = normalise(original)
    assert normal.text == f"رقم {NUMBER} انتهي"
    start = normal.text.index(NUMBER)
    assert original[slice(*normal.span(start, start + len(NUMBER)))] == mark.join(NUMBER)


@pytest.mark.parametrize("dash", "-\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d")
def test_every_dash_is_one(dash):
    assert normalise(NUMBER.replace("-", dash)).text == NUMBER


@pytest.mark.parametrize("space", " \u00a0\u2009\u202f\u3000\t\n")
def test_every_space_is_one(space):
    assert normalise(f"784{space}1990").text == "784 1990"


def test_letters_that_are_written_alike_are_one():
    assert normalise("أسماء إبراهيم آمنة مُصطفى").text == normalise("اسماء ابراهيم امنه مصطفي").text


def test_a_ligature_gives_all_its_letters_the_same_place():
    original = "قال ﷺ 5"
    normal = normalise(original)
    assert normal.text.startswith("قال صلي الله عليه وسلم")
    assert normal.offsets[4:21] == (4,) * 17
    assert normal.span(normal.text.index("5"), normal.text.index("5") + 1) == (6, 7)


@given(ANY_TEXT)
def test_each_character_is_what_stands_at_its_place(original):
    normal = normalise(original)
    assert len(normal.offsets) == len(normal.text)
    assert list(normal.offsets) == sorted(normal.offsets)
    for char, place in zip(normal.text, normal.offsets, strict=True):
        assert char in normalise(original[place]).text


@given(ANY_TEXT)
def test_normalising_again_changes_nothing(original):
    once = normalise(original).text
    assert normalise(once).text == once


def test_broken_text_is_kept():
    assert normalise("ا\ud8001").text == "ا\ud8001"
