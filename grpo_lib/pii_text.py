"""Arabic text made comparable before it is searched, with the way back to where each character stood.

A number can be written in Arabic-Indic or Persian digits, stretched by tatweel, marked with vowels, broken by no-break
spaces, or wrapped in bidi controls that no reader sees. Patterns that ignore this find nothing. `arabic.normalise` makes
one spelling of a whole text; here each character is brought to it on its own, so that its place stays known.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cached_property

from grpo_lib.arabic import TATWEEL

_DROPPED = frozenset(
    ("Cf", "Mn", "Me")
)  # bidi controls and zero-width characters, diacritics, enclosing marks
_ALIKE = str.maketrans("أإآٱؤئىیةک", "ااااويييهك")


def _plain(character: str) -> str:
    """What one character becomes: nothing, one character, or the parts of a ligature."""
    category = unicodedata.category(character)
    if category in _DROPPED or character == TATWEEL:
        return ""
    composed = unicodedata.normalize("NFKC", character)
    if composed != character:
        return "".join(map(_plain, composed))
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if character.isspace():
        return " "
    return "-" if category == "Pd" or character == "\u2212" else character.translate(_ALIKE)


class _Table(dict[int, str]):
    """For `str.translate`: a character is worked out the first time it is met."""

    def __missing__(self, code: int) -> str:
        self[code] = _plain(chr(code))
        return self[code]


_TABLE = _Table()


@dataclass(frozen=True)
class Normal:
    """`text` is `original` after normalisation."""

    text: str
    original: str

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each character of `text` stood in `original`; worked out only for rows in which something is found."""
        return tuple(place for place, char in enumerate(self.original) for _ in _TABLE[ord(char)])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Original (start, end) of a non-empty stretch of `text`."""
        return self.offsets[start], self.offsets[end - 1] + 1


def normalise(original: str) -> Normal:
    """NFKC; digits to ASCII; one space and one hyphen for all; letters that are written alike made one.

    Marks, tatweel and format characters are dropped.
    """
    return Normal(original.translate(_TABLE), original)
