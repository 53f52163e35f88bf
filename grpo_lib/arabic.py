"""Arabic text as this suite needs it: digits, normalisation, and number words with their inverse. No torch.

Three digit systems are in use in Arabic-script text: ASCII `0-9`, Arabic-Indic `٠-٩` (U+0660), and Extended
Arabic-Indic `۰-۹` (U+06F0, Persian and Urdu). `str.isdigit` and `\\d` accept dozens of other scripts, so
nothing here relies on them.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

from grpo_lib.errors import WrongInput, isolate

ASCII_DIGITS = "0123456789"
ARABIC_DIGITS = "٠١٢٣٤٥٦٧٨٩"
EXTENDED_DIGITS = "۰۱۲۳۴۵۶۷۸۹"

# Marks of UAX #9 that reorder what a reader sees: LRM, RLM, ALM, embeddings and overrides, isolates.
BIDI_CONTROLS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
TATWEEL = "\u0640"
MAX_NUMBER = 9999

Case = Literal["nominative", "genitive"]

_TO_ASCII = str.maketrans(ARABIC_DIGITS + EXTENDED_DIGITS, ASCII_DIGITS * 2)
_TO_ARABIC = str.maketrans(ASCII_DIGITS + EXTENDED_DIGITS, ARABIC_DIGITS * 2)
_TO_EXTENDED = str.maketrans(ASCII_DIGITS + ARABIC_DIGITS, EXTENDED_DIGITS * 2)


# ------------------------------------------------------------------------------------------------------------
# Digits and normalisation


def to_ascii_digits(text: object) -> str:
    """`text` with every Arabic-Indic and Extended digit as an ASCII digit: «٤٢» and «۴۲» become "42"."""
    return str(text).translate(_TO_ASCII)


def to_arabic_digits(text: object) -> str:
    """`text` with every ASCII and Extended digit as an Arabic-Indic digit: 42 becomes «٤٢»."""
    return str(text).translate(_TO_ARABIC)


def to_extended_digits(text: object) -> str:
    """`text` with every ASCII and Arabic-Indic digit as an Extended (Persian) digit: 42 becomes «۴۲»."""
    return str(text).translate(_TO_EXTENDED)


# Harakat, superscript alef, Quranic marks. The combining hamza and madda (U+0653-0655) are letters' parts,
# not vowel marks: NFKC joins them to their carrier, and only `fold_letters` drops what is left.
_DIACRITICS = re.compile(
    "[\u0610-\u061a\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed]"
)
_LETTER_FORMS = str.maketrans("أإآٱؤئى", "ااااويي", "\u0653\u0654\u0655")


def normalise(text: str, *, fold_letters: bool = False) -> str:
    """Bring Arabic text to one spelling before it is compared.

    NFKC (presentation forms, full-width signs), then without bidi controls, tatweel and diacritics. The
    result is stable: normalising it again changes nothing.

    Args:
        text: Any text.
        fold_letters: Also write hamza carriers and alef forms plainly (أ إ آ ٱ as ا, ؤ as و, ئ and ى as ي).
            For comparison only: it merges different words, so never show the result.
    """
    text = unicodedata.normalize("NFKC", text)
    text = "".join(char for char in text if char not in BIDI_CONTROLS and char != TATWEEL)
    # A mark that stood behind a tatweel now follows a letter and may join it, hence the second pass.
    text = unicodedata.normalize("NFKC", _DIACRITICS.sub("", text))
    return text.translate(_LETTER_FORMS) if fold_letters else text


# ------------------------------------------------------------------------------------------------------------
# Number words, 0-9999, in the form that counts a masculine noun

# The units 3-10 disagree with the noun in gender (they carry tā' marbūṭa beside a masculine noun); 1, 2, 11
# and 12 agree with it; in 13-19 the unit disagrees and "ten" agrees.
_UNITS = ["صفر", "واحد", "اثنان", "ثلاثة", "أربعة", "خمسة", "ستة", "سبعة", "ثمانية", "تسعة", "عشرة"]
_TENS = {2: "عشر", 3: "ثلاث", 4: "أربع", 5: "خمس", 6: "ست", 7: "سبع", 8: "ثمان", 9: "تسع"}  # + ون or ين


def _dual(stem: str, case: Case) -> str:
    return stem + ("ان" if case == "nominative" else "ين")


def _below_hundred(n: int, case: Case) -> str:
    if n == 2:
        return _dual("اثن", case)
    if n <= 10:
        return _UNITS[n]
    if n == 11:
        return "أحد عشر"
    if n == 12:
        return ("اثنا" if case == "nominative" else "اثني") + " عشر"
    if n < 20:
        return f"{_UNITS[n - 10]} عشر"
    tens = _TENS[n // 10] + ("ون" if case == "nominative" else "ين")
    return f"{_below_hundred(n % 10, case)} و{tens}" if n % 10 else tens


def _hundreds(count: int, case: Case) -> str:
    if count == 1:
        return "مئة"
    return _dual("مئت", case) if count == 2 else _TENS.get(count, "") + "مئة"


def _thousands(count: int, case: Case) -> str:
    if count == 1:
        return "ألف"
    # "ألف" is itself a masculine noun, so its count 3-9 takes the masculine form whatever is counted.
    return _dual("ألف", case) if count == 2 else f"{_UNITS[count]} آلاف"


def number_words(n: int, case: Case = "nominative") -> str:
    """`n` in modern standard Arabic words, masculine counting form, each part joined by an attached و.

    Args:
        n: 0 to 9999.
        case: "nominative" (مئتان، عشرون) or "genitive", which is also the accusative (مئتين، عشرين).

    Returns:
        For example 1125 as «ألف ومئة وخمسة وعشرون». Written in full form (مئتان، ألفان), not in construct
        with a counted noun (مئتا، ألفا).
    """
    if not 0 <= n <= MAX_NUMBER:
        raise WrongInput(
            ar=f"العدد {isolate(n)} خارج المدى من {isolate(0)} إلى {isolate(MAX_NUMBER)}.",
            en=f"The number {n} is outside 0 to {MAX_NUMBER}.",
        )
    parts = []
    if n >= 1000:
        parts.append(_thousands(n // 1000, case))
    if n % 1000 >= 100:
        parts.append(_hundreds(n % 1000 // 100, case))
    if n % 100 or n == 0:
        parts.append(_below_hundred(n % 100, case))
    return " و".join(parts)


# ------------------------------------------------------------------------------------------------------------
# Words back to numbers

# Spellings and forms (feminine, genitive, older مائة) that mean the same number, after letters are folded.
_SAME_WORD = {
    "اثنين": "اثنان", "اثنتان": "اثنان", "اثنتين": "اثنان", "اثنا": "اثنان", "اثني": "اثنان",
    "اثنتا": "اثنان", "اثنتي": "اثنان", "واحدة": "واحد", "احدي": "احد", "ثلاث": "ثلاثة", "اربع": "اربعة",
    "خمس": "خمسة", "ست": "ستة", "سبع": "سبعة", "ثمان": "ثمانية", "ثماني": "ثمانية", "تسع": "تسعة",
    "عشر": "عشرة", "ماية": "مية", "مايتان": "ميتان", "مايتين": "ميتان", "ميتين": "ميتان", "الفين": "الفان",
}  # fmt: skip
_HUNDREDS_WORD = re.compile("(ثلاث|اربع|خمس|ست|سبع|ثماني?|تسع)(?:ماية|مية)")
_STEMS = ("عشر", "ثلاث", "اربع", "خمس", "ست", "سبع", "ثمان", "تسع")
_SAME_WORD |= {f"{stem}ين": f"{stem}ون" for stem in _STEMS}


def _word_key(text: str) -> str:
    """The words of `text` in one spelling, with و always apart: two ways to say a number have one key."""
    key = []
    for token in normalise(text, fold_letters=True).split():
        # واحد begins with a letter of its own that looks like the conjunction.
        if token.startswith("و") and len(token) > 1 and not token.startswith("واحد"):
            key.append("و")
            token = token[1:]
        joined = _HUNDREDS_WORD.fullmatch(token)
        words = [joined.group(1), "مية"] if joined else [token]
        key.extend(_SAME_WORD.get(word, word) for word in words)
    return " ".join(key)


@cache
def _numbers_by_key() -> dict[str, int]:
    return {_word_key(number_words(n)): n for n in range(MAX_NUMBER + 1)}


def words_to_number(text: str) -> int:
    """The number that `text` says in words: the inverse of `number_words`, tolerant of spelling and case.

    Accepts both cases, both genders, مائة and مئة, joined or separate hundreds (ثلاثمئة، ثلاث مئة), a
    separate و, and any diacritics. Word order and the conjunctions must be right, and nothing else may be in
    the text.
    """
    number = _numbers_by_key().get(_word_key(text))
    if number is None:
        raise WrongInput(
            ar=f"ليست هذه كلمات عدد بين {isolate(0)} و{isolate(MAX_NUMBER)}: {isolate(text[:80])}",
            en=f"Not the words of a number from 0 to {MAX_NUMBER}: {text[:80]}",
        )
    return number
