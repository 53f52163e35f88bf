"""Telephone numbers of the Arab states, by the numbering plans that `phonenumbers` carries.

A numbering plan says which numbers can exist, not which are in use, and has no check digit. A number that names its
country (+966 …, 00966 …) or is a mobile number with its leading zero counts by itself. A landline, and the eight digits
of states without a leading zero, count only beside a word such as «هاتف»: too many other numbers look like them.
"""

from __future__ import annotations

import re
from functools import cache

import phonenumbers
from phonenumbers import PhoneMetadata, PhoneNumberType

REGIONS = tuple(
    [
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
        "SD",
        "MR",
    ]
)
SHORTEST, LONGEST = 7, 15

WORDS = re.compile(
    "هاتف|هواتف|جوال|موبايل|موبيل|محمول|نقال|تلفون|تليفون|اتصل|اتصال|تواصل|واتس|وتس|فاكس|خلوي|كلم|راسل|رقم[يه]"
    r"|\b(?:tel|phone|telephone|mobile|cell|gsm|portable|fax|call|whatsapp|contact|sms|appel\w*|joindre)\b|\btél",
    re.IGNORECASE,
)
# What a number is said to be when it reaches nobody.
_THING = re.compile(
    "(?:فاتور|رقم (?:ال)?(?:طلب|طلبي|شحن|تتبع|مرجع|عملي|معامل|قضي|صك|منتج|صنف|تذكر)|باركود"
    r"|\b(?:invoice|order|ref|reference|tracking|ticket|serial|sku|barcode|isbn|parcel|shipment|transaction)\b)"
    r"[^0-9]{0,20}$",
    re.IGNORECASE,
)
_PLUS_BEFORE = re.compile(r"(?<![0-9])(?<![0-9] )\+ ?\(? ?$")
# Typed from right to left, the sign lands behind the number.
_PLUS_BEHIND = re.compile(r"\+(?! ?[0-9])")
_MOBILE = {PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE_OR_MOBILE}
# A company's free or premium number is nobody's own.
_NOBODYS = {
    PhoneNumberType.TOLL_FREE,
    PhoneNumberType.PREMIUM_RATE,
    PhoneNumberType.SHARED_COST,
    PhoneNumberType.UAN,
    PhoneNumberType.UNKNOWN,
}
# Digits per group in which a mobile number that begins with zero is written. Others, such as 2-2-4, are dates.
_SHAPES = {
    (3, 3, 4), (3, 4, 3), (4, 3, 3), (3, 7), (4, 6), (2, 4, 4), (2, 8), (5, 5), (6, 4), (4, 2, 2, 2), (2, 2, 2, 2, 2),
    (3, 3, 2, 2), (3, 2, 2, 3), (3, 3, 5), (3, 4, 4), (4, 3, 4), (4, 4, 3), (3, 8), (4, 7), (5, 6), (5, 3, 3), (2, 3, 2, 3),
    (2, 3, 3, 2), (2, 2, 3, 3),
}  # fmt: skip
# Country codes that say enough without a plus sign. Egypt's "20" also opens dates written without signs (20101231…).
_CODES = tuple(
    str(code) for code in map(phonenumbers.country_code_for_region, REGIONS) if len(str(code)) == 3
)


def is_phone(text: str, start: int, end: int, shape: tuple[int, ...], *, alone: bool, named: bool) -> bool:
    """Whether the digits of `text[start:end]` reach a telephone that a person may own.

    Args:
        text: a normalised row.
        shape: digits per group.
        alone: no sign ties it to other digits, as in a date or a range.
        named: a word near it speaks of telephones.
    """
    digits = "".join(char for char in text[start:end] if char.isdigit())
    before = text[max(0, start - 48) : start]
    if _THING.search(before):
        return False
    if digits.startswith("00"):
        return _international(digits[2:])
    if _PLUS_BEFORE.search(before) or _PLUS_BEHIND.match(text, end):
        return _international(digits)
    if named:
        return any(_type(digits, region) not in _NOBODYS for region in _plans()) or _international(digits)
    if not alone and len(shape) > 1:
        return False
    if digits.startswith("0"):
        usual = len(shape) == 1 or shape in _SHAPES
        return usual and len(digits) >= 10 and any(_type(digits, region) in _MOBILE for region in _plans())
    with_code = digits.startswith(_CODES) and len(digits) >= 11 and (len(shape) == 1 or shape[0] == 3)
    return with_code and _type(digits) in _MOBILE


def _international(digits: str) -> bool:
    return not digits.startswith("0") and _type(digits) not in _NOBODYS


def _type(digits: str, region: str | None = None) -> int:
    """`PhoneNumberType` of a number with its country's code, or as dialled within `region`; UNKNOWN if not valid."""
    if region and not _plans()[region].fullmatch(digits.removeprefix("0")):
        return PhoneNumberType.UNKNOWN
    try:
        return phonenumbers.number_type(phonenumbers.parse(digits if region else f"+{digits}", region))
    except phonenumbers.NumberParseException:
        return PhoneNumberType.UNKNOWN


@cache
def _plans() -> dict[str, re.Pattern[str]]:
    """The form of a region's numbers: a quick look, since parsing for every region takes half a millisecond."""
    return {
        region: re.compile(PhoneMetadata.metadata_for_region(region).general_desc.national_number_pattern)
        for region in REGIONS
    }
