"""What the screen looks for: identifiers of the region's states, numbers that reach a person, names by context.

Where a checksum is public it is checked, by a library that holds it; no checksum is invented. Where only the form is
known (Saudi, Egyptian, Bahraini, Qatari, Iraqi, Moroccan identity numbers; Egyptian, Tunisian and Algerian tax numbers)
a word in the neighbourhood has to say what the number is, and the finding says `structure`. Names are found after a
title or "name:" alone: weak, and said to be.

Sources, as their code was read: python-stdnum 2.2 (IBAN, Luhn, ISO 7064 mod 97-10 for the Moroccan ICE, forms of tax
numbers), idnumbers 1.22 (Emirates ID: Luhn, de facto, no official text seen; Kuwait civil id: weighted mod 11),
schwifty 2026.10 (IBANs that stdnum does not know), phonenumbers 9.0.43.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache

import phonenumbers
import schwifty
from idnumbers.nationalid import ARE, KWT
from stdnum import iban as stdnum_iban
from stdnum import luhn
from stdnum.exceptions import ValidationError
from stdnum.ma import ice
from stdnum.tn import mf

from grpo_lib.pii_text import Normal, normalise

REGIONS = (
    "SA",
    "AE",
    "QA",
    "BH",
    "KW",
    "OM",
    "EG",
    "JO",
    "LB",
    "IQ",
    "MA",
    "TN",
    "DZ",
    "LY",
    "PS",
    "SY",
    "YE",
)
_BEFORE, _AFTER = 60, 30  # characters in which a word may say what a number is


@dataclass(frozen=True)
class Kind:
    """One kind of finding: how sure (`checksum`, `structure` or `context`) and by what."""

    strength: str
    validator: str


KINDS = {
    "email": Kind("structure", "pattern of an address"),
    "phone": Kind("structure", "phonenumbers 9.0.43"),
    "iban": Kind("checksum", "python-stdnum 2.2, schwifty 2026.10 (mod 97)"),
    "card": Kind("checksum", "python-stdnum 2.2 (Luhn)"),
    "emirates_id": Kind("checksum", "idnumbers 1.22 (Luhn, de facto)"),
    "kuwait_civil_id": Kind("checksum", "idnumbers 1.22 (weighted mod 11)"),
    "morocco_rib": Kind("checksum", "mod 97 over 24 digits"),
    "tax_ma": Kind("checksum", "python-stdnum 2.2 (mod 97-10)"),
    "tax_eg": Kind("structure", "9 digits and a word for tax"),
    "tax_tn": Kind("structure", "python-stdnum 2.2 (form)"),
    "tax_dz": Kind("structure", "15 or 20 digits and a word for tax"),
    "sa_nid": Kind("structure", "10 digits from 1 or 2, and a word for identity"),
    "eg_nid": Kind("structure", "14 digits with a date and a governorate"),
    "bh_cpr": Kind("structure", "9 digits with year and month, and a word for identity"),
    "qa_qid": Kind("structure", "11 digits with century and year, and a word for identity"),
    "iq_card": Kind("structure", "12 digits and a word for identity"),
    "ma_cin": Kind("structure", "one or two letters, 5 or 6 digits, and a word for identity"),
    "name": Kind("context", "words after a title; weak"),
}

_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
# Groups of digits with at most one sign or two spaces between them; a plus in front belongs to a phone.
_DIGITS = re.compile(r"(?<!\d)\+?\(?\d+(?:(?: ?[-./()] ?| {1,2})\(?\d+\)?)*")
_GROUP = re.compile(r"\d+")
_DECIMAL = re.compile(r"\d{1,3}\.\d+")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[ -]?\d{2}(?:[ -]?[A-Za-z0-9]){11,30}(?![A-Za-z0-9])")
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
_PHONE = re.compile(
    r"هاتف|هواتف|جوال|موبايل|محمول|نقال|تلفون|تليفون|اتصل|اتصال|واتس|فاكس|خلوي|رقمه|\btel|phone|mobile|\bgsm\b|fax|call|whatsapp|contact|appel|joindre",
    re.I,
)
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
    if not _worth_a_look(text):
        return set()
    normal = normalise(text)
    found = {
        (kind, *normal.span(start, end))
        for kind, start, end in (*_patterns(normal), *_numbers(normal), *_names(normal))
    }
    return found


def _worth_a_look(text: str) -> bool:
    """Cheap: a row without six digits, an at sign or a title holds nothing that is looked for."""
    return (
        sum(map(str.isdigit, text)) >= 5
        or "@" in text
        or "＠" in text
        or _TITLE.search(normalise(text).text) is not None
    )


def _near(normal: Normal, start: int, end: int, words: re.Pattern[str]) -> bool:
    return words.search(normal.text[max(0, start - _BEFORE) : end + _AFTER]) is not None


def _patterns(normal: Normal) -> Iterator[tuple[str, int, int]]:
    text = normal.text
    yield from (("email", *match.span()) for match in _EMAIL.finditer(text))
    for match in _IBAN.finditer(text):
        if end := _iban_end(match[0]):
            yield "iban", match.start(), match.start() + end
    for match in _CIN.finditer(text):
        if _near(normal, *match.span(), _IDENTITY):
            yield "ma_cin", *match.span()
    for match in _MF.finditer(text):
        compact = re.sub(r"[ /-]", "", match[0]).upper()
        if mf.is_valid(compact) and (len(compact) == 13 or _near(normal, *match.span(), _TAX)):
            yield "tax_tn", *match.span()


def _iban_end(candidate: str) -> int | None:
    """Length of the valid IBAN that the candidate begins with; words after it may have been taken along."""
    for end in range(len(candidate), 14, -1):
        part = candidate[:end]
        if part[-1].isalnum() and _is_iban(re.sub(r"[ -]", "", part).upper()):
            return end
    return None


@cache
def _is_iban(compact: str) -> bool:
    # mod 97 first: cheap, and only then the country's own form.
    try:
        if int("".join(str(int(one, 36)) for one in compact[4:] + compact[:4])) % 97 != 1:
            return False
    except ValueError:
        return False
    if stdnum_iban.is_valid(compact, check_country=False):
        return True
    try:
        schwifty.IBAN(compact)
    except ValueError:
        return False
    return True


def _numbers(normal: Normal) -> Iterator[tuple[str, int, int]]:
    for match in _DIGITS.finditer(normal.text):
        if _DECIMAL.fullmatch(match[0]):
            continue
        groups = [(match.start() + one.start(), one[0]) for one in _GROUP.finditer(match[0])]
        yield from _phones(normal, match, groups)
        for first in range(len(groups)):
            digits = ""
            for last in range(first, min(first + 12, len(groups))):
                digits += groups[last][1]
                if len(digits) > 24:
                    break
                start, end = groups[first][0], groups[last][0] + len(groups[last][1])
                whole = first == 0 and last == len(groups) - 1
                for kind, words, holds in _BY_LENGTH.get(len(digits), ()):
                    # Part of a longer number is taken for an identifier only where a check digit says so.
                    if not whole and KINDS[kind].strength != "checksum" or len(set(digits)) == 1:
                        continue
                    if holds(digits) and (words is None or _near(normal, start, end, words)):
                        yield kind, start, end


def _phones(
    normal: Normal, match: re.Match[str], groups: list[tuple[int, str]]
) -> Iterator[tuple[str, int, int]]:
    """A number with its country in front needs no word; a local one does. Groups are joined from each beginning."""
    named = _near(normal, *match.span(), _PHONE)
    for first, (start, _) in enumerate(groups):
        digits = ""
        for last in range(first, min(first + 8, len(groups))):
            digits += groups[last][1]
            if len(digits) > 15:
                break
            plus = first == 0 and match[0].startswith(("+", "(+"))
            end = groups[last][0] + len(groups[last][1])
            if len(digits) >= 7 and _is_phone(digits, plus, named):
                yield "phone", start, end


@cache
def _is_phone(digits: str, plus: bool, named: bool) -> bool:
    if plus or digits.startswith("00"):
        return _valid("+" + (digits if plus else digits[2:]), None)
    return named and any(_valid(digits, region) or _valid("+" + digits, None) for region in REGIONS)


def _valid(number: str, region: str | None) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(number, region))
    except phonenumbers.NumberParseException:
        return False


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
    return (
        digits[0] in "23"
        and governorate in places
        and _is_date(1700 + 100 * int(digits[0]) + int(digits[1:3]), digits[3:7])
    )


def _is_date(year: int, month_day: str) -> bool:
    try:
        return date(year, int(month_day[:2]), int(month_day[2:])) is not None
    except ValueError:
        return False


def _card(digits: str) -> bool:
    """Luhn, and a beginning and length that a card scheme uses."""
    scheme = (
        (digits[0] == "4" and len(digits) in (13, 16, 19))
        or (len(digits) == 16 and (51 <= int(digits[:2]) <= 55 or 2221 <= int(digits[:4]) <= 2720))
        or (len(digits) == 15 and digits[:2] in ("34", "37"))
        or (len(digits) == 16 and digits[:2] in ("60", "62", "64", "65"))
        or (len(digits) == 14 and digits[:2] in ("30", "36", "38"))
    )
    return scheme and luhn.is_valid(digits)


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
    24: (("morocco_rib", None, lambda digits: int(digits) % 97 == 0),),
}
