"""Signed overlays and papers: they lapse, they count only under a trusted key, and damage is named, never a crash."""

from __future__ import annotations

import json
import os
from datetime import date

import pytest
import yaml
from fixtures_governance import LATER, TODAY, Governance, parse_packs_once
from hypothesis import HealthCheck, given, settings, strategies

from compliance import path as data_path
from grpo_lib import gate, overlays, packs, papers
from grpo_lib.settings import load

SAUDI = {"data_class": "restricted", "personal_data": "some", "controller": "government"}
SAUDI |= {"jurisdictions": "sa", "country": "SA"}


@pytest.fixture
def governance(tmp_path, monkeypatch) -> Governance:
    monkeypatch.chdir(tmp_path)
    parse_packs_once(monkeypatch)
    made = Governance(tmp_path / "governance")
    made.complete("sa", "SA")
    return made


def ask(today: str = TODAY, **changes) -> dict:
    given = load({"run_id": "run-1"}).model_copy(update=SAUDI | changes)
    return gate.decide(given, today=date.fromisoformat(today))


def denied(decision: dict) -> dict[str, str]:
    return {one["rule"]: one["en"] for one in decision["reasons"] if one["effect"] == "deny"}


def fault(**changes) -> str:
    """What is said about files. They are read in every case; this one needs no pack and is quick."""
    return denied(ask(data_class="public", personal_data="none", jurisdictions="", **changes)).get(
        "governance-file", ""
    )


# ------------------------------------------------------------------------------------------- reviews


def test_a_review_is_named_in_the_decision(governance):
    pack = ask()["packs"][0]
    assert pack["reviewed"] and not pack["arabic_reviewed"]
    assert pack["review"] == {
        "by": "A. Lawyer",
        "role": "legal adviser",
        "until": LATER,
        "key_sha256": governance.lawyer.fingerprint,
    }


def test_a_review_lapses_when_the_pack_changes_by_one_byte(governance):
    text = data_path("rules", "sa.yaml").read_text(encoding="utf-8")
    governance.put("rules/sa.yaml", text)
    assert not denied(ask())
    governance.put("rules/sa.yaml", text + "\n")
    decision = ask()
    assert (
        list(denied(decision)) == ["sa-review"]
        and "changed after its review" in denied(decision)["sa-review"]
    )
    assert not decision["packs"][0]["reviewed"] and decision["packs"][0]["review"] is None


def test_a_review_holds_to_its_last_day_and_not_before_its_first(governance):
    governance.form("SA", date="2020-01-01", expires="2040-01-01")
    assert not denied(ask(TODAY)) and not denied(ask(LATER))
    assert "passed its date" in denied(ask("2027-12-02"))["sa-review"]
    assert "not come" in denied(ask("2026-11-30"))["sa-review"]


def test_a_review_under_an_unknown_key_is_ignored(governance):
    governance.review("sa", governance.stranger)
    decision = ask()
    assert "not in governance/trusted" in denied(decision)["sa-review"]
    governance.trust(governance.stranger)
    assert not denied(ask())
    (governance.root / "trusted/stranger.pub.pem").unlink()
    assert denied(ask())


def test_a_stranger_cannot_pass_for_a_trusted_key(governance):
    path = governance.review("sa", governance.stranger)
    body = json.loads(path.read_text(encoding="utf-8")) | {"key_sha256": governance.lawyer.fingerprint}
    path.write_text(json.dumps(body), encoding="utf-8")
    assert "does not fit" in denied(ask())["sa-review"]


@pytest.mark.parametrize("field", ["pack_sha256", "by", "role", "until", "date"])
def test_no_field_of_a_review_can_be_changed_after_the_signature(governance, field):
    path = governance.review(
        "sa", pack_sha256="0" * 64 if field == "pack_sha256" else packs.load("sa").digest
    )
    body = json.loads(path.read_text(encoding="utf-8"))
    better = {"pack_sha256": packs.load("sa").digest, "by": "E. Else", "role": "judge", "until": "2039-01-01"}
    path.write_text(json.dumps(body | {field: better.get(field, "2020-01-01")}), encoding="utf-8")
    assert "does not fit" in denied(ask())["sa-review"]


def test_of_several_reviews_a_valid_one_is_enough(governance):
    old = governance.root / "reviews/sa.review.json"
    old.rename(old.with_name("sa-1.review.json"))
    governance.review("sa", pack_sha256="0" * 64, until="2039-01-01")
    assert not denied(ask())


def test_a_review_of_another_pack_does_not_serve(governance):
    governance.review("sa", pack="eg")
    assert "Nobody has reviewed" in denied(ask())["sa-review"]


# ------------------------------------------------------------------------------------------- untrusted files

SIGNED = ("reviews/sa.review.json", "overrides/one.override.json")
WRITTEN = ("places/room-sa.yaml", "evidence/sa-transfer-minimum.yaml")


@pytest.mark.parametrize("name", [*SIGNED, *WRITTEN, "trusted/lawyer.pub.pem"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{",
        b"[" * 5000,
        b"- a\n- b",
        b"a: &a [1]\nb: *a",
        b"x" * 70_000,
    ],
)
def test_a_damaged_file_denies_and_is_named(governance, name, content):
    governance.override(["sa-review"])
    assert not fault()
    governance.put(name, content)
    reason = fault()
    assert name in reason and str(governance.root) not in reason


@pytest.mark.parametrize("name", [*SIGNED, *WRITTEN])
def test_a_missing_an_unknown_and_a_wrong_field_are_named(governance, name):
    governance.override(["sa-review"])
    path = governance.root / name
    body = yaml.safe_load(path.read_text(encoding="utf-8"))
    optional = {"zones", "document", "sha256"} if name.startswith("places") else set()
    for field in set(body) - optional:
        governance.put(name, json.dumps({key: value for key, value in body.items() if key != field}))
        assert f"{name}: the field {field} is missing" in fault()
    for field in body:
        for value in ({}, 7, "", "\u202e", {"a": 1}):
            governance.put(name, json.dumps(body | {field: value}))
            assert f"{name}: the field {field}" in fault(), (field, value)
    governance.put(name, json.dumps(body | {"colour": "red"}))
    assert f"{name}: the field colour is unknown" in fault()


def test_a_null_in_a_form_is_named_as_in_the_empty_template(governance):
    for kind in ("place", "evidence"):
        text = data_path("forms", f"{kind}.yaml").read_text(encoding="utf-8")
        folder = papers.PLACES if kind == "place" else papers.EVIDENCE
        governance.put(f"{folder}/copied.yaml", text)
        reason = fault()
        assert (
            f"{folder}/copied.yaml" in reason and "country" in reason
            if kind == "place"
            else "countries" in reason
        )
        (governance.root / folder / "copied.yaml").unlink()


def test_names_that_stand_twice_are_refused(governance):
    path = governance.root / "reviews/sa.review.json"
    text = path.read_text(encoding="utf-8").replace("{", '{"by": "Somebody", ', 1)
    path.write_text(text, encoding="utf-8")
    assert "reviews/sa.review.json" in fault()
    governance.review("sa")
    form = governance.root / "places/room-sa.yaml"
    form.write_text(form.read_text(encoding="utf-8") + "country: AE\n", encoding="utf-8")
    assert "places/room-sa.yaml" in fault()


def test_aliases_are_refused_since_a_few_lines_could_expand_without_end(governance):
    form = governance.root / "places/room-sa.yaml"
    text = form.read_text(encoding="utf-8")
    assert not fault()
    reordered = text.replace("operator: ", "operator: &one ").replace(
        "role: head of operations", "role: *one"
    )
    form.write_text(reordered, encoding="utf-8")  # one value for two fields, which plain YAML would take
    assert "places/room-sa.yaml cannot be read" in fault()


def test_folders_pipes_and_dead_links_are_named_and_do_not_hang(governance):
    (governance.root / "evidence/folder.yaml").mkdir()
    os.mkfifo(governance.root / "evidence/pipe.yaml")
    (governance.root / "evidence/link.yaml").symlink_to("nowhere")
    reason = fault()
    assert all(f"evidence/{name}.yaml" in reason for name in ("folder", "pipe", "link"))


def test_a_fault_says_no_value_of_the_file(governance):
    governance.form("SA", country="Saudi secret-name", named_officer="\u202e")
    decision = json.dumps(ask(), ensure_ascii=False)
    assert "secret-name" not in decision and "places/room-sa.yaml" in decision


def test_a_fault_denies_whether_or_not_the_case_needs_the_file(governance):
    assert not denied(ask()) and not fault()
    governance.put("places/room-sa.yaml", "[")
    assert "governance-file" in denied(ask()) and fault()


def test_other_files_in_the_folder_are_left_alone(governance):
    for name in ("README.md", "evidence/notes.txt", "reviews/sa.review.json.bak", "trusted/lawyer.pem"):
        governance.put(name, "anything")
    assert not denied(ask())


def test_a_folder_that_is_not_there_holds_nothing(tmp_path):
    nothing = tmp_path / "none"
    assert overlays.read(nothing, TODAY) == overlays.Overlays((), (), ())
    assert papers.read(nothing).evidence == papers.read(nothing).forms == papers.read(nothing).faults == ()


json_values = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(max_size=9),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=strategies.sampled_from([*SIGNED, *WRITTEN, "rules/sa.yaml"]),
    content=strategies.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()),
)
def test_whatever_a_file_holds_the_gate_answers(governance, name, content):
    kept = (governance.root / name).read_bytes() if (governance.root / name).is_file() else None
    governance.put(name, content)
    try:
        assert ask()["verdict"] == "deny" and (name.startswith("rules") or name in fault())
    finally:
        if kept is None:
            (governance.root / name).unlink()
        else:
            governance.put(name, kept)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=strategies.sampled_from([*SIGNED[:1], *WRITTEN]), value=json_values, data=strategies.data())
def test_whatever_a_field_holds_the_gate_answers_and_is_not_looser(governance, name, value, data):
    path = governance.root / name
    kept = path.read_bytes()
    body = yaml.safe_load(kept)
    field = data.draw(strategies.sampled_from(sorted(body)))
    governance.put(name, json.dumps(body | {field: value}))
    try:
        ask()
    finally:
        path.write_bytes(kept)
