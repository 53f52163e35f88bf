"""The screen for personal data: what it finds, what it lets pass, and that it never repeats a match.

All numbers here are made up; check digits are worked out in the test where no published example is used.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import time
import uuid
from datetime import date

import phonenumbers
import pytest
from phonenumbers import PhoneNumberFormat, PhoneNumberType
from schwifty.registry import get_iban_spec
from stdnum import iban as stdnum_iban
from stdnum.iso7064 import mod_97_10

from grpo_lib import pii, tasks
from grpo_lib.arabic import number_words, to_arabic_digits, to_extended_digits
from grpo_lib.errors import WrongInput
from grpo_lib.pii_kinds import KINDS, find
from grpo_lib.pii_phones import REGIONS
from grpo_lib.pii_rows import read_rows

EMIRATES = "784199012345676"
KUWAIT = "280010100004"  # example of idnumbers
RIB = "011519000001205000534921"
ICE = "001561191000066"  # example of python-stdnum
CARD = "4111111111111111"
BBAN = {
    "SA": "80000000608010167519", "AE": "0331234567890123456", "QA": "DOHB00001234567890ABCDEFG",
    "BH": "BMAG00001299123456", "KW": "CBKU0000000000001234560101", "OM": "0180000001299123456",
    "JO": "CBJO0010000000000131000302", "LB": "099900000001001901229114", "EG": "0019000500000000263180002",
    "IQ": "NBIQ850123456789012", "TN": "10006035183598478831", "MA": RIB, "DZ": "0002100001113000000570",
}  # fmt: skip
IBANS = {
    country: country + mod_97_10.calc_check_digits(bban + country) + bban for country, bban in BBAN.items()
}
CHECKED = {
    "emirates_id": EMIRATES,
    "kuwait_civil_id": KUWAIT,
    "morocco_rib": RIB,
    "tax_ma": ICE,
    "card": CARD,
}


def kinds(text):
    return {kind for kind, _, _ in find(text)}


def grouped(number, shape, sign):
    parts, place = [], 0
    for size in shape:
        parts.append(number[place : place + size])
        place += size
    return sign.join(part for part in parts if part)


# ------------------------------------------------------------------------------------------------ no false alarm


def test_a_card_with_its_date_and_code_is_no_list():
    assert kinds("4111 1111 1111 1111 12/26 123") == {"card"}


def test_a_list_of_small_numbers_is_no_card():
    draw = random.Random(2)
    rows = [" ".join(str(draw.randint(1000, 9999)) for _ in range(12)) for _ in range(1000)]
    assert [row for row in rows if find(row)] == []


def test_the_suites_own_texts_hold_nothing():
    questions = [question for pair in tasks.ALL_PAIRS for question in tasks.questions(pair)]
    rows = [f"{question.prompt} {to_arabic_digits(question.result)}" for question in questions]
    draw = random.Random(0)
    for _ in range(3000):
        a, b = draw.randint(0, 9999), draw.randint(0, 9999)
        rows.append(f"ما ناتج جمع {number_words(a)} مع {number_words(b)}؟ {a} + {b} = {a + b}")
        rows.append(
            f"{to_arabic_digits(a)} - {to_extended_digits(b)} = {to_arabic_digits(a - b)}، {a} × {b} = {a * b}"
        )
    assert [row for row in rows if find(row)] == []


def _numbers_of_things():
    draw = random.Random(1)
    moment = "20{:02d}{:02d}{:02d}{:02d}{:02d}{:02d}"
    for _ in range(300):
        yield f"loss {draw.random():.16f} at step {draw.randint(0, 99999)}"
        yield str(uuid.UUID(int=draw.getrandbits(128)))
        yield f"{draw.getrandbits(256):064x}"
        yield ".".join(str(draw.randint(0, 255)) for _ in range(4))
        day = (draw.randint(10, 26), draw.randint(1, 12), draw.randint(1, 28))
        clock = (draw.randint(0, 23), draw.randint(0, 59), draw.randint(0, 59))
        yield moment.format(*day, *clock)
        yield f"{day[2]:02d}-{day[1]:02d}-20{day[0]} {clock[0]:02d}:{clock[1]:02d}"
        yield f"طابع {draw.randint(1_600_000_000, 1_800_000_000)} ثانية"
        yield f"رقم الفاتورة 05{draw.randint(0, 99999999):08d}"


def test_measurements_times_and_names_of_things_hold_nothing():
    assert [row for row in _numbers_of_things() if find(row)] == []


# ------------------------------------------------------------------------------------------------ check digits


@pytest.mark.parametrize(("kind", "number"), CHECKED.items())
def test_a_wrong_check_digit_is_no_finding(kind, number):
    assert kind in kinds(number)
    wrong = [number[:-1] + digit for digit in "0123456789" if digit != number[-1]]
    assert [one for one in wrong if kind in kinds(one)] == []


@pytest.mark.parametrize(("country", "number"), IBANS.items())
def test_ibans_of_every_state_and_none_with_two_characters_changed_round(country, number):
    assert len(number) == get_iban_spec(country).iban_length
    for written in (
        number,
        number.lower(),
        grouped(number, [4] * 8, " "),
        grouped(number, [4] * 8, "\u00a0-"),
    ):
        assert kinds(f"حسابي {to_arabic_digits(written)} Bank") == {"iban"}
    place = next(i for i in range(5, len(number) - 1) if number[i] != number[i + 1])
    turned = number[:place] + number[place + 1] + number[place] + number[place + 2 :]
    assert "iban" not in kinds(turned)


def test_why_schwifty_checks_ibans():
    assert not stdnum_iban.is_valid(IBANS["MA"])
    assert not stdnum_iban.is_valid(IBANS["DZ"])


SHAPES = {
    "emirates_id": [(15,), (3, 4, 7, 1)],
    "kuwait_civil_id": [(12,), (4, 4, 4), (1, 6, 5)],
    "morocco_rib": [(24,), (3, 3, 16, 2), (4,) * 6],
    "tax_ma": [(15,), (9, 4, 2)],
    "card": [(16,), (4, 4, 4, 4)],
}
FRAMES = (
    "{}",
    "رقمي {} والسلام",
    "و{}",
    "({}).",
    "{}، ثم",
    "a,{},b",
    "Number {}, thanks",
    "«{}»",
    "ID{} ok",
    "050 123 4567 {} 12/26 123",
)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("sign", [" ", "-", "\u00a0", "\u2011", " - ", ".", "\u200f-\u200f"])
@pytest.mark.parametrize("script", [str, to_arabic_digits, to_extended_digits, "\u200d".join])
def test_written_forms_of_numbers_with_a_check_digit(kind, sign, script):
    for shape in SHAPES[kind]:
        written = script(grouped(CHECKED[kind], shape, sign))
        missed = [frame for frame in FRAMES if kind not in kinds(frame.format(written))]
        assert not missed, f"{shape}: {missed}"


def test_a_finding_says_where_in_the_original_it_stands():
    written = "\u2067" + "ـ".join(to_arabic_digits(grouped(EMIRATES, (3, 4, 7, 1), "-"))) + "\u2069"
    text = f"هُوِيَّتي {written} انتهى"
    (found,) = find(text)
    assert found[0] == "emirates_id"
    assert text[found[1] : found[2]] == written[1:-1]


def test_the_account_number_inside_an_iban_is_not_counted_again():
    assert kinds(IBANS["MA"]) == {"iban"}
    assert kinds(grouped(IBANS["MA"], [4] * 7, " ") + " 2024") == {"iban"}
    assert kinds(RIB) == {"morocco_rib"}


def test_a_card_number_inside_an_account_number_is_not_counted():
    body = f"0115{CARD}07"
    rib = body + f"{97 - int(body) * 100 % 97:02d}"
    written = grouped(rib, (4,) * 6, " ")
    assert kinds(written[5:24]) == {"card"}
    assert kinds(written) == {"morocco_rib"}


def test_no_check_digit_is_claimed_where_no_library_verifies_one():
    strong = {name for name, kind in KINDS.items() if kind.strength == "checksum"}
    assert strong == {"iban", "card", "emirates_id", "kuwait_civil_id", "morocco_rib", "tax_ma"}
    assert "de facto" in KINDS["emirates_id"].validator
    assert KINDS["name"].strength == "context"


# ------------------------------------------------------------------------------------------------ structure and words


@pytest.mark.parametrize(
    ("kind", "number", "word"),
    [
        ("sa_nid", "1012345678", "رقم الهوية"),
        ("sa_nid", "2212345678", "الإقامة"),
        ("qa_qid", "28563412345", "الرقم الشخصي"),
        ("bh_cpr", "880412345", "CPR"),
        ("iq_card", "199812345678", "البطاقة الوطنية في العراق"),
        ("tax_eg", "331105268", "الرقم الضريبي"),
        ("tax_dz", "416001000000007", "NIF, wilaya"),
        ("ma_cin", "BE123456", "CIN"),
        ("tax_tn", "1282182W", "matricule fiscal"),
    ],
)
def test_structure_alone_is_not_enough(kind, number, word):
    assert kind in kinds(f"{word}: {number}")
    assert kind in kinds(f"{word}: {to_arabic_digits(number)}")
    assert kind not in kinds(f"كمية {number} من الصنف")


def test_an_egyptian_number_needs_a_date_of_somebody_living():
    assert kinds("29001010100017") == {"eg_nid"}
    assert "eg_nid" not in kinds("29013010100017")  # month 13
    assert "eg_nid" not in kinds("39901010100017")  # 2099
    assert "eg_nid" not in kinds("29001019900017")  # no such governorate


@pytest.mark.parametrize("region", REGIONS)
def test_phones_of_every_state(region):
    number = phonenumbers.example_number_for_type(region, PhoneNumberType.MOBILE)
    full = phonenumbers.format_number(number, PhoneNumberFormat.E164)
    national = phonenumbers.format_number(number, PhoneNumberFormat.NATIONAL)
    written = [
        full,
        "00" + full[1:],
        full[1:] + "+",
        phonenumbers.format_number(number, PhoneNumberFormat.INTERNATIONAL),
    ]
    written += [
        f"هاتف {national}",
        f"جوالي: {to_arabic_digits(national)}",
        f"tel. {national.replace(' ', '')}",
    ]
    if national.startswith("0") and region != "LB":  # a mobile number there has eight digits, as a date has
        written += [national, f"أرسلوه إلى {to_arabic_digits(national.replace(' ', ''))} غدًا"]
    assert [one for one in written if "phone" not in kinds(one)] == []


@pytest.mark.parametrize(
    "text", ["اتصل على 8001234567", "رقم الطلب 0512345678", "order 0512345678", "05-06-2024 10"]
)
def test_what_is_nobodys_telephone(text):
    assert "phone" not in kinds(text)


@pytest.mark.parametrize(
    "text", ["أرسل إلى ali.test+x@mail.example.com.", "＠: ali＠example.org", "<a_b@sub.example.sa>"]
)
def test_addresses(text):
    assert kinds(text) == {"email"}


@pytest.mark.parametrize(
    "text", ["قابلت السيد خالد منصور أمس", "اسمها سلمى حداد", "Name: Layla Haddad", "الدكتورة هُدى سالم"]
)
def test_names_after_a_title(text):
    assert kinds(text) == {"name"}


@pytest.mark.parametrize("text", ["قال السيد الوزير إن", "ما اسمه؟", "خالد منصور"])
def test_names_are_weak(text):
    assert kinds(text) == set()


@pytest.mark.parametrize(
    "row", ["a.b" * 100_000 + "@", "7" * 300_000, "SA03 " * 40_000, "12-" * 60_000, "السيد " * 50_000]
)
def test_a_long_row_takes_no_more_than_its_length(row):
    start = time.process_time()
    find(row)
    assert time.process_time() - start < 20


def test_two_hundred_thousand_short_rows_take_at_most_a_minute():
    task = tasks.ArithmeticTask(0)
    rows = [task.train_example(index).prompt for index in range(4000)]
    start = time.process_time()
    pii.screen(rows, len(rows), progress=False)
    assert (time.process_time() - start) * 50 < 60


# ------------------------------------------------------------------------------------------------ the screen

ROWS = [f"بريدي a{i}@example.com و b{i}@example.com" if i % 4 == 0 else f"سطر {i}" for i in range(40)]


def test_counts_by_kind():
    result = pii.screen(ROWS, len(ROWS), progress=False)
    assert (result["rows"], result["screened"], result["sample"]) == (40, 40, "whole")
    (found,) = result["findings"]
    assert (found["kind"], found["rows"], found["matches"], found["strength"]) == (
        "email",
        10,
        20,
        "structure",
    )
    assert set(result["kinds_looked_for"]) == set(KINDS)
    assert set(result["versions"]) == {"python-stdnum", "idnumbers", "phonenumbers", "schwifty"}
    assert "names_weak" in result["not_seen"]


@pytest.mark.parametrize("total", [40, None])
def test_a_sample_is_chosen_by_its_seed(total):
    one, same, other = (pii.screen(iter(ROWS), total, 8, seed, progress=False) for seed in (1, 1, 2))
    assert (one["rows"], one["screened"], one["sample"]) == (40, 8, "8")
    assert one["findings"] == same["findings"]
    assert one["data_sha256"] == other["data_sha256"]
    seen = {json.dumps(pii.screen(ROWS, total, 8, seed, progress=False)["findings"]) for seed in range(20)}
    assert len(seen) > 2


def test_a_sample_reaches_every_row():
    hit = [bool(pii.screen(ROWS[:5], 5, 1, seed, progress=False)["findings"]) for seed in range(400)]
    assert 100 < sum(hit) < 220  # two rows of five hold something


def test_a_sample_as_large_as_the_data_is_the_whole():
    assert pii.screen(ROWS, None, 40, progress=False)["sample"] == "whole"


def test_broken_text_is_screened():
    assert pii.screen(["\ud800 a@example.com"], 1, progress=False)["findings"][0]["kind"] == "email"


def test_imports_without_torch():
    code = "import sys, grpo_lib.pii; print([n for n in ('torch', 'transformers', 'trl', 'datasets') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------ never the match

SECRETS = {
    "email": "zubayda.qx@wadi-qurtal.org",
    "phone": "+966 58 693 7142",
    "iban": IBANS["DZ"],
    "card": "4539578763621486",
    "emirates_id": EMIRATES,
    "eg_nid": "29307150187936",
    "name": "السيدة زبيدة قشاط",
}


def _leaks(said):
    """Stretches of five characters of a planted value that were said, in whatever script of digits."""
    folded = to_extended_digits(said)
    pieces = {
        kind: [value[i : i + 5] for i in range(len(value) - 4) if value[i : i + 5] not in ("السيد", "لسيدة")]
        for kind, value in SECRETS.items()
    }
    return {kind for kind, parts in pieces.items() for part in parts if to_extended_digits(part) in folded}


def _write(folder, suffix):
    path = folder / f"data{suffix}"
    if suffix == ".txt":
        path.write_text("\n".join(SECRETS.values()), encoding="utf-8")
    elif suffix == ".csv":
        path.write_text("\n".join(f'"{value}",x' for value in SECRETS.values()), encoding="utf-8")
    else:
        path.write_text(
            "\n".join(json.dumps({"t": [{"x": value}]}) for value in SECRETS.values()), encoding="utf-8"
        )
    return path


def test_the_test_for_leaks_sees_one():
    assert _leaks("… 8693-714 … 3957876 …") == {"card"}
    assert _leaks(to_arabic_digits("53957")) == {"card"}


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl"])
def test_no_part_of_a_match_is_printed_logged_or_kept(tmp_path, capsys, caplog, suffix):
    caplog.set_level(logging.DEBUG)
    path = _write(tmp_path, suffix)
    assert pii.main(["screen", str(path)]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert {one["kind"] for one in result["findings"]} >= set(SECRETS)
    assert _leaks(said.out.replace(result["data_sha256"], "") + said.err + caplog.text) == set()
    assert _leaks(json.dumps(pii.screen(read_rows(path), None, progress=True), ensure_ascii=False)) == set()
    assert "zubayda" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("a.jsonl", '{"t": "4539578763621486"', None),
        ("a.jsonl", '{"4539578763621486": 1}', "text"),
        ("a.csv", 'السيدة زبيدة قشاط,x\n"4539578763621486" y,z', None),
        ("a.csv", 'السيدة زبيدة قشاط,x\n"4539578763621486', None),
        ("a.csv", "zubayda.qx@wadi-qurtal.org,29307150187936\n", "text"),
        ("a.txt", "4539578763621486\0", None),
        ("a.txt", "4539578763621486", "text"),
        ("a.xlsx", "4539578763621486", None),
    ],
)
def test_no_error_repeats_what_a_file_holds(tmp_path, capsys, name, text, column):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert pii.main(["screen", str(path), *(["--column", column] if column else [])]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert _leaks(said.err) == set()


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "windows-1256"])
def test_encodings(tmp_path, encoding):
    path = tmp_path / "data.txt"
    path.write_bytes("رقم الهوية 1012345678\nلا شيء".encode(encoding))
    assert pii.screen(read_rows(path), progress=False)["findings"][0]["kind"] == "sa_nid"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_text_that_would_be_misread_is_refused(tmp_path, encoding):
    path = tmp_path / "data.txt"
    path.write_bytes("a@example.com".encode(encoding))
    with pytest.raises(WrongInput):
        list(read_rows(path))


def test_the_name_of_a_column_says_what_a_number_is(tmp_path):
    table, records = tmp_path / "data.csv", tmp_path / "data.jsonl"
    table.write_text("رقم الهوية;العدد\n1012345678;7\n", encoding="utf-8")
    records.write_text('{"رقم الهوية": 1012345678, "العدد": 7}\n\n', encoding="utf-8")
    for path in (table, records):
        assert "sa_nid" in {kind for row in read_rows(path) for kind in kinds(row)}
        assert list(read_rows(path, "رقم الهوية")) == ["رقم الهوية: 1012345678"]
        assert [kinds(row) for row in read_rows(path, "العدد")] == [set()]


def test_a_table_without_header_is_screened_from_its_first_line(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("1,a@example.com\n2,b@example.com,extra c@example.com\n", encoding="utf-8")
    (found,) = pii.screen(read_rows(path), progress=False)["findings"]
    assert (found["rows"], found["matches"]) == (2, 3)


def test_a_cell_may_hold_line_breaks(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('id,text\n1,"أول\nثان a@example.com"\n', encoding="utf-8")
    assert list(read_rows(path, "text")) == ["text: أول\nثان a@example.com"]


# ------------------------------------------------------------------------------------------------ answers

DIGEST = "a" * 64
GIVEN = {
    "--kind": "email",
    "--answer": "not_personal",
    "--by": "سلمى حداد",
    "--role": "أمينة البيانات",
    "--reason": "عناوين وهمية",
}


def answered(tmp_path, digest=DIGEST, **changed):
    given = GIVEN | {f"--{name}": value for name, value in changed.items()}
    flags = [part for pair in given.items() for part in pair]
    return pii.main(["answer", digest, "--governance-dir", str(tmp_path), *flags])


def test_an_answer_settles_its_kind(tmp_path):
    result = pii.screen(["a@example.com", CARD], progress=False)
    assert pii.unanswered(result, pii.answers(tmp_path, DIGEST)) == ["email", "card"]
    assert answered(tmp_path) == 0
    assert pii.unanswered(result, pii.answers(tmp_path, DIGEST)) == ["card"]
    path = tmp_path / "pii-answers" / f"{DIGEST[:16]}.json"
    (row,) = json.loads(path.read_text(encoding="utf-8"))
    assert row == {
        "kind": "email", "answer": "not_personal", "by": GIVEN["--by"], "role": GIVEN["--role"],
        "reason": GIVEN["--reason"], "date": row["date"],
    }  # fmt: skip
    date.fromisoformat(row["date"])


def test_personal_settles_nothing_and_a_later_answer_replaces_an_earlier_one(tmp_path):
    result = pii.screen(["a@example.com"], progress=False)
    assert answered(tmp_path) == answered(tmp_path, answer="personal") == 0
    assert len(pii.answers(tmp_path, DIGEST)) == 1
    assert pii.unanswered(result, pii.answers(tmp_path, DIGEST)) == ["email"]


@pytest.mark.parametrize("field", ["by", "role", "reason"])
def test_a_blank_name_role_or_reason_is_refused_and_writes_nothing(tmp_path, capsys, field):
    assert answered(tmp_path, **{field: " \u00a0"}) == 2
    assert field in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    result = pii.screen(["a@example.com"], progress=False)
    row = {"kind": "email", "answer": "not_personal", "by": "أ", "role": "ب", "reason": "ج"}
    assert pii.unanswered(result, [row]) == []
    assert pii.unanswered(result, [row | {field: " "}]) == ["email"]
    for name in (field, "kind", "answer"):
        assert pii.unanswered(result, [{k: v for k, v in row.items() if k != name}]) == ["email"]


@pytest.mark.parametrize("changed", [{"kind": "shoe"}, {"answer": "yes"}])
def test_an_unknown_kind_or_answer_is_refused(tmp_path, changed):
    assert answered(tmp_path, **changed) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("digest", ["", "../../escaped", "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_only_a_digest_becomes_a_file_name(tmp_path, digest):
    assert answered(tmp_path / "governance", digest) == 2
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"by": "x"}]'])
def test_a_damaged_file_of_answers_is_named_and_not_replaced(tmp_path, capsys, text):
    path = tmp_path / "pii-answers" / f"{DIGEST[:16]}.json"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    assert answered(tmp_path) == 2
    assert path.name in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == text


def test_answers_appear_whole_or_not_at_all(tmp_path, monkeypatch):
    assert answered(tmp_path) == 0
    before = pii.answers(tmp_path, DIGEST)

    def fails(*_):
        raise OSError("disk is full")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="full"):
        answered(tmp_path, kind="phone")
    assert pii.answers(tmp_path, DIGEST) == before
    assert len(list((tmp_path / "pii-answers").iterdir())) == 1
