"""The gate's command line: what it prints in both languages, what it writes, and how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import yaml
from fixtures_governance import Governance, parse_packs_once

from grpo_lib import keys, packs
from grpo_lib.errors import EXIT_REFUSED, EXIT_WRONG_INPUT, WrongInput
from grpo_lib.residency import main

SAUDI = ["-p", "data_class", "restricted", "-p", "personal_data", "some", "-p", "controller", "government"]
SAUDI += ["-p", "jurisdictions", "sa", "-p", "country", "SA"]
WHO = ["--by", "A. Lawyer", "--role", "legal adviser", "--key", "lawyer"]
FSI, PDI = "\u2068", "\u2069"
LRI = "\u2066"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with a key of somebody who signs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRPO_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.delenv("GRPO_KEY_PASSPHRASE", raising=False)
    parse_packs_once(monkeypatch)
    keys.create("lawyer")
    return tmp_path


def run(capsys, *arguments: str) -> tuple[int, str]:
    """(exit code, what was printed)"""
    try:
        main(list(arguments))
        code = 0
    except SystemExit as stop:
        code = stop.code
    except WrongInput as error:
        return error.exit_code, f"{error.ar}\n{error.en}"
    return code, capsys.readouterr().out


# ------------------------------------------------------------------------------------------- check


def test_check_allows_the_suites_own_data_and_says_so_arabic_first(here, capsys):
    code, said = run(capsys, "check")
    assert code == 0 and said.index("مسموح") < said.index("Allowed")
    assert "public-or-synthetic-with-record" in said and "not legal advice" in said and "ليست استشارة" in said


def test_check_prints_reasons_conditions_and_remedies_and_ends_with_three(here, capsys):
    code, said = run(capsys, "check", *SAUDI)
    assert code == EXIT_REFUSED
    for text in (
        "Denied.",
        "مرفوض.",
        "sa-review",
        "place-form (not met)",
        "What would turn the decision",
        "أقرب مكان",
    ):
        assert text in said
    assert "python -m grpo_lib.residency review sa" in said


@pytest.mark.parametrize(
    ("language", "there", "absent"), [("ar", "مرفوض", "Denied"), ("en", "Denied", "مرفوض")]
)
def test_check_in_one_language(here, capsys, language, there, absent):
    code, said = run(capsys, "check", "--lang", language, *SAUDI)
    assert code == EXIT_REFUSED and there in said and absent not in said


def test_latin_words_in_arabic_lines_are_isolated(here, capsys):
    _, said = run(capsys, "check", "--lang", "ar", *SAUDI)
    for line in said.splitlines():
        assert line.count(FSI) + line.count(LRI) == line.count(PDI)
        outside = re.sub(f"[{FSI}{LRI}][^{PDI}]*{PDI}", "", line)
        assert not any(letter.isascii() and letter.isalnum() for letter in outside), line


def test_a_class_that_the_task_could_not_have_may_be_asked_about(here, capsys):
    code, said = run(capsys, "check", "--lang", "en", "-p", "data_class", "public")
    assert code == 0 and said.startswith("Allowed")
    code, said = run(capsys, "check", "--lang", "en", "-p", "data_class", "open")
    assert code == EXIT_REFUSED and "class-unknown" in said and "data_class" in said


def test_wrong_parameters_are_named_in_both_languages(here, capsys):
    code, said = run(capsys, "check", "-p", "stepz", "3", "-p", "country", "Saudi")
    assert code == EXIT_WRONG_INPUT and said.count("stepz") == 2 and "two-letter" in said


def test_check_records_nothing(here, capsys):
    before = sorted(here.rglob("*"))
    run(capsys, "check", *SAUDI)
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(("kind", "folder"), [("evidence", "evidence"), ("place", "places")])
def test_a_template_is_a_form_that_counts_for_nothing_until_it_is_filled_in(here, capsys, kind, folder):
    code, said = run(capsys, "check", "--template", kind)
    assert code == 0 and yaml.safe_load(said)["schema"] == f"grpo-lib/{kind}/1"
    Governance(here / "governance").put(f"{folder}/form.yaml", said)
    code, said = run(capsys, "check", "--lang", "en", *SAUDI)
    assert code == EXIT_REFUSED and f"{folder}/form.yaml: the field" in said


def test_filled_templates_review_and_trust_turn_the_verdict(here, capsys):
    _, form = run(capsys, "check", "--template", "place")
    filled = yaml.safe_load(form) | {
        "id": "room-7", "kind": "on-premises", "operator": "وزارة", "country": "SA", "named_officer": "ن. م.",
        "role": "مدير", "date": "2020-01-01", "expires": "2099-01-01",
        "stays_in_country": ["compute", "storage", "backups", "logs", "support"],
    }  # fmt: skip
    Governance(here / "governance").put("places/room-7.yaml", filled)
    assert run(capsys, "review", "SA", "--until", "2098-12-31", *WHO)[0] == 0
    assert run(capsys, "check", *SAUDI)[0] == EXIT_REFUSED  # signed, but by nobody that is trusted
    keys.trust(here / "keys/lawyer.pub.pem", "lawyer", here / "governance")
    code, said = run(capsys, "check", *SAUDI)
    assert code == 0 and "Allowed, with conditions." in said and "place-form (met)" in said


# ------------------------------------------------------------------------------------------- explain


@pytest.mark.parametrize("name", ["SA", "sa", "ae-difc"])
def test_a_pack_is_read_out(here, capsys, name):
    code, said = run(capsys, "explain", name)
    pack = packs.load(name.lower())
    assert code == 0 and pack.names["ar"] in said and pack.names["en"] in said


def test_a_country_without_a_pack_is_told_how_to_write_one(here, capsys):
    code, said = run(capsys, "explain", "YE")
    assert code == EXIT_WRONG_INPUT and "How to write one" in said and "لكتابة حزمة" in said
    Governance(here / "governance").own_pack()
    code, said = run(capsys, "explain", "YE")
    assert code == 0 and "Yemen" in said


# ------------------------------------------------------------------------------------------- review, override


def test_a_review_names_person_pack_and_date_and_says_that_its_key_is_not_trusted_yet(here, capsys):
    code, said = run(capsys, "review", "SA", "--until", "2098-12-31", *WHO)
    assert code == 0 and "does not count until its key is trusted" in said and "لن يُحتسب" in said
    (path,) = (here / "governance/reviews").iterdir()
    body = json.loads(path.read_text(encoding="utf-8"))
    assert body["pack_sha256"] == packs.load("sa").digest and body["until"] == "2098-12-31"
    assert (body["by"], body["key_sha256"]) == ("A. Lawyer", keys.load("lawyer").fingerprint)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--until", "2020-01-01"], "--until 2020-01-01"),
        (["--until", "soon"], "--until soon"),
        (["--until", "20981231"], "--until 20981231"),
        (["--by", "  "], "--by"),
        (["--role", ""], "--role"),
        (["--key", "nobody"], "nobody"),
    ],
)
def test_a_review_without_name_role_date_or_key_is_refused(here, capsys, change, says):
    code, said = run(capsys, "review", "SA", "--until", "2098-12-31", *WHO, *change)
    assert code == EXIT_WRONG_INPUT and said.count(says) >= 2
    assert not (here / "governance").exists()


def test_an_override_is_bound_to_one_thing_and_shown_by_check(here, capsys):
    keys.trust(here / "keys/lawyer.pub.pem", "lawyer", here / "governance")
    asked = [
        "override",
        "--rules",
        "sa-review,place-form",
        "--reason",
        "ordered",
        "--until",
        "2098-12-31",
        *WHO,
    ]
    for wrong in ([], ["--run-id", "run-1", *SAUDI]):
        assert run(capsys, *asked, *wrong)[0] == EXIT_WRONG_INPUT
    assert run(capsys, *asked, *SAUDI)[0] == 0
    code, said = run(capsys, "check", *SAUDI)
    assert code == 0 and "Override until 2098-12-31, by A. Lawyer (legal adviser): ordered" in said
    assert run(capsys, "check", *SAUDI, "-p", "steps", "61")[0] == EXIT_REFUSED
    assert run(capsys, *asked, "--run-id", "run-9")[0] == 0
    assert run(capsys, "check", *SAUDI, "-p", "steps", "61", "-p", "run_id", "run-9")[0] == 0


def test_an_override_needs_a_reason(here, capsys):
    asked = [
        "override",
        "--rules",
        "sa-review",
        "--reason",
        " ",
        "--until",
        "2098-12-31",
        *WHO,
        "--run-id",
        "run-1",
    ]
    code, said = run(capsys, *asked)
    assert code == EXIT_WRONG_INPUT and "--reason" in said


# ------------------------------------------------------------------------------------------- as a process


@pytest.mark.parametrize(
    ("arguments", "code"), [(["check", "--lang", "en"], 0), (["check", *SAUDI], 3), (["explain", "xx"], 2)]
)
def test_the_process_ends_with_the_code_and_no_traceback(here, arguments, code):
    done = subprocess.run(
        [sys.executable, "-m", "grpo_lib.residency", *arguments], capture_output=True, text=True, cwd=here
    )
    assert done.returncode == code and "Traceback" not in done.stderr


def test_the_help_is_in_both_languages(here, capsys):
    for command in ([], ["check"], ["review"], ["override"], ["explain"]):
        code, said = run(capsys, *command, "--help")
        assert code == 0 and any("\u0600" <= letter <= "\u06ff" for letter in said)
