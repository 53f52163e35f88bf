"""Arabic text made comparable before it is searched, with the way back to where each character stood.

A number can be written in Arabic-Indic or Persian digits, stretched by tatweel, marked with vowels, broken by no-break
spaces, or wrapped in bidi controls that no reader sees. Patterns that ignore this find nothing.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

_TATWEEL = "\u0640"
_ALIKE = str.maketrans({"أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ة": "ه", "ى": "ي"})


@dataclass(frozen=True)
class Normal:
    """`text` after normalisation; `offsets[i]` is where its i-th character stood in the original."""

    text: str
    offsets: tuple[int, ...]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Original (start, end) of a non-empty stretch of `text`."""
        return self.offsets[start], self.offsets[end - 1] + 1


def _plain(character: str, digit: int | None) -> str:
    if digit is not None:
        return str(digit)
    if character.isspace():
        return " "
    return "-" if unicodedata.category(character) == "Pd" else character


def normalise(original: str) -> Normal:
    """NFKC, digits to ASCII, one space and one hyphen for all, letters that are written alike made one; no marks, tatweel or format characters."""
    if original.isascii():
        return Normal(original, tuple(range(len(original))))
    characters, offsets = [], []
    for index, character in enumerate(original):
        if character == _TATWEEL or unicodedata.category(character) in ("Cf", "Mn", "Me"):
            continue
        for one in unicodedata.normalize("NFKC", character):
            if unicodedata.category(one) in ("Cf", "Mn", "Me"):
                continue
            digit = unicodedata.digit(one, None)
            characters.append(_plain(one, digit))
            offsets.append(index)
    return Normal("".join(characters).translate(_ALIKE), tuple(offsets))
