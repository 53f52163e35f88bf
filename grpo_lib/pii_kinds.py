"""What the screen looks for: identifiers of the region's states, numbers that reach a person, names by context.

Where a checksum is public it is checked, by a library that holds it; no checksum is invented. Where only the form is
known (Saudi, Egyptian, Bahraini, Qatari, Iraqi, Moroccan identity numbers; Egyptian, Tunisian and Algerian tax numbers)
a word in the neighbourhood has to say what the number is, and the finding says `structure`. Names are found after a
title or "name:" alone: weak, and said to be.

Sources, as their code was read: python-stdnum 2.2 (Luhn, ISO 7064 mod 97-10 for the Moroccan ICE, forms of the other tax
numbers, whose key letters and lengths it does not verify), idnumbers 1.22.0 (Emirates ID: Luhn, de facto, no official text
seen; Kuwait civil id: weighted mod 11), schwifty 2026.10 (IBANs; python-stdnum has no form for those of Morocco and
Algeria). The key of a Moroccan RIB is no library's here: modulo 97, as presidio-mena 0.1.0 and the key of the IBAN have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from itertools import pairwise

import schwifty
from idnumbers.nationalid import ARE, KWT
from schwifty.exceptions import SchwiftyException
from schwifty.registry import get_iban_spec
from stdnum import luhn
from stdnum.exceptions import ValidationError
from stdnum.iso7064 import mod_97_10
from stdnum.ma import ice
from stdnum.tn import mf

from grpo_lib import pii_phones
from grpo_lib.pii_text import Normal, normalise

_BEFORE, _AFTER = 60, 30  # characters in which a word may say what a number is


@dataclass(frozen=True)
class Kind:
    """One kind of finding: how sure (`checksum`, `structure` or `context`) and by what."""

    strength: str
    validator: str


def _by(library: str, how: str) -> str:
    """The library with the version that is installed, so that a report names what checked this run."""
    return f"{library} {version(library)} ({how})"


KINDS = {
    "email": Kind("structure", "pattern of an address"),
    "phone": Kind("structure", _by("phonenumbers", "numbering plan")),
    "iban": Kind("checksum", _by("schwifty", "mod 97, form by country")),
    "card": Kind("checksum", _by("python-stdnum", "Luhn")),
    "emirates_id": Kind("checksum", _by("idnumbers", "Luhn, de facto")),
    "kuwait_civil_id": Kind("checksum", _by("idnumbers", "weighted mod 11")),
    "morocco_rib": Kind("checksum", "mod 97 over 24 digits"),
    "tax_ma": Kind("checksum", _by("python-stdnum", "mod 97-10")),
    "tax_eg": Kind("structure", "9 digits and a word for tax"),
    "tax_tn": Kind("structure", _by("python-stdnum", "form")),
    "tax_dz": Kind("structure", "15 or 20 digits and a word for tax"),
    "sa_nid": Kind("structure", "10 digits from 1 or 2, and a word for identity"),
    "eg_nid": Kind("structure", "14 digits with a date and a governorate"),
    "bh_cpr": Kind("structure", "9 digits with year and month, and a word for identity"),
    "qa_qid": Kind("structure", "11 digits with century and year, and a word for identity"),
    "iq_card": Kind("structure", "12 digits and a word for identity"),
    "ma_cin": Kind("structure", "one or two letters, 5 or 6 digits, and a word for identity"),
    "name": Kind("context", "words after a title; weak"),
}

# At most 64 characters before the sign (RFC 5321); without the bound a long row takes the square of its length.
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
# Groups of digits with a few signs between them.
_DIGITS = re.compile(r"(?<!\d)\d+(?:[ \-./()_]{1,3}\d+)*")
# Most rows hold fewer digits than any identifier has: five in a row, or seven with gaps.
_ENOUGH_DIGITS = re.compile(r"\d{5}|\d(?:\D{1,4}\d|\d){6}")
_GROUP = re.compile(r"\d+")
_DECIMAL = re.compile(r"\d{1,3}\.\d+")
_ADDRESS = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}")
_LATIN = re.compile("[A-Za-z0-9]")
_LATIN_BEFORE, _LATIN_AFTER = re.compile("[A-Za-z0-9]*$"), re.compile("[A-Za-z0-9]*")
# A list of numbers: small ones, one sign throughout, no zero in front, and more of them than stand beside an identifier.
_SMALL, _MOST_BESIDE = 4, 2
_IBAN_HEAD = re.compile(r"(?:(?<=IBAN)|(?<![A-Za-z0-9]))[A-Z]{2}[ -]?\d[ -]?\d", re.I)
_IBAN_SIGNS = " -./_"
_CIN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{1,2} ?-?\d{5,6}(?!\d)")
_MF = re.compile(
    r"(?<!\d)\d{7} ?[/-]? ?[A-Za-z](?: ?[/-]? ?[A-Za-z] ?[/-]? ?[A-Za-z] ?[/-]? ?\d{3})?(?![A-Za-z0-9])"
)

# Words stand as `normalise` leaves them.
_IDENTITY = re.compile(
    r"هوي[هت]|اقام[هت]|بطاق[هت]|السجل المدني|رقم مدني|الرقم المدني|الرقم الشخصي|الرقم القومي|رقم قومي|الرقم الوطني|رقم وطني|"
    r"قومي|شخصي|تعريف|مدني|national|identity|\bid\b|iqama|cpr|qid|\bcin\b|cnie|carte|ident|card|civil|personal",
    re.I,
)
_IRAQ = re.compile(r"عراق|البطاقه الوطنيه|البطاقه الموحده|بغداد|iraq", re.I)
_TAX_DZ = re.compile(r"جباي|جبائ|جزائر|\bnif\b|fiscal|wilaya|alg[eé]r", re.I)
_TAX = re.compile(r"ضريب|جباي|جبائ|تسجيل|\btax|\bvat\b|\bnif\b|fiscal|\btin\b|\bmf\b|\btva\b|\bice\b", re.I)
_TITLE = re.compile(
    r"(?:(?<![\w])(?:و|ل|لل|ب|ك)?(?:ا?ل?سيده?|ا?ل?دكتوره?|د\.|م\.|أ\.|ا\.|ا?ل?مهندسه?|ا?ل?استاذه?|ا?ل?شيخه?|ا?ل?مواطنه?|ا?ل?انسه|ا?ل?موظفه?|ا?ل?طالبه?|"
    r"ا?ل?مدعوه?|اسمه|اسمها|اسمي|الاسم(?: الكامل)?|اسم (?:المواطن|الموظف|الطالب|صاحب الطلب))\s*:?\s+(?![وبل]?ال)|"
    r"\b(?:Mr|Mrs|Ms|Dr|Prof|Mme|Mlle|Monsieur|Madame|[Nn]ame|Nom|NOM)\b\.?\s*:?\s+)"
)
_ARABIC_NAME = re.compile(r"[\u0621-\u064a]{2,}(?:\s+(?:بن|بنت|ابن|ابو|ال|عبد|[\u0621-\u064a]{2,})){1,4}")
_LATIN_NAME = re.compile(r"[A-ZÉÈÀÎ][\w'-]+(?:\s+(?:bin|ben|al|el|[A-ZÉÈÀÎ][\w'-]+))+")
_ROLES = re.compile(
    r"^(?:وزير|مدير|رييس|رئيس|وكيل|امين|محافظ|سفير|قاضي|نايب|نائب|مسوول|مسؤول|معالي|سعاده|عميد|مساعد|مفوض|والي|عامل)"
)


def find(text: str) -> set[tuple[str, int, int]]:
    """Every finding of a text as (kind, start, end) in the original. What was found is never returned or kept."""
    normal = normalise(text)
    ibans = list(_ibans(normal.text))
    found = [*ibans, *_emails(normal.text), *_names(normal)]
    if _ENOUGH_DIGITS.search(normal.text):
        found += _patterns(normal)
        found += _numbers(normal, [span for _, *span in ibans])
    checked = [one for one in found if KINDS[one[0]].strength == "checksum"]
    return {
        (kind, *normal.span(start, end))
        for kind, start, end in found
        if not any(_within(start, end, *other[1:]) for other in checked)
    }


def _within(start: int, end: int, begin: int, stop: int) -> bool:
    """Whether it is only a part of an identifier with a check digit, as sixteen digits of an account number are."""
    return begin <= start and end <= stop and end - start < stop - begin


def _near(normal: Normal, start: int, end: int, words: re.Pattern[str]) -> bool:
    return words.search(normal.text[max(0, start - _BEFORE) : end + _AFTER]) is not None


def _emails(text: str) -> Iterator[tuple[str, int, int]]:
    if "@" in text:
        yield from (("email", *match.span()) for match in _EMAIL.finditer(text))


def _patterns(normal: Normal) -> Iterator[tuple[str, int, int]]:
    """Identifiers with letters in them."""
    text = normal.text
    for match in _CIN.finditer(text):
        if _near(normal, *match.span(), _IDENTITY):
            yield "ma_cin", *match.span()
    for match in _MF.finditer(text):
        compact = re.sub(r"[ /-]", "", match[0]).upper()
        if mf.is_valid(compact) and (len(compact) == 13 or _near(normal, *match.span(), _TAX)):
            yield "tax_tn", *match.span()


def _ibans(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _IBAN_HEAD.finditer(text):
        if end := _iban_end(text, match.start()):
            yield "iban", match.start(), end


def _iban_end(text: str, start: int) -> int | None:
    """Where the IBAN that begins at `start` ends, or None when it is none.

    Its country says how long it is, so that a word which follows is not taken for a part of it.
    """
    try:
        length = get_iban_spec(text[start : start + 2].upper()).iban_length
    except SchwiftyException:
        return None
    compact, place, signs = "", start, 0
    while place < len(text) and len(compact) < length:
        if _LATIN.match(text, place):
            compact, signs = compact + text[place], 0
        elif text[place] in _IBAN_SIGNS and signs < 3:
            signs += 1
        else:
            return None
        place += 1
    whole = len(compact) == length and not _LATIN.match(text, place)
    return place if whole and schwifty.IBAN(compact, allow_invalid=True).is_valid else None


def _numbers(normal: Normal, ibans: list[list[int]]) -> Iterator[tuple[str, int, int]]:
    text = normal.text
    for match in _DIGITS.finditer(text):
        if _DECIMAL.fullmatch(match[0]) or _is_address(match[0]):
            continue
        groups = [one.span() for one in _GROUP.finditer(text, *match.span())]
        is_list = _is_list(text, groups)
        phones = pii_phones.WORDS.search(text[max(0, match.start() - _BEFORE) : match.end() + _AFTER])
        for first, last in _stretches(groups):
            start, end = groups[first][0], groups[last][1]
            if any(start < stop and begin < end for begin, stop in ibans) or not _stands_alone(
                text, start, end
            ):
                continue
            shape = tuple(stop - begin for begin, stop in groups[first : last + 1])
            beside = len(groups) - len(shape)
            if is_list and len(shape) > 1 and beside > _MOST_BESIDE:
                continue
            beyond = text[groups[first - 1][1] if first else start : start]
            beyond += text[end : groups[last + 1][0] if last + 1 < len(groups) else end]
            alone = not set(beyond) & set("-/._")
            if pii_phones.SHORTEST <= sum(shape) <= pii_phones.LONGEST and pii_phones.is_phone(
                text, start, end, shape, alone=alone, named=phones is not None
            ):
                yield "phone", start, end
            for kind, words, holds in _BY_LENGTH.get(sum(shape), ()):
                # Part of a longer number is taken for an identifier only where a check digit says so.
                if beside and KINDS[kind].strength != "checksum":
                    continue
                digits = "".join(text[begin:stop] for begin, stop in groups[first : last + 1])
                if len(set(digits)) == 1 or not holds(digits):
                    continue
                if words is None or _near(normal, start, end, words):
                    yield kind, start, end


def _is_list(text: str, groups: list[tuple[int, int]]) -> bool:
    signs = {text[one[1] : other[0]] for one, other in pairwise(groups)}
    return len(signs) == 1 and all(
        stop - begin <= _SMALL and (text[begin] != "0" or stop - begin == 1) for begin, stop in groups
    )


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether no Latin letters are attached, but for a word («ID784…»): hexadecimal digests hold any digits at all."""
    attached = _LATIN_BEFORE.search(text[max(0, start - 16) : start])[0], _LATIN_AFTER.match(text, end)[0]
    return all(not letters or (letters.isalpha() and 1 < len(letters) < 16) for letters in attached)


def _is_address(number: str) -> bool:
    """An internet address has the shape of a grouped identifier."""
    return _ADDRESS.fullmatch(number) is not None and all(int(part) <= 255 for part in number.split("."))


def _stretches(groups: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(first, last) of each stretch of groups that has from 7 to 24 digits, in at most 12 groups or in single digits."""
    sizes = [end - start for start, end in groups]
    for first in range(len(sizes)):
        total = 0
        for last in range(first, min(first + 24, len(sizes))):
            total += sizes[last]
            if total > 24 or (last - first >= 12 and sizes[last] > 1):
                break
            if total >= pii_phones.SHORTEST:
                yield first, last


def _names(normal: Normal) -> Iterator[tuple[str, int, int]]:
    for title in _TITLE.finditer(normal.text):
        for pattern in (_ARABIC_NAME, _LATIN_NAME):
            match = pattern.match(normal.text, title.end())
            if match and not _ROLES.match(match[0]):
                yield "name", *match.span()


# ---------------------------------------------------------------------------------------- checks by number of digits


def _emirates_id(digits: str) -> bool:
    return digits.startswith("784") and bool(ARE.EmiratesIDNumber.validate(digits))


def _kuwait(digits: str) -> bool:
    return bool(KWT.CivilNumber.validate(digits))


def _egypt(digits: str) -> bool:
    """Century, date of birth, and one of the 27 governorates or 88 (born abroad)."""
    governorate = int(digits[7:9])
    places = {*range(1, 5), *range(11, 20), *range(21, 30), *range(31, 36), 88}
    year = 1700 + 100 * int(digits[0]) + int(digits[1:3])
    # A time written without signs (20261231…) would be somebody born before 1910.
    living = 1910 <= year <= date.today().year
    return digits[0] in "23" and living and governorate in places and _is_date(year, digits[3:7])


def _is_date(year: int, month_day: str) -> bool:
    try:
        return date(year, int(month_day[:2]), int(month_day[2:])) is not None
    except ValueError:
        return False


# By length: 13 and 19 are Visa's; 14 Diners; 15 American Express; 16 all others, and the Saudi scheme's own 9682.
_CARD = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|3(?:0[0-5]|[689]\d)\d{11}|3[47]\d{13}|(?:35|5[0-8]|6\d)\d{14}|6\d{18}|9682\d{12}"
    r"|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"
)


def _card(digits: str) -> bool:
    """Luhn, and a beginning and length that a card scheme uses."""
    return _CARD.fullmatch(digits) is not None and luhn.is_valid(digits)


def _ice(digits: str) -> bool:
    try:
        return bool(ice.validate(digits))
    except ValidationError:
        return False


_Check = tuple[str, re.Pattern[str] | None, Callable[[str], bool]]
_BY_LENGTH: dict[int, tuple[_Check, ...]] = {
    9: (
        ("tax_eg", _TAX, lambda digits: True),
        ("bh_cpr", _IDENTITY, lambda digits: "01" <= digits[2:4] <= "12"),
    ),
    10: (("sa_nid", _IDENTITY, lambda digits: digits[0] in "12"),),
    11: (("qa_qid", _IDENTITY, lambda digits: digits[0] in "23"),),
    12: (("kuwait_civil_id", None, _kuwait), ("iq_card", _IRAQ, lambda digits: not _kuwait(digits))),
    13: (("card", None, _card),),
    14: (("eg_nid", None, _egypt), ("card", None, _card)),
    15: (
        ("emirates_id", None, _emirates_id),
        ("tax_ma", None, _ice),
        ("tax_dz", _TAX_DZ, lambda digits: not _ice(digits)),
        ("card", None, _card),
    ),
    16: (("card", None, _card),),
    19: (("card", None, _card),),
    20: (("tax_dz", _TAX_DZ, lambda digits: True),),
    24: (("morocco_rib", None, lambda digits: mod_97_10.checksum(digits) == 0),),
}
