"""Kinds of personal data that the screen looks for, and what each one is checked with.

Three strengths, and no kind claims more than its source:

- *checksum*: a check digit that a published library verifies. The Emirates ID is here for its Luhn digit, which is what
  cards carry in practice; no official text for it is known. The key of a Moroccan RIB is verified with python-stdnum's
  own modulo 97; presidio-mena 0.1.0 states the same rule.
- *structure*: length, dates and prefixes, because no check digit is published (Egypt, Qatar, Iraq), the algorithm is not
  known (Bahrain), it is not confirmed (Saudi Arabia: Luhn), or the library checks the form only (the tax numbers of
  Egypt, Tunisia and Algeria). So many other numbers look like these that a word such as «رقم الهوية» must stand near;
  the Egyptian number with its date of birth, and the full Tunisian tax number, are particular enough alone.
- *context*: only the words around make it one. Identity numbers of Jordan, Oman, Tunisia, Algeria and Lebanon are known
  by length alone, so they are `identity_number` and not kinds of their own.

`find` gives places in the original text. Nothing here keeps, prints or logs what stands there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib.metadata import version

from idnumbers.nationalid.are import EmiratesIDNumber
from idnumbers.nationalid.bhr import PersonalNumber
from idnumbers.nationalid.egy import NationalID as EgyptID
from idnumbers.nationalid.irq import NationalID as IraqID
from idnumbers.nationalid.kwt import CivilNumber
from idnumbers.nationalid.sau import NationalID as SaudiID
from schwifty import IBAN, registry
from schwifty.exceptions import SchwiftyException
from stdnum import luhn
from stdnum.dz import nif
from stdnum.eg import tn as egypt_tax
from stdnum.iso7064 import mod_97_10
from stdnum.ma import ice
from stdnum.tn import mf

from grpo_lib.pii_names import names
from grpo_lib.pii_numbers import Candidate, candidates, worth_reading
from grpo_lib.pii_phones import LENGTHS as PHONE_LENGTHS
from grpo_lib.pii_phones import is_phone
from grpo_lib.pii_text import normalise

LIBRARIES = ("idnumbers", "phonenumbers", "python-stdnum", "schwifty")


@dataclass(frozen=True)
class Kind:
    """One kind as reports name it."""

    name: str
    strength: str  # checksum | structure | context
    library: str  # one of LIBRARIES, or empty for a pattern of this suite
    how: str

    @property
    def validator(self) -> str:
        return f"{self.library} {version(self.library)}: {self.how}" if self.library else f"grpo-lib: {self.how}"


# In the order in which they claim a stretch of text that several fit.
KINDS = (
    Kind("email", "structure", "", "address form"),
    Kind("iban", "checksum", "schwifty", "length and form by country, modulo 97"),
    Kind("emirates_id", "checksum", "idnumbers", "Luhn, de facto: no official text known"),
    Kind("morocco_rib", "checksum", "python-stdnum", "modulo 97"),
    Kind("kuwait_civil_id", "checksum", "idnumbers", "date of birth, weighted modulo 11"),
    Kind("morocco_ice", "checksum", "python-stdnum", "modulo 97"),
    Kind("credit_card", "checksum", "python-stdnum", "Luhn, length and prefix by scheme"),
    Kind("egypt_nid", "structure", "idnumbers", "century and date of birth"),
    Kind("saudi_id", "structure", "idnumbers", "10 digits, first 1 or 2; Luhn unconfirmed"),
    Kind("qatar_id", "structure", "", "11 digits, century, year"),
    Kind("bahrain_cpr", "structure", "idnumbers", "9 digits, month of birth; check digit not known"),
    Kind("iraq_id", "structure", "idnumbers", "12 digits"),
    Kind("egypt_tax", "structure", "python-stdnum", "9 digits"),
    Kind("tunisia_tax", "structure", "python-stdnum", "digits and letter codes; key not verified"),
    Kind("algeria_tax", "structure", "python-stdnum", "15 or 20 digits"),
    Kind("morocco_cin", "structure", "", "1 or 2 letters and 5 or 6 digits"),
    Kind("phone", "structure", "phonenumbers", "numbering plan"),
    Kind("identity_number", "context", "", "words before 7 to 18 digits"),
    Kind("name", "context", "", "titles and words before; weak, no target"),
)
BY_NAME = {kind.name: kind for kind in KINDS}
_ORDER = {kind.name: place for place, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class Found:
    """A place in the original text, and what seems to stand there."""

    kind: str
    start: int
    end: int


def _words(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(parts), re.IGNORECASE)


# Words are matched in normalised text: ة is ه, every alef is ا, ى is ي, no diacritics.
_CARD_OR_NUMBER = "هويه|هويت[يهك]|بطاقه (?:ال)?(?:شخصيه|تعريف|احوال|هويه|مدنيه)|رقم (?:ال)?بطاقت[يهك]"
_IDENTITY = _words(
    _CARD_OR_NUMBER,
    r"\b(?:national|identity|personal|civil|resident|citizen)[ _]?(?:id|identity|card|number|no)\b",
    r"\bid[ _](?:number|no|num|card)\b|\b(?:his|her|my|with|whose) id\b|\bnid\b|\bidentit[yé]\b",
)
_SAUDI = _words(_IDENTITY.pattern, r"اقام[هت]|سجل(?:ه|ها|ي)? (?:ال)?مدني|رقم الحدود|\biqama\b")
_EGYPT = _words(_IDENTITY.pattern, "رقم(?:ه|ها|ي)? (?:ال)?قومي|بطاقه (?:ال)?(?:قوميه|رقم)")
_QATAR = _words(_IDENTITY.pattern, r"رقم(?:ه|ها|ي)? (?:ال)?شخصي|\bqid\b|اقام[هت]")
_BAHRAIN = _words(_IDENTITY.pattern, r"رقم(?:ه|ها|ي)? (?:ال)?(?:شخصي|سكاني)|بطاقه (?:ال)?(?:سكانيه|ذكيه)|\bcpr\b")
_IRAQ = _words(_IDENTITY.pattern, "بطاقه (?:ال)?(?:وطنيه|موحده)|موحده")
_MOROCCO = _words(r"\bcnie?\b|\bcin\b|carte (?:d['’]identit|nationale)", "بطاقه (?:ال)?(?:وطنيه|تعريف)|بطاقت[يهك]|ب\.?ت\.?و")
_BANK = _words(r"\brib\b|compte|banque|bancaire|virement|\baccount\b|\bbank", "حساب|بنك|بنكي|تحويل|مصرف")
_TAX = _words(r"\btax\b|\bvat\b|\btin\b|\btrn\b", "ضريب")
_ICE = _words(r"\bice\b", "تعريف الموحد|المعرف الموحد|مقاوله")
_NIF = _words(r"\bn\.?i\.?f\b|fiscale?", "جبايي|ضريب")
_MF = _words(r"\bm\.?f\b|matricule|fiscale?", "جبايي|ضريب")
_CARD = _words(r"\bcard\b|\bvisa\b|mastercard|\bmada\b|\bcarte\b|amex", "بطاق[هت]|فيزا|ماستر|مدي|ميزه|ايتمان")
# Any identity number: the word comes before, and no other number between.
_ANY_IDENTITY = re.compile(
    f"(?:{_CARD_OR_NUMBER}|{_SAUDI.pattern}|{_EGYPT.pattern}|{_QATAR.pattern}|{_BAHRAIN.pattern}|{_IRAQ.pattern}"
    r"|رقم(?:ه|ها|ي)? (?:ال)?(?:وطني|مدني|شناسايي)|بطاقه (?:ال)?وطنيه|\bnin\b|\bcin\b"
    r")[^0-9\n]{0,25}$",
    re.IGNORECASE,
)
# What a number is said to be when it is no person's: it settles the doubt about numbers without check digit.
_THING = re.compile(
    "(?:فاتوره|رقم (?:ال)?(?:طلب|طلبيه|شحنه|تتبع|مرجع|عمليه|معامله|قضيه|صك|منتج|صنف|تذكره)|باركود|مرجع(?:ي)?"
    r"|\b(?:invoice|order|ref(?:erence)?|tracking|ticket|serial|sku|barcode|isbn|parcel|shipment|transaction|batch)\b)"
    r"[^0-9\n]{0,20}$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Number:
    """How one kind of number is known.

    Args:
        lengths: digits it may have.
        holds: whether compact digits pass its check.
        words: its context.
        alone: what makes it count without those words.
        shapes: digits per group as it is usually written, for `alone`.
    """

    kind: str
    lengths: tuple[int, ...]
    holds: Callable[[str], bool]
    words: re.Pattern[str]
    alone: Callable[[Candidate], bool] = lambda one: False
    shapes: frozenset[tuple[int, ...]] = field(default_factory=frozenset)

    def counts(self, one: Candidate, present: Callable[[re.Pattern[str]], bool]) -> bool:
        """`present` says whether words stand anywhere in the row: nearness is looked at only then."""
        usual = len(one.shape) == 1 or one.shape in self.shapes
        if usual and self.alone(one):
            return self.holds(one.digits)
        return present(self.words) and one.near(self.words) and self.holds(one.digits)


def _always(one: Candidate) -> bool:
    return True


def _not_a_thing(one: Candidate) -> bool:
    return one.apart and not _THING.search(one.before)


_SCHEMES = re.compile(
    # Visa; Mastercard; American Express; Diners; JCB, UnionPay, Discover, Maestro, mada and others; mada's own range.
    r"4\d{15}|4\d{18}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|35\d{14}|6[0-9]\d{14}|6[0-9]\d{17}|5[0678]\d{14}|9682\d{12}"
)


def _known_scheme(one: Candidate) -> bool:
    # In an address, `/` and `=` come before numbers of pages and products.
    return _SCHEMES.fullmatch(one.digits) is not None and one.text[one.start - 1 : one.start] not in ("/", "=", "#")


def _card(digits: str) -> bool:
    return luhn.is_valid(digits) and len(set(digits)) > 2


def _is_rib(digits: str) -> bool:
    return mod_97_10.checksum(digits) == 0 and len(set(digits)) > 2


def _egypt(digits: str) -> bool:
    """The library's structure and date, and nobody is born in the future."""
    parsed = EgyptID.parse(digits)
    return parsed is not None and parsed["yyyymmdd"] <= date.today()


def _qatar(digits: str) -> bool:
    return digits[0] in "23" and (int(digits[0]) + 17) * 100 + int(digits[1:3]) <= date.today().year


def _fills_row_with_luhn(one: Candidate) -> bool:
    """A column of bare numbers has no words; that all of a row is such a number, with Luhn, stands for them."""
    return one.text.strip() == one.digits and luhn.is_valid(one.digits)


def _shapes(*shapes: str) -> frozenset[tuple[int, ...]]:
    return frozenset(tuple(map(int, shape.split("-"))) for shape in shapes)


_EMIRATES_SHAPES = _shapes("3-4-7-1", "3-4-3-4-1", "3-4-4-3-1", "3-12", "3-4-8", "3-11-1", "7-7-1", "3-3-3-3-3", "3-4-4-4")
_KUWAIT_SHAPES = _shapes("1-6-5", "1-6-4-1", "4-4-4", "3-3-3-3", "7-5", "7-4-1", "6-6", "1-2-2-2-5", "1-2-2-2-4-1")
_RIB_SHAPES = _shapes("3-3-16-2", "3-3-18", "6-16-2", "3-21", "3-3-2-14-2", "3-3-4-4-4-4-2", "3-3-12-4-2", "22-2")
_ICE_SHAPES = _shapes("9-4-2", "9-6", "3-3-3-4-2", "3-3-3-3-3", "13-2")
_CARD_SHAPES = _shapes("4-4-4-4", "4-6-5", "4-6-4", "4-4-4-4-3", "8-8", "6-10")
_EGYPT_SHAPES = _shapes("1-6-7", "1-6-2-5", "1-6-2-4-1", "7-7", "1-2-2-2-7", "1-2-2-2-2-5", "1-2-2-2-2-4-1")

_NUMBERS = (
    _Number("emirates_id", (15,), EmiratesIDNumber.validate, _IDENTITY, _always, _EMIRATES_SHAPES),
    _Number("morocco_rib", (24,), _is_rib, _BANK, _always, _RIB_SHAPES),
    _Number("kuwait_civil_id", (12,), CivilNumber.validate, _ANY_IDENTITY, _always, _KUWAIT_SHAPES),
    _Number("morocco_ice", (15,), ice.is_valid, _ICE, _always, _ICE_SHAPES),
    _Number("credit_card", tuple(range(13, 20)), _card, _CARD, _known_scheme, _CARD_SHAPES),
    _Number("egypt_nid", (14,), _egypt, _EGYPT, _not_a_thing, _EGYPT_SHAPES),
    _Number("saudi_id", (10,), SaudiID.validate, _SAUDI, _fills_row_with_luhn),
    _Number("qatar_id", (11,), _qatar, _QATAR),
    _Number("bahrain_cpr", (9,), PersonalNumber.validate, _BAHRAIN),
    _Number("iraq_id", (12,), IraqID.validate, _IRAQ),
    _Number("egypt_tax", (9,), egypt_tax.is_valid, _TAX),
    _Number("algeria_tax", (15, 20), nif.is_valid, _NIF),
)
_LENGTHS = frozenset(n for number in _NUMBERS for n in number.lengths) | PHONE_LENGTHS | frozenset(range(7, 19))


def find(text: str) -> list[Found]:
    """Personal data that `text` seems to hold, as places in it, in order; no two overlap."""
    normal = normalise(text)
    hits = sorted(_hits(normal.text), key=lambda hit: (_ORDER[hit[0]], hit[1] - hit[2]))
    kept: list[tuple[str, int, int]] = []
    for hit in hits:
        if all(hit[2] <= start or end <= hit[1] for _, start, end in kept):
            kept.append(hit)
    kept.sort(key=lambda hit: hit[1])
    return [Found(kind, *normal.span(start, end)) for kind, start, end in kept]


def _hits(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, end) in normalised text; hits may overlap."""
    if "@" in text:
        yield from (("email", *match.span()) for match in _EMAIL.finditer(text))
    yield from (("name", *span) for span in names(text))
    if worth_reading(text):
        yield from _lettered(text)
        yield from _numbers(text)


def _numbers(text: str) -> Iterator[tuple[str, int, int]]:
    seen: dict[re.Pattern[str], bool] = {}

    def present(words: re.Pattern[str]) -> bool:
        if words not in seen:
            seen[words] = words is _ANY_IDENTITY or words.search(text) is not None
        return seen[words]

    for one in candidates(text, _LENGTHS):
        length = len(one.digits)
        for number in _NUMBERS:
            if length in number.lengths and number.counts(one, present):
                yield number.kind, one.start, one.end
        if length in PHONE_LENGTHS and not _THING.search(one.before) and is_phone(one):
            yield "phone", one.start, one.end
        if length <= 18 and len(one.shape) <= 4 and _ANY_IDENTITY.search(one.before):
            yield "identity_number", one.start, one.end


# ------------------------------------------------------------------------------------------------------------
# What has letters in it

# The local part is bounded (64 characters, RFC 5321) so that a long word without "@" costs no more than its length.
_EMAIL = re.compile(
    r"(?<![\w.+%-])[\w.+%'-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.)+[^\W\d_]{2,24}(?![\w-])", re.IGNORECASE
)
_SEPARATORS = " -./_"
_IBAN_HEAD = re.compile(r"(?:(?<=IBAN)|(?<![A-Za-z0-9]))[A-Z]{2}[ -]?[0-9][ -]?[0-9]", re.IGNORECASE)
_CIN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{1,2} ?[0-9]{5,6}(?![A-Za-z0-9])", re.IGNORECASE)
_MF_LONG = re.compile(
    r"(?<![A-Za-z0-9])[0-9]{7} ?[/.-]? ?[A-Z] ?[/.-]? ?[APBDN] ?[/.-]? ?[MPCNE] ?[/.-]? ?[0-9]{3}(?![A-Za-z0-9])"
)
_MF_SHORT = re.compile(r"(?<![A-Za-z0-9])[0-9]{7} ?[/-]? ?[A-Z](?![A-Za-z0-9])")


@cache
def _iban_lengths() -> dict[str, int]:
    IBAN("", allow_invalid=True)  # loads the registry
    return {country: spec["iban_length"] for country, spec in registry.get("iban").items()}


def _lettered(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _IBAN_HEAD.finditer(text):
        end = _iban_end(text, match.start())
        if end:
            yield "iban", match.start(), end
    for match in _MF_LONG.finditer(text):
        if mf.is_valid(match[0]):
            yield "tunisia_tax", *match.span()
    for pattern, words, kind, holds in (
        (_MF_SHORT, _MF, "tunisia_tax", mf.is_valid),
        (_CIN, _MOROCCO, "morocco_cin", lambda number: len(set(number[-5:])) > 1),
    ):
        for match in pattern.finditer(text):
            around = text[max(0, match.start() - 48) : match.start()] + "\n" + text[match.end() : match.end() + 24]
            if words.search(around) and holds(match[0]):
                yield kind, *match.span()
