"""Nothing starts without an allowing decision whose digest is the last one in the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_lib import settings as run_settings
from grpo_lib.errors import Refused
from grpo_lib.ledger import Ledger, read_events
from grpo_lib.opening import clearance, open_run
from grpo_lib.runfolder import RunFolder, write_json


def opened(tmp_path: Path, **values) -> RunFolder:
    settings = run_settings.load({"run_id": "demo", "runs_dir": str(tmp_path), "steps": 2, **values})
    run = RunFolder(settings.run_dir)
    write_json(run.settings, settings.model_dump(exclude={"runs_dir"}))
    open_run(run, settings, Ledger(run.ledger, run.run_id, "launcher"))
    return run


def test_an_allowed_run_is_cleared_and_carries_what_the_decision_rests_on(tmp_path) -> None:
    run = opened(tmp_path, jurisdictions="sa", country="SA", controller="government")
    clearance(run)
    assert (run.packs / "sa.yaml").is_file() and run.screen.is_file() and run.packages.is_file()
    assert [event["event"] for event in read_events(run.ledger)] == [
        "run_started",
        "data_declared",
        "pii_screened",
        "gate_decided",
    ]


def test_a_refusal_names_rule_and_remedy_in_both_languages_and_is_recorded(tmp_path) -> None:
    with pytest.raises(Refused) as caught:
        opened(tmp_path, personal_data="some")
    assert (
        "synthetic-with-personal-data" in caught.value.ar
        and "synthetic-with-personal-data" in caught.value.en
    )
    assert "What would turn the decision" in caught.value.en and "ما الذي يغيّر القرار" in caught.value.ar
    run = RunFolder(tmp_path / "demo")
    assert read_events(run.ledger)[-1]["data"]["verdict"] == "deny"
    with pytest.raises(Refused):
        clearance(run)


@pytest.mark.parametrize("change", ["missing", "edited", "verdict", "unrecorded", "later denial"])
def test_no_clearance_without_the_recorded_decision(tmp_path, change) -> None:
    run = opened(tmp_path)
    decision = json.loads(run.decision.read_text(encoding="utf-8"))
    match change:
        case "missing":
            run.decision.unlink()
        case "edited":
            write_json(run.decision, decision | {"place": {}})
        case "verdict":
            write_json(run.decision, decision | {"verdict": "deny"})
        case "unrecorded":
            lines = run.ledger.read_bytes().splitlines(keepends=True)
            run.ledger.write_bytes(b"".join(line for line in lines if b"gate_decided" not in line))
        case "later denial":
            Ledger(run.ledger, "demo", "launcher").append(
                "gate_decided", verdict="deny", decision_sha256="0" * 64
            )
    with pytest.raises(Refused):
        clearance(run)


def test_the_report_learns_which_role_answered_and_no_name(tmp_path, monkeypatch) -> None:
    finding = {"kind": "email", "rows": 1, "matches": 1, "validator": "-", "strength": "structure"}
    monkeypatch.setattr(
        "grpo_lib.opening.pii.screen", lambda rows, **_: {"findings": [finding], "data_sha256": "0"}
    )
    given = {
        "kind": "email",
        "answer": "not_personal",
        "by": "فلان",
        "role": "مسؤول",
        "reason": "مثال",
        "date": "2026-12-01",
    }
    monkeypatch.setattr("grpo_lib.opening.pii.answers", lambda *_: [given, given | {"kind": "phone"}])
    screen = json.loads(opened(tmp_path).screen.read_text(encoding="utf-8"))
    assert screen["answered"] == [{name: given[name] for name in ("kind", "answer", "role", "date")}]
    assert screen["unanswered"] == [] and "فلان" not in json.dumps(screen, ensure_ascii=False)
