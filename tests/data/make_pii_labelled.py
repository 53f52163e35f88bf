"""Writes `pii_labelled.jsonl`: sentences as ministries write them, labelled with the personal data they hold.

Made without sight of the detector that is measured on it. The people are invented and the numbers are drawn at
random; numbers with a check digit get it from the published formula, written out here so that a validating
library can be checked against the labels and not only the labels against the library. Phone numbers are the
example numbers of the numbering plans with other last digits.

Each row is `{"text", "kinds", "note"}`. An empty `kinds` marks a negative. `note` says what the row tries; it
starts with "hard" where a plain pattern over ASCII digits would miss the value, or would see one that is not there.

Use: `python tests/data/make_pii_labelled.py` writes the file beside this script; a test compares the two.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

SEED = 20261201
TARGET = Path(__file__).with_name("pii_labelled.jsonl")

# --- Check digits, from the published formulas ------------------------------------------------------------------


def luhn_digit(body: str) -> str:
    """ISO/IEC 7812-1, annex B."""
    total = 0
    for place, digit in enumerate(reversed(body)):
        doubled = int(digit) * (2 if place % 2 == 0 else 1)
        total += doubled - 9 if doubled > 9 else doubled
    return str(-total % 10)


def mod97_key(body: str) -> str:
    """Two digits that make `body` + key ≡ 0 (mod 97): Moroccan RIB, Tunisian bank account."""
    return f"{97 - int(body + '00') % 97:02d}"


def iso7064_key(body: str) -> str:
    """ISO 7064 MOD 97-10: two digits that make `body` + key ≡ 1 (mod 97)."""
    return f"{98 - int(body + '00') % 97:02d}"


def iban_of(country: str, bban: str) -> str:
    """ISO 13616: check digits over the rearranged account, letters as 10…35."""
    digits = "".join(str(int(character, 36)) for character in bban + country)
    return country + iso7064_key(digits) + bban


def kuwait_digit(body: str) -> int:
    """11 − (Σ weight · digit mod 11); 10 and 11 are never issued."""
    weights = (2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return 11 - sum(w * int(d) for w, d in zip(weights, body, strict=True)) % 11


# --- Values: each maker returns the groups in which people write the number --------------------------------------

Maker = Callable[[random.Random], list[str]]


def digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(count))


def birthday(rng: random.Random) -> date:
    return date(1955, 1, 1) + timedelta(days=rng.randrange(18_000))


def fours(value: str) -> list[str]:
    return [value[start : start + 4] for start in range(0, len(value), 4)]


def emirates_id(rng: random.Random) -> list[str]:
    body = f"784{birthday(rng).year}{digits(rng, 7)}"
    return [body[:3], body[3:7], body[7:], luhn_digit(body)]


def kuwait_civil_id(rng: random.Random) -> list[str]:
    while True:
        born = birthday(rng)
        body = f"{2 if born.year < 2000 else 3}{born:%y%m%d}{digits(rng, 4)}"
        if (key := kuwait_digit(body)) < 10:
            return [body[0], body[1:7], body[7:] + str(key)]


def morocco_rib(rng: random.Random) -> list[str]:
    body = rng.choice(("007", "011", "021", "022", "145", "190", "225", "230")) + "780" + digits(rng, 16)
    return [body[:3], body[3:6], body[6:], mod97_key(body)]


def iban(rng: random.Random) -> list[str]:
    country = rng.choice(("SA", "AE", "QA", "BH", "KW", "OM", "JO", "LB", "EG", "IQ", "TN", "SA", "AE", "MA"))
    bank = "".join(rng.choice("ABCDFKLMNQRST") for _ in range(4))
    tunis = digits(rng, 18)
    bban = {
        "SA": "80" + digits(rng, 18),
        "AE": digits(rng, 19),
        "QA": bank + digits(rng, 21),
        "BH": bank + digits(rng, 14),
        "KW": bank + digits(rng, 22),
        "OM": digits(rng, 19),
        "JO": bank + digits(rng, 22),
        "LB": digits(rng, 24),
        "EG": digits(rng, 25),
        "IQ": bank + digits(rng, 15),
        "TN": tunis + mod97_key(tunis),
        "MA": "".join(morocco_rib(rng)),
    }[country]
    return fours(iban_of(country, bban))


def tax_eg(rng: random.Random) -> list[str]:
    return [str(rng.randrange(100, 800)), digits(rng, 3), digits(rng, 3)]


def tax_ma(rng: random.Random) -> list[str]:
    body = f"00{digits(rng, 7)}{rng.choice(('0000', '0001', '0012'))}"
    return [body[:3], body[3:6], body[6:9], body[9:] + f"{-int(body + '00') % 97:02d}"]


def tax_tn(rng: random.Random) -> list[str]:
    branch = rng.choice(("000", "000", "001"))
    category = "E" if branch != "000" else rng.choice("MPC")
    return [digits(rng, 7), rng.choice("ABCDEFGHJKLMNPQRSTVWXYZ"), rng.choice("APBDN"), category, branch]


def tax_dz(rng: random.Random) -> list[str]:
    body = rng.choice(("0001", "0999", "1987")) + digits(rng, rng.choice((11, 11, 16)))
    return [body[start : start + 5] for start in range(0, len(body), 5)]


def card(rng: random.Random) -> list[str]:
    start, length = rng.choice(
        (("411111", 16), ("424242", 16), ("555555", 16), ("222300", 16), ("378282", 15))
    )
    body = start + digits(rng, length - 1 - len(start))
    value = body + luhn_digit(body)
    return [value[:4], value[4:10], value[10:]] if length == 15 else fours(value)


def sa_nid(rng: random.Random) -> list[str]:
    body = rng.choice("12") + digits(rng, 8)
    return [
        body + luhn_digit(body)
    ]  # the Luhn digit is not official; with it, strict and lenient readers agree


def eg_nid(rng: random.Random) -> list[str]:
    born = birthday(rng)
    century = 2 if born.year < 2000 else 3
    return [str(century), f"{born:%y%m%d}", rng.choice(("01", "02", "12", "21", "88")), digits(rng, 5)]


def bh_cpr(rng: random.Random) -> list[str]:
    return [f"{birthday(rng):%y%m}", digits(rng, 5)]


def qa_qid(rng: random.Random) -> list[str]:
    born = birthday(rng)
    return [
        f"{2 if born.year < 2000 else 3}{born:%y}",
        rng.choice(("634", "818", "356", "586")),
        digits(rng, 5),
    ]


def iq_card(rng: random.Random) -> list[str]:
    return fours(f"{birthday(rng).year}{digits(rng, 8)}")


def ma_cin(rng: random.Random) -> list[str]:
    return [rng.choice(("A", "BE", "BK", "EE", "J", "K", "WA")), digits(rng, 6)]


# Example numbers of the numbering plans: country code, national groups without trunk prefix, trunk prefix, places.
PHONES = (
    ("966", ["51", "234", "5678"], "0", "في الرياض بالسعودية"),
    ("971", ["50", "123", "4567"], "0", "في أبوظبي بالإمارات"),
    ("974", ["3312", "3456"], "", "في الدوحة بدولة قطر"),
    ("973", ["3600", "1234"], "", "في المنامة بالبحرين"),
    ("965", ["5001", "2345"], "", "في دولة الكويت"),
    ("968", ["9212", "3456"], "", "في مسقط بسلطنة عمان"),
    ("962", ["79", "012", "3456"], "0", "في عمّان بالأردن"),
    ("961", ["71", "123", "456"], "", "في بيروت بلبنان"),
    ("20", ["10", "0123", "4567"], "0", "في القاهرة بمصر"),
    ("964", ["791", "234", "5678"], "0", "في بغداد بالعراق"),
    ("216", ["20", "123", "456"], "", "في تونس العاصمة"),
    ("212", ["650", "12", "34", "56"], "0", "في الرباط بالمغرب"),
    ("213", ["551", "23", "45", "67"], "0", "في الجزائر العاصمة"),
    ("966", ["11", "234", "5678"], "0", "في الرياض بالسعودية"),
    ("962", ["6", "200", "1234"], "0", "في عمّان بالأردن"),
)


def phone(rng: random.Random) -> tuple[str, list[str], str, str]:
    code, groups, trunk, place = rng.choice(PHONES)
    tail = "".join(groups)[:-2] + digits(rng, 2)
    lengths, cut = [len(group) for group in groups], 0
    national = []
    for length in lengths:
        national.append(tail[cut : cut + length])
        cut += length
    return code, national, trunk, place


# --- Dresses: how the same number looks in real files -------------------------------------------------------------

ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
EXTENDED = str.maketrans("0123456789", "۰۱۲۳۴۵۶۷۸۹")
FULL_WIDTH = str.maketrans("0123456789", "".join(chr(0xFF10 + n) for n in range(10)))
LRM, RLM, LRE, RLE, PDF, LRI, RLI, PDI = (
    chr(code) for code in (0x200E, 0x200F, 0x202A, 0x202B, 0x202C, 0x2066, 0x2067, 0x2069)
)
NBSP, NARROW, EN_DASH, HYPHEN, TATWEEL = (chr(code) for code in (0xA0, 0x202F, 0x2013, 0x2010, 0x640))


def _halves(groups: list[str]) -> str:
    text = "".join(groups)
    return text[: len(text) // 2] + text[len(text) // 2 :].translate(ARABIC)


DRESSES: tuple[tuple[str, Callable[[list[str]], str]], ...] = (
    ("plain", "".join),
    ("spaces", " ".join),
    ("dashes", "-".join),
    ("hard: Arabic-Indic digits", lambda g: "".join(g).translate(ARABIC)),
    ("hard: Arabic-Indic digits with spaces", lambda g: " ".join(g).translate(ARABIC)),
    ("hard: Arabic-Indic digits with dashes", lambda g: "-".join(g).translate(ARABIC)),
    ("hard: Extended Arabic-Indic digits", lambda g: "".join(g).translate(EXTENDED)),
    ("hard: Extended Arabic-Indic digits with spaces", lambda g: " ".join(g).translate(EXTENDED)),
    ("hard: no-break spaces", NBSP.join),
    ("hard: narrow no-break spaces", NARROW.join),
    ("hard: en dashes", EN_DASH.join),
    ("hard: U+2010 hyphens", HYPHEN.join),
    (
        "hard: right-to-left mark between groups",
        lambda g: RLM.join(g) if len(g) > 1 else g[0][:4] + RLM + g[0][4:],
    ),
    ("hard: left-to-right marks around every dash", f"{LRM}-{LRM}".join),
    ("hard: isolated left to right", lambda g: LRI + " ".join(g) + PDI),
    (
        "hard: embedded, a right-to-left mark inside",
        lambda g: LRE + "".join(g)[:5] + RLM + "".join(g)[5:] + PDF,
    ),
    ("hard: right-to-left isolate, Arabic-Indic digits", lambda g: RLI + "".join(g).translate(ARABIC) + PDI),
    ("hard: tatweel used as a dash", TATWEEL.join),
    ("hard: full-width digits", lambda g: "".join(g).translate(FULL_WIDTH)),
    ("hard: two digit systems in one number", _halves),
)
# Letters in a value make some dresses unreal (nobody writes a full-width matricule).
LETTER_DRESSES = tuple(d for d in DRESSES if not re.search("full-width|two digit|tatweel", d[0]))

# --- Sentences. {v} is the value; "{v}" right after a letter is glued on purpose ------------------------------------

SENTENCES: dict[str, tuple[str, ...]] = {
    "emirates_id": (
        "قدّم صاحب الطلب صورة من بطاقة الهوية الإماراتية رقم {v} وأُحيل الملف إلى القسم المختص.",
        "يُرجى تحديث بيانات الموظف صاحب رقم الهوية {v} في نظام الموارد البشرية قبل 15/03/2026.",
        "بِطَاقَةُ الهُوِيَّةِ {v} مُنتَهِيَةُ الصَّلاحِيَّةِ ويلزم تجديدها.",
        "الهويـــة الإماراتيـــة: {v}، وتاريخ الإصدار 2024-05-02.",
        "ورد إلينا رقم{v} بدون نسخة من جواز السفر.",
        "هوية{v}مرفقة بالطلب رقم 55.",
        "The applicant's Emirates ID {v} was verified at the counter on 3 May 2026.",
        "Le titulaire de la carte d'identité émirienne n° {v} a déposé sa demande hier.",
    ),
    "kuwait_civil_id": (
        "الرقم المدني للمراجع هو {v} وقد سُجّل في دفتر الوارد.",
        "تمت مطابقة البطاقة المدنية {v} مع سجلات الهيئة العامة للمعلومات المدنية.",
        "الرَّقْمُ المَدَنِيُّ: {v} والمعاملة قيد الإجراء منذ 1447/06/10هـ.",
        "الرقــــم المدنــــي {v} لا يحتاج إلى تحديث.",
        "صرف بدل السكن للموظف ذي الرقم المدني{v}اعتبارًا من شهر يناير.",
        "Civil ID {v} belongs to the employee whose leave was approved.",
        "Numéro civil koweïtien : {v} (dossier complet).",
    ),
    "morocco_rib": (
        "يُحوَّل التعويض إلى الحساب البنكي (RIB) رقم {v} المفتوح بالدار البيضاء.",
        "كشف التعريف البنكي للمستفيد: {v}، مع صورة من البطاقة الوطنية.",
        "رقم الحسـاب {v} لدى بنك مغربي، والمبلغ 4.500,00 درهم.",
        "المرجو أداء المنحة على الحساب{v}قبل متم الشهر.",
        "Veuillez virer l'indemnité sur le RIB {v} avant le 30 juin.",
        "Relevé d'identité bancaire : {v}",
        "The grant goes to Moroccan account (RIB) {v}.",
    ),
    "iban": (
        "يُصرف المبلغ المستحق على رقم الآيبان {v} خلال خمسة أيام عمل.",
        "الحساب الدولي للمستفيدة {v}، والغرض: بدل انتداب.",
        "رَقْمُ الآيبان: {v} وقد اعتمده القسم المالي.",
        "نأمل تحويل الراتب إلى الحساب البنكـــي {v} اعتبارًا من 1447/09/01هـ.",
        "آيبان{v}معتمد لدى وزارة المالية.",
        "Please pay the allowance to IBAN {v} before the end of the month.",
        "Merci de régler la facture 2026/114 sur le compte {v}.",
        "IBAN: {v}",
    ),
    "tax_eg": (
        "الرقم الضريبي للممول في مصر {v} وقد قُدّم إقرار عام 2025.",
        "سُجّل الطبيب صاحب العيادة بمأمورية ضرائب القاهرة برقم تسجيل ضريبي {v}.",
        "رقم التسجيل الضريبي المصري: {v}، والملف بمأمورية الدقي.",
        "الرَّقْمُ الضَّرِيبِيُّ {v} صادر عن مصلحة الضرائب المصرية.",
        "Egyptian tax registration number {v} (sole trader, Giza).",
        "الرقـم الضريـبي: {v} – مصلحة الضرائب المصرية.",
    ),
    "tax_ma": (
        "التعريف الموحد للمقاولة (ICE) للمقاول الذاتي: {v}.",
        "يحمل التاجر بالدار البيضاء رقم التعريف الموحد للمقاولة {v} حسب السجل.",
        "المقاولة الفردية المسجلة تحت رقم ICE {v} بالمغرب لم تؤد الرسم.",
        "ICE : {v} (auto-entrepreneur, Fès).",
        "L'identifiant commun de l'entreprise {v} figure sur la facture.",
        "التعريف الموحـــد للمقاولة{v}مطابق.",
        "Moroccan ICE {v} is on the invoice of the sole trader.",
    ),
    "tax_tn": (
        "المعرف الجبائي للطبيبة بتونس {v} مصرّح به لدى القباضة المالية.",
        "يرجى ذكر المعرّف الجبائي {v} في كل مراسلة مع إدارة الجباية التونسية.",
        "المُعَرِّفُ الجِبَائِيّ: {v} والنشاط: محاماة.",
        "Matricule fiscal : {v} (profession libérale, Sfax).",
        "Le matricule fiscal {v} a été vérifié par la recette des finances.",
        "Tunisian tax id (matricule fiscal) {v} was entered by the clerk.",
    ),
    "tax_dz": (
        "رقم التعريف الجبائي للتاجر بالجزائر {v} مسجل لدى مديرية الضرائب.",
        "رقم التعريف الجبائي (NIF): {v}، ولاية وهران.",
        "يُذكر رَقْمُ التَّعْرِيفِ الجِبَائِيّ {v} في كل فاتورة يصدرها الطبيب.",
        "NIF : {v} (commerçant, Alger).",
        "Numéro d'identification fiscale {v}, wilaya d'Oran.",
        "Algerian NIF {v} of the pharmacist was confirmed.",
    ),
    "card": (
        "سُدّد رسم الخدمة ببطاقة الائتمان {v} وصدر الإيصال.",
        "اعترض المراجع على خصم 250 ريالًا من بطاقته {v} مرتين.",
        "رقم البِطَاقَة: {v} وتنتهي في 09/28.",
        "البطاقـــة البنكية {v} أُوقفت بطلب صاحبها.",
        "استُرد المبلغ إلى البطاقة{v}خلال أسبوع.",
        "Refund the fee to card {v}, please.",
        "Paiement par carte {v} refusé par la banque.",
    ),
    "sa_nid": (
        "رقم الهوية الوطنية لمقدّم الطلب {v} وتاريخ الميلاد 1410/02/11هـ.",
        "صاحب الإقامة رقم {v} يعمل بمهنة محاسب.",
        "السجل المدني: {v}، جهة الإصدار الرياض.",
        "رَقْمُ الهُوِيَّةِ الوطنيّة: {v}",
        "Saudi national ID {v} was entered twice by mistake.",
    ),
    "eg_nid": (
        "الرقم القومي للمواطن {v} كما هو مدوّن بالبطاقة.",
        "يُقيَّد صاحب الرقم القومي {v} بكشوف المعاشات في مصر.",
        "الرقـم القومـي: {v} محافظة الجيزة.",
        "الرَّقَمُ القَوْمِيّ {v} غير مطابق لاسم مقدّم الشكوى.",
        "Egyptian national ID number {v}, Alexandria.",
    ),
    "bh_cpr": (
        "الرقم الشخصي في البحرين {v} للمستفيد من الدعم السكني.",
        "بطاقة الهوية البحرينية، الرقم السكاني {v}.",
        "الرقم الشخصـــي (CPR): {v}",
        "Bahraini CPR number {v} is missing a photo.",
    ),
    "qa_qid": (
        "رقم البطاقة الشخصية القطرية {v} سارٍ حتى نهاية العام.",
        "الرقم الشخصي (QID): {v} – الدوحة.",
        "أُدخل رقم الإقامة القطرية {v} في نظام التراخيص.",
        "Qatar ID (QID) {v} expires in May.",
    ),
    "iq_card": (
        "رقم البطاقة الوطنية الموحدة العراقية {v} صادرة عن دائرة بغداد.",
        "البطاقة الوطنية: {v}، العراق – البصرة.",
        "قُدّمت نسخة من البطاقة الموحّدة رقم {v} إلى دائرة الأحوال المدنية العراقية.",
        "Iraqi national card number {v}, Basra.",
    ),
    "ma_cin": (
        "رقم البطاقة الوطنية للتعريف {v} لصاحب الطلب بالرباط.",
        "الحامل(ة) للبطاقة الوطنية (CIN) رقم {v} المغرب.",
        "CIN : {v}, né à Casablanca.",
        "La carte nationale d'identité n° {v} a été présentée au guichet à Rabat.",
        "Moroccan CIN {v} was checked at the counter.",
    ),
}

MAKERS: dict[str, tuple[Maker, int]] = {
    "iban": (iban, 44),
    "emirates_id": (emirates_id, 34),
    "kuwait_civil_id": (kuwait_civil_id, 32),
    "morocco_rib": (morocco_rib, 28),
    "card": (card, 32),
    "tax_eg": (tax_eg, 24),
    "tax_ma": (tax_ma, 26),
    "tax_tn": (tax_tn, 24),
    "tax_dz": (tax_dz, 24),
    "sa_nid": (sa_nid, 18),
    "eg_nid": (eg_nid, 18),
    "bh_cpr": (bh_cpr, 12),
    "qa_qid": (qa_qid, 12),
    "iq_card": (iq_card, 12),
    "ma_cin": (ma_cin, 14),
}


def identifiers(rng: random.Random) -> Iterator[tuple[str, list[str], str]]:
    """Every kind in every sentence, the dresses dealt out so that each kind meets nearly all of them."""
    for kind, (make, count) in MAKERS.items():
        sentences = SENTENCES[kind]
        for index in range(count):
            groups = make(rng)
            dresses = LETTER_DRESSES if re.search("[A-Z]", "".join(groups)) else DRESSES
            if kind == "ma_cin":  # written together, with a space, or in the other digits
                dresses = LETTER_DRESSES[:4]
            if kind == "tax_tn":
                dresses = (("slashes", "/".join), *LETTER_DRESSES[:10], ("slashes", "/".join))
            note, dress = dresses[index % len(dresses)]
            if kind == "iban" and index % 6 == 5:
                groups, note = [group.lower() for group in groups], f"hard: lower-case; {note}"
            sentence = sentences[index % len(sentences)]
            if re.search(r"[\u0621-\u064a]\{v\}|\{v\}[\u0621-\u064a]", sentence):
                note = f"hard: digits glued to Arabic letters; {note}"
            elif "ـ" in sentence or re.search("[\u064b-\u0652]", sentence):
                note = f"hard: tatweel or diacritics in the sentence; {note}"
            yield sentence.replace("{v}", dress(groups)), [kind], note


PHONE_SENTENCES = (
    "للاستفسار الاتصال بالموظف المسؤول على الرقم {v} أثناء الدوام الرسمي.",
    "رقم الجوال: {v}، ويُفضّل التواصل مساءً.",
    "هَاتِفُ المُرَاجِعِ {v} لا يجيب.",
    "الهاتـــف المحمـــول {v} مسجّل في الطلب رقم 2026/77.",
    "جوال{v}للتواصل العاجل.",
    "Call the applicant back on {v} before noon.",
    "Merci de rappeler l'intéressé au {v}.",
)
LOCAL_SENTENCES = (
    "هاتف المواطن {place}: {v}",
    "يمكن الاتصال بصاحبة الطلب {place} على رقم الجوال {v} بعد الظهر.",
    "رقم هاتف مقدّم الشكوى {place} هو {v} حسب الاستمارة.",
    "اتصل بالمراجع {place}، جوال {v}.",
)


def phones(rng: random.Random) -> Iterator[tuple[str, list[str], str]]:
    forms = ("+", "00", "local")
    for index in range(66):
        code, national, trunk, place = phone(rng)
        form = forms[index % 3]
        note, dress = DRESSES[(index // 3) % len(DRESSES)]
        if form == "local":
            groups = [trunk + national[0], *national[1:]]
            text = LOCAL_SENTENCES[(index // 3) % len(LOCAL_SENTENCES)].replace("{place}", place)
            note = f"hard: local form, the country only in the words; {note}"
        else:
            groups = [("+" if form == "+" else "00") + code, *national]
            text = PHONE_SENTENCES[(index // 3) % len(PHONE_SENTENCES)]
            note = f"{note}; prefix {form}"
        if re.search(r"[\u0621-\u064a]\{v\}|\{v\}[\u0621-\u064a]", text):
            note = f"hard: digits glued to Arabic letters; {note}"
        yield text.replace("{v}", dress(groups)), ["phone"], note


EMAIL_SENTENCES = (
    "يُرسل الرد إلى البريد الإلكتروني {v} خلال ثلاثة أيام.",
    "البريد:{v}، والجهة: إدارة التراخيص.",
    "راسلنا مقدّم الطلب من العنوان {v}.",
    "الإيميل {v} غير صحيح بحسب النظام؟",
    "عنوان البريد الإلكترونــــي: <{v}>",
    "Please copy {v} on every answer.",
    "Contact : {v} (service des ressources humaines).",
)
EMAIL_PARTS = (
    "khalid.alotaibi",
    "f.mansour",
    "user_2031",
    "n-haddad",
    "Omar.Saleh",
    "l.benali+dossier",
    "s.alzahra",
)
EMAIL_HOSTS = ("example.com", "mail.example.org", "moh.example.net", "EXAMPLE.COM", "hr-dept.example.org")


def emails(rng: random.Random) -> Iterator[tuple[str, list[str], str]]:
    dresses: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("plain", str),
        ("hard: isolated left to right", lambda v: LRI + v + PDI),
        ("hard: left-to-right mark before and after", lambda v: LRM + v + LRM),
        ("hard: right-to-left mark before the at sign", lambda v: v.replace("@", RLM + "@")),
        ("hard: full stop of the sentence right after", lambda v: v + "."),
        ("hard: full-width at sign", lambda v: v.replace("@", chr(0xFF20))),
        ("hard: glued to an Arabic conjunction", lambda v: "و" + v),
        ("hard: mailto link", lambda v: f"mailto:{v}"),
        ("hard: Arabic comma right after", lambda v: v + "،"),
    )
    for index in range(36):
        value = f"{rng.choice(EMAIL_PARTS)}@{rng.choice(EMAIL_HOSTS)}"
        note, dress = dresses[index % len(dresses)]
        yield EMAIL_SENTENCES[index % len(EMAIL_SENTENCES)].replace("{v}", dress(value)), ["email"], note


MEN = (("خالد", "يوسف", "عبد الرحمن", "سعيد", "حمزة"), ("بن سالم", "أحمد", "محمود", "بن عبد الله", "حسن"))
WOMEN = (("فاطمة", "مريم", "نورة", "ليلى", "هند"), ("بنت علي", "أحمد", "محمود", "بنت عبد الله", "حسن"))
FAMILY = ("العتيبي", "المنصوري", "بن علي", "الحداد", "الكواري", "الزهراني", "الشامسي", "بوعزيز")
NAME_SENTENCES = (
    "تقدّم المواطن {v} بطلب نقل إلى فرع الوزارة في المنطقة الشرقية.",
    "وافق المدير على إجازة السيد {v} لمدة عشرة أيام.",
    "الاسم: {v}، المهنة: معلّم.",
    "راجعت السيدة {v} مكتب الشكاوى أمس.",
    "الدكتور {v} رئيسًا للجنة الفنية.",
    "السَّيِّد {v} مُكَلَّفٌ بأعمال القسم.",
)


def person(rng: random.Random, gender: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
    first, father = gender
    return f"{rng.choice(first)} {rng.choice(father)} {rng.choice(FAMILY)}"


def names(rng: random.Random) -> Iterator[tuple[str, list[str], str]]:
    for index in range(24):
        sentence = NAME_SENTENCES[index % len(NAME_SENTENCES)]
        value, note = person(rng, WOMEN if "السيدة" in sentence else MEN), "name after a title or a label"
        if index % 6 == 5:
            value, note = (
                value.replace("ح", "ح" + TATWEEL, 1),
                "hard: diacritics in the title, tatweel in the name",
            )
        yield sentence.replace("{v}", value), ["name"], note


def mixed(rng: random.Random) -> Iterator[tuple[str, list[str], str]]:
    """Rows with more than one kind, as forms and letters have them."""
    for index in range(24):
        code, national, _, _ = phone(rng)
        call = f"+{code} {' '.join(national)}"
        mail = f"{rng.choice(EMAIL_PARTS)}@{rng.choice(EMAIL_HOSTS)}"
        citizen = person(rng, MEN)
        account = " ".join(iban(rng))
        emirates = "-".join(emirates_id(rng))
        civil = "".join(kuwait_civil_id(rng)).translate(ARABIC)
        rows = (
            (
                f"المواطن {citizen}، رقم الهوية الإماراتية {emirates}، جوال {call}.",
                ["name", "emirates_id", "phone"],
            ),
            (f"يُحوّل المبلغ إلى الآيبان {account} ويُرسل الإشعار إلى {mail}.", ["iban", "email"]),
            (
                f"الرقم المدني {civil} والهاتف {LRI}{call}{PDI} والبريد {mail}",
                ["kuwait_civil_id", "phone", "email"],
            ),
            (
                f"Le RIB {' '.join(morocco_rib(rng))} et l'adresse {mail} sont à corriger.",
                ["morocco_rib", "email"],
            ),
            (f"سُدّد بالبطاقة {'-'.join(card(rng)).translate(ARABIC)} من هاتف {call}", ["card", "phone"]),
            (f"هوية{emirates}آيبان{account.replace(' ', '').lower()}", ["emirates_id", "iban"]),
        )
        text, kinds = rows[index % len(rows)]
        yield text, kinds, "hard: several kinds in one row"


# --- Negatives --------------------------------------------------------------------------------------------------


def wrong_last(groups: list[str]) -> list[str]:
    """The last digit moved on by one: the structure holds, the check digit does not."""
    last = groups[-1]
    return [*groups[:-1], last[:-1] + str((int(last[-1]) + 1) % 10)]


def wrong_checksums(rng: random.Random) -> Iterator[tuple[str, str]]:
    sentences = {
        "emirates_id": "رقم نموذج تجريبي للهوية {v} غير صالح لأنه مثال في الدليل.",
        "kuwait_civil_id": "المثال الوارد في الدليل {v} رقم مدني غير صحيح.",
        "morocco_rib": "Exemple de RIB erroné dans le guide : {v}",
        "iban": "الآيبان {v} رفضه النظام لأن رقم التحقق خاطئ.",
        "tax_ma": "رقم ICE {v} خاطئ ولا وجود له.",
        "card": "رقم البطاقة التجريبي {v} لا يجتاز التحقق.",
    }
    for kind, sentence in sentences.items():
        for index in range(5):
            note, dress = DRESSES[(0, 1, 3, 8, 12)[index]]
            while passes_a_checksum("".join(groups := wrong_last(MAKERS[kind][0](rng)))):
                pass
            value = dress(groups)
            yield sentence.replace("{v}", value), f"hard: {kind} with a wrong check digit; {note}"


def passes_a_checksum(run: str) -> bool:
    """Whether a run of digits would be a valid number of a kind with a checksum, or holds an Egyptian birth date."""
    if not run.isdigit():
        return False
    return (
        (12 <= len(run) <= 19 and luhn_digit(run[:-1]) == run[-1])
        or (len(run) == 12 and run[0] in "23" and str(kuwait_digit(run[:-1])) == run[-1])
        or (len(run) in (15, 24) and int(run) % 97 == 0)
        or (len(run) == 14 and run[0] in "23" and run[3:5] <= "12" and run[5:7] <= "31")
    )


def unlucky(rng: random.Random, count: int, start: str = "") -> str:
    """`count` random digits that pass no checksum, so that the label "negative" is certain."""
    while passes_a_checksum(value := start + digits(rng, count - len(start))):
        pass
    return value


def numbers(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Long numbers that name things, not people."""
    things = (
        ("رقم الفاتورة {v} وتاريخها 12/04/2026.", (8, 10, 13, 16, 18)),
        ("رقم المعاملة {v} في نظام المراسلات.", (9, 10, 11, 12, 14)),
        ("المنافسة رقم {v} الخاصة بتوريد الأجهزة.", (10, 12, 15)),
        ("رقم الملف: {v} – الأرشيف المركزي.", (7, 9, 11, 20)),
        ("أمر الشراء {v} معتمد.", (10, 12, 14)),
        ("الرقم التسلسلي للطابعة {v} والضمان سنتان.", (8, 10, 12, 15)),
        ("Purchase order {v} was closed.", (10, 12, 16)),
        ("Facture n° {v} du 3 mars 2026.", (10, 14)),
        ("رمز الصنف في المستودع {v}.", (8, 13)),
        ("سند القبض رقم {v} مفقود.", (9, 11)),
    )
    for index, (sentence, lengths) in enumerate(things):
        for length in lengths:
            value = unlucky(rng, length, rng.choice(("1", "2", "3", "9")))
            note = f"hard: {length} digits of an invoice, file or serial"
            if (index + length) % 3 == 0:
                value, note = value.translate(ARABIC), note + ", Arabic-Indic"
            elif (index + length) % 3 == 1 and length >= 12:
                value, note = "-".join(fours(value)), note + ", in fours"
            yield sentence.replace("{v}", value), note


def phone_like(rng: random.Random) -> Iterator[tuple[str, str]]:
    sentences = (
        "رقم القطعة 0501-{v} في دليل قطع الغيار.",
        "عداد الكهرباء رقم 05{v} في المبنى الثاني.",
        "Serial 966-{v} is printed on the case of the pump.",
        "رقم التشغيلة 00966{v} على عبوة اللقاح.",
        "اللوحة الكهربائية طراز 962-{v}.",
        "رقم الشحنة في بوليصة النقل 0020{v}.",
        "Référence de la pièce : 06-{v}-B.",
    )
    for sentence in sentences:
        for length in (5, 6):
            yield (
                sentence.replace("{v}", digits(rng, length)),
                "hard: a serial that starts like a phone number",
            )


FIXED_NEGATIVES: tuple[tuple[str, str], ...] = (
    ("كم يساوي 1234 + 567؟", "hard: arithmetic question"),
    ("كم يساوي ١٢٣٤ + ٥٦٧؟", "hard: arithmetic question, Arabic-Indic digits"),
    ("احسب 98765432 - 12345678 ثم اكتب الناتج.", "hard: arithmetic with eight digits"),
    ("ما ناتج 784 × 1990؟", "hard: arithmetic with the numbers of an Emirates ID's start"),
    ("كم يساوي 966 + 512345؟", "hard: arithmetic that looks like a phone number"),
    ("ما حاصل ضرب 4111 في 1111؟", "hard: arithmetic with the start of a card"),
    ("احسب ٩٦٦ - ٥٠ - ١٢٣ - ٤٥٦", "hard: subtraction that looks like a phone number"),
    ("10 + 20 + 30 + 40 + 50 + 60 = ?", "hard: sum of many terms"),
    ("What is 2026 - 1447?", "arithmetic question"),
    ("إذا كان لدى محاسب 1250 ريالًا وصرف 375 ريالًا فكم بقي؟", "word problem"),
    ("Calculez 123456 + 654321.", "arithmetic question"),
    ("كم يساوي 29 01 01 + 01 02 03؟", "hard: arithmetic on groups of two"),
    ("صدر القرار بتاريخ 1447/06/10هـ الموافق 2025/12/01م.", "hard: Hijri and Gregorian dates"),
    ("اجتمعت اللجنة في ١٠/٠٦/١٤٤٧ هـ.", "hard: Hijri date, Arabic-Indic digits"),
    ("من 2026-01-01 إلى 2026-12-31.", "hard: range of dates"),
    ("الفترة 01012026–31122026 كما في التقويم المالي.", "hard: dates without separators"),
    ("طابع الوقت 20261201103046 في السجل.", "hard: fourteen digits that are a time"),
    ("وقت التحديث 2026-12-01T10:30:45Z.", "hard: ISO time"),
    ("الطابع الزمني 1764585045 بالثواني.", "hard: ten digits that start with 1"),
    ("الطابع الزمني 1764585045124 بالمللي ثانية.", "hard: thirteen digits"),
    ("السنة المالية 1446/1447هـ.", "date"),
    ("Réunion du 15.03.2026 à 10 h 30.", "date"),
    ("ميزانية البرنامج 1,250,000.50 ريال.", "amount"),
    ("بلغت الإيرادات ١٬٢٥٠٬٠٠٠٫٥٠ درهمًا.", "hard: amount with Arabic separators"),
    ("القيمة الإجمالية 12 345 678,90 دينارًا تونسيًا.", "hard: amount with spaces"),
    ("مبلغ 2.000.000.000 دينار عراقي.", "hard: amount with points"),
    ("الاعتماد المالي 20000000000 ليرة لبنانية.", "hard: eleven digits that are an amount"),
    ("Le budget s'élève à 98 765 432 dirhams.", "hard: amount with spaces"),
    ("USD 1,000,000,000 over five years.", "amount"),
    ("نسبة الإنجاز 87.35% مقابل 79.10% في العام السابق.", "percentages"),
    ("القانون رقم 151 لسنة 2020 بإصدار قانون حماية البيانات الشخصية.", "number of a law"),
    ("المرسوم الملكي رقم م/19 بتاريخ 9/2/1443هـ.", "number of a law"),
    ("القانون رقم 09.08 والمرسوم رقم 2-24-921.", "hard: number of a decree"),
    ("القانون الأساسي عدد 63 لسنة 2004 مؤرخ في 27 جويلية 2004.", "number of a law"),
    ("Loi n° 18-07 modifiée par la loi n° 25-11 du 24 juillet 2025.", "number of a law"),
    ("قرار مجلس الوزراء رقم (292) وتاريخ 27/04/1441هـ.", "number of a law"),
    ("القرار الوزاري 34/2024 والتعميم 6/2024.", "number of a law"),
    ("المادة 29 والمواد 2-7 من لائحة النقل.", "articles"),
    ("المواصفة القياسية ISO/IEC 27001:2022 والمواصفة 42001.", "standard"),
    ("RFC 6962 and RFC 8785 are cited in the annex.", "standard"),
    ("ISBN 978-603-0000-00-3 في فهرس المكتبة.", "hard: ISBN"),
    ("الباركود 6281234567890 على العبوة.", "hard: thirteen digits of a bar code"),
    ("الإحداثيات 24.7136, 46.6753 لموقع المشروع.", "coordinates"),
    ("الإحداثيات ٢٤٫٧١٣٦ شمالًا و٤٦٫٦٧٥٣ شرقًا.", "hard: coordinates, Arabic-Indic digits"),
    ("العنوان 10.20.30.40 هو عنوان الخادم الداخلي.", "hard: address of a machine"),
    ("الإصدار 2026.10.1 من النظام.", "version"),
    ("النسخة v1.16.0-rc2 قيد الاختبار.", "version"),
    ("الرمز البريدي 11564 الرياض، ص.ب. 3847.", "hard: post box of an office"),
    ("المعرف 3f2b8c1e-7a54-4d11-9c0e-52aa01b7f9d4 للسجل.", "hard: UUID"),
    ("البصمة 9b74c9897bac770ffc029102a200c5de للملف.", "hard: digest"),
    ("commit 1bd439d يصلح خطأ الترقيم.", "digest"),
    ("البوابة https://www.example.org/services/2026/07 متاحة.", "hard: web address without e-mail"),
    ("تابعوا حساب الوزارة @ministry_example على المنصة.", "hard: at sign without an e-mail address"),
    ("سعر الوحدة @ 3.50 ريال للكيلو.", "hard: at sign of a price"),
    ("اكتب البريد على الصورة اسم@نطاق في الحقل.", "hard: placeholder for an e-mail address"),
    ("The decorator @property comes before the method.", "at sign in code"),
    ("عدد السكان 34110821 نسمة حسب التعداد.", "hard: eight digits of a census"),
    ("استهلاك المياه 45678912 مترًا مكعبًا.", "hard: eight digits that are a quantity"),
    ("المسافة 384400 كيلومتر.", "quantity"),
    ("الطول 12 34 56 78 مليمترًا على أربع مراحل.", "hard: groups of two digits"),
    ("قائمة المقاسات: 36 38 40 42 44 46 48.", "hard: list of sizes"),
    ("جدول الضرب: 2 4 6 8 10 12 14 16 18 20.", "hard: list of numbers"),
    ("الأرقام العشوائية: ٣ ١٤ ١٥ ٩٢ ٦٥ ٣٥.", "hard: list of numbers, Arabic-Indic"),
    ("3.14159265358979 تقريب لثابت الدائرة.", "hard: long decimal"),
    ("2.718281828459045", "hard: long decimal alone"),
    ("رقم الطوارئ 911 ورقم الإسعاف 997.", "emergency numbers of nobody"),
    ("الحلقة 12 من السلسلة 3.", "plain"),
    ("الدور 7، المكتب 712.", "room"),
    ("الرحلة SV1020 تقلع الساعة 14:35.", "flight"),
    ("الطريق السريع رقم 40 مغلق.", "road"),
    ("لوحة المركبة الحكومية أ ب ج 1234.", "hard: plate of an official vehicle"),
    ("نموذج رقم T-2026-000123 معتمد.", "hard: form number"),
    ("المشروع AB123456 في خطة 2030.", "hard: project number shaped like a Moroccan card"),
    ("الجهاز K100200 خارج الخدمة.", "hard: device shaped like a Moroccan card"),
    ("المعادلة: س = 1234567/8 + 000", "hard: formula shaped like a Tunisian tax number"),
    ("القسمة 1234567 / 8 / 2 / 4 / 001", "hard: division shaped like a Tunisian tax number"),
    ("حساب المصروفات العامة في الدليل المحاسبي 5-10-2030.", "hard: chart of accounts"),
    ("رقم البند 123-456-789 في جدول الكميات.", "hard: item in the shape of an Egyptian tax number"),
    ("الخلية B12 والخلية AA345.", "cells"),
    ("SA2030 و AE2071 خطتان وطنيتان.", "hard: country code and digits, not an account"),
    ("SAR 0380000000 budget line", "hard: currency and ten digits"),
    ("وزارة الصحة ومستشفى الملك فيصل التخصصي.", "hard: a person's name inside an institution's"),
    ("جامعة الأمير سطام بن عبدالعزيز أعلنت القبول.", "hard: a person's name inside an institution's"),
    ("شارع الملك فهد تقاطع طريق الأمير سلطان.", "hard: street named after a person"),
    ("مدرسة عمر بن الخطاب الابتدائية.", "hard: school named after a person"),
    ("السيد المدير العام المحترم، السلام عليكم.", "hard: title without a name"),
    ("السادة أعضاء اللجنة الكرام.", "hard: title without a name"),
    ("المواطن مسؤول عن تحديث بياناته لدى الجهة المختصة.", "hard: the word citizen without a name"),
    ("الدكتور المناوب يوقّع النموذج.", "hard: title without a name"),
    ("الاسم والعنوان ورقم الهاتف حقول إلزامية.", "hard: labels of a form without values"),
    ("أدخل رقم الهوية المكوّن من 10 أرقام في الخانة.", "hard: instruction about an identifier"),
    ("رقم الآيبان يتكوّن من 24 خانة ويبدأ بالحرفين SA.", "hard: instruction about an account"),
    ("IBAN: ____________________", "hard: empty field"),
    ("الهاتف: ........................", "hard: empty field"),
    ("رقم الهوية: XXXXXXXXXX (محجوب)", "hard: masked value"),
    ("بطاقة تنتهي بالأرقام **** **** **** 1234", "hard: masked card"),
    ("تُعدّ هذه السياسة نافذة من تاريخ نشرها.", "plain"),
    ("على الجهات الحكومية تصنيف بياناتها قبل مشاركتها.", "plain"),
    ("هل يجوز نقل البيانات العامة إلى خارج البلد؟", "plain"),
    ("The committee approved the plan without changes.", "plain"),
    ("Le ministère publie le rapport annuel en juin.", "plain"),
    ("", "empty row"),
    ("؟؟؟", "punctuation only"),
    ("1", "one digit"),
    ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠", "hard: zeros only"),
    ("0000 0000 0000 0000", "hard: zeros in fours: they pass Luhn, yet are no card"),
)


def negatives(rng: random.Random) -> Iterator[tuple[str, list[str], str]]:
    for source in (wrong_checksums(rng), numbers(rng), phone_like(rng), iter(FIXED_NEGATIVES)):
        for text, note in source:
            yield text, [], note


def rows() -> list[dict[str, object]]:
    """All rows, in the order of the file."""
    rng = random.Random(SEED)
    parts = (identifiers, phones, emails, names, mixed, negatives)
    return [{"text": t, "kinds": k, "note": n} for part in parts for t, k, n in part(rng)]


def line(row: dict[str, object]) -> str:
    """One JSON line; characters that cannot be seen are escaped, so that a reader of the file sees them."""
    invisible = f"[{LRM}{RLM}{LRE}-\u202e{LRI}-{PDI}{NBSP}{NARROW}]"
    return re.sub(invisible, lambda m: f"\\u{ord(m[0]):04x}", json.dumps(row, ensure_ascii=False))


def file_text() -> str:
    return "".join(line(row) + "\n" for row in rows())


if __name__ == "__main__":
    TARGET.write_text(file_text(), encoding="utf-8")
