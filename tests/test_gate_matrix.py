"""The residency gate against verdicts that were reasoned from the law facts by someone who had seen neither.

The cases are in `tests/data/gate_matrix.yaml`, the reasoning in `tests/data/make_gate_matrix.py`. Each case gets a
governance folder of its own: reviews signed by a trusted key, a form for the place, and evidence for every condition
that the gate itself asks for, complete or with one fault (expired, or naming another country).
"""

from __future__ import annotations

import hashlib
import json
import runpy
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_lib import gate, keys, overlays, packs
from grpo_lib.errors import GrpoError
from grpo_lib.places import Place
from grpo_lib.settings import RunSettings

DATA = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = yaml.safe_load((DATA / "gate_matrix.yaml").read_text(encoding="utf-8"))["cases"]
TODAY = date(2026, 12, 10)
VALID = {"date": "2026-12-01", "expires": "2027-06-30"}
LAPSED = {"date": "2026-01-01", "expires": "2026-11-30"}
CLEAN_SCREEN = {
    "schema": "grpo-lib/pii-screen/1",
    "rows": 10,
    "screened": 10,
    "sample": "whole",
    "seed": 0,
    "findings": [],
    "kinds_looked_for": ["email"],
    "versions": {},
    "not_seen": [],
    "screened_at": "2026-12-10T00:00:00Z",
    "data_sha256": "0" * 64,
    "unanswered": [],
}


def document(folder: Path, name: str, body: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(yaml.safe_dump(body, allow_unicode=True), encoding="utf-8")


def countries_of(case: dict[str, Any]) -> list[str]:
    if case["evidence"] == "wrong_country":
        return ["BR"]
    return [case["settings"]["country"] or "US"]


def write_evidence(governance: Path, case: dict[str, Any], condition: dict[str, Any], number: int) -> None:
    """A letter and the file that describes it, for one condition that the gate named."""
    letter = f"letter for {condition['id']}".encode()
    folder = governance / "evidence"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"letter-{number}.txt").write_bytes(letter)
    body = {
        "schema": "grpo-lib/evidence/1",
        "pack": condition["pack"],
        "condition": condition["id"],
        "kind": condition["evidence_kind"],
        "ref": f"2026/{number}",
        "issuer": "authority of the test",
        "signed_by": "head of the authority",
        "countries": countries_of(case),
        "document": f"letter-{number}.txt",
        "sha256": hashlib.sha256(letter).hexdigest(),
    }
    document(folder, f"{number}.yaml", body | (LAPSED if case["evidence"] == "expired" else VALID))


def write_form(governance: Path, country: str, zones: list[str]) -> None:
    body = {
        "schema": "grpo-lib/place/1",
        "id": "hall-1",
        "kind": "on-premises",
        "operator": "data centre of the ministry",
        "country": country,
        "named_officer": "officer of the test",
        "role": "head of infrastructure",
        "zones": zones,
        "stays_in_country": ["compute", "storage", "backups", "logs", "support"],
    }
    document(governance / "places", "hall-1.yaml", body | VALID)


def settings_of(case: dict[str, Any], governance: Path) -> RunSettings:
    """Settings of a case, without validation: HF Jobs and data other than synthetic are not launched here yet."""
    stated = {key: value for key, value in case["settings"].items() if key != "place"}
    backend = {"this_machine": "local", "hf_jobs": "hf_jobs"}[case["settings"]["place"]]
    return RunSettings.model_construct(
        run_id="matrix", backend=backend, governance_dir=str(governance), organisation="ministry of the test",
        responsible="head of data", purpose="test of the gate", **stated,
    )  # fmt: skip


@pytest.fixture(scope="module")
def decide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """The gate's answer to a case, once per case; a refusal by error is an answer too (`verdict` deny).

    The shipped packs are read from disk once: reading them is nine tenths of the time of a decision.
    """
    root = tmp_path_factory.mktemp("matrix")
    answers: dict[str, dict[str, Any]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_KEYS_DIR", str(root / "keys"))
        patch.delenv("GRPO_KEY_PASSPHRASE", raising=False)
        signer = keys.create("officer")
    public = root / "officer.pub.pem"
    public.write_bytes(
        signer.public_pem if isinstance(signer.public_pem, bytes) else signer.public_pem.encode()
    )

    def review(governance: Path, pack: str) -> None:
        body = {
            "schema": "grpo-lib/review/1",
            "pack": pack,
            "pack_sha256": packs.load(pack).digest,
            "by": "reviewer of the test",
            "role": "legal counsel",
            "date": VALID["date"],
            "until": VALID["expires"],
        }
        overlays.write(governance / "reviews" / f"{pack}.review.json", body, signer)

    def answer(case: dict[str, Any]) -> dict[str, Any]:
        if case["name"] in answers:
            return answers[case["name"]]
        governance, stated = root / case["name"], case["settings"]
        governance.mkdir()
        keys.trust(public, "officer", governance)
        named = [name for name in stated["jurisdictions"].split(",") if name]
        for pack in case.get("reviewed_only", named if case["reviewed"] else []):
            if pack in packs.known():
                review(governance, pack)
        if case["place_form"] and stated["country"]:
            write_form(governance, stated["country"], [name for name in named if "-" in name])
        settings = settings_of(case, governance)

        def ask() -> dict[str, Any]:
            return gate.decide(settings, Place.of(settings), screen=CLEAN_SCREEN, today=TODAY)

        try:
            decision, written = ask(), set()
            while case["evidence"] != "none":
                open_ = [
                    one
                    for one in decision["conditions"]
                    if one["pack"] and (one["pack"], one["id"]) not in written
                ]
                if not open_:
                    break
                for condition in open_:
                    write_evidence(governance, case, condition, len(written))
                    written.add((condition["pack"], condition["id"]))
                decision = ask()
        except GrpoError as error:
            decision = {"verdict": "deny", "error": str(error)}
        # A paper that the gate cannot read would deny by itself, and hide what the case asks.
        assert "governance-file" not in {one["rule"] for one in decision.get("reasons", [])}, decision[
            "reasons"
        ]
        answers[case["name"]] = decision
        return decision

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "load_file", cache(packs.load_file))
        yield answer


def told(case: dict[str, Any], decision: dict[str, Any]) -> str:
    rules = [(one["rule"], one["effect"]) for one in decision.get("reasons", [])]
    papers = f"reviewed={case.get('reviewed_only', case['reviewed'])} evidence={case['evidence']} form={case['place_form']}"
    return f"  {case['name']} ({papers}): {decision['verdict']} {rules} | facts: {case['because']}"


def asked(expect: str) -> list[dict[str, Any]]:
    return [case for case in CASES if case["expect"] == expect]


def test_file_is_the_output_of_its_script() -> None:
    made = runpy.run_path(str(DATA / "make_gate_matrix.py"))["file_text"]()
    assert made == (DATA / "gate_matrix.yaml").read_text(encoding="utf-8")


def test_every_jurisdiction_is_asked_about() -> None:
    named = {name for case in CASES for name in case["settings"]["jurisdictions"].split(",")}
    assert set(packs.known()) <= named
    assert len(asked("deny")) >= 250


def test_no_false_allow(decide) -> None:
    wrong = [
        told(case, decision)
        for case in asked("deny")
        if (decision := decide(case))["verdict"] != "deny"
    ]  # fmt: skip
    assert not wrong, f"{len(wrong)} false allows of {len(asked('deny'))}:\n" + "\n".join(wrong)


def test_what_the_facts_permit_is_not_denied(decide) -> None:
    wrong = [
        told(case, decision)
        for case in asked("not_deny")
        if (decision := decide(case))["verdict"] == "deny"
    ]  # fmt: skip
    assert not wrong, f"{len(wrong)} needless denials of {len(asked('not_deny'))}:\n" + "\n".join(wrong)


def test_each_denial_names_rule_and_remedy_in_both_languages(decide) -> None:
    mute = []
    for case in CASES:
        decision = decide(case)
        if decision["verdict"] != "deny" or "error" in decision:
            continue
        denials = [one for one in decision["reasons"] if one["effect"] == "deny"]
        named = denials and all(one["rule"] and one["ar"] and one["en"] for one in denials)
        remedied = decision["remedies"] and all(one["ar"] and one["en"] for one in decision["remedies"])
        if not (
            named
            and remedied
            and {one["rule"] for one in denials} & {one["rule"] for one in decision["remedies"]}
        ):
            mute.append(told(case, decision))
    assert not mute, f"{len(mute)} denials without rule or remedy:\n" + "\n".join(mute[:20])


def test_an_allow_rests_on_something(decide) -> None:
    """An allow carries reasons, and no condition that is not met; the digest covers what was decided."""
    for case in asked("not_deny") + asked("any"):
        decision = decide(case)
        if decision["verdict"] != "deny":
            assert decision["reasons"] and all(one["met"] for one in decision["conditions"]), told(
                case, decision
            )
            assert decision["digest"] and json.loads(json.dumps(decision))
