"""Exit codes as cron sees them, from the wrapper's command line: one readable message, and nothing half-written."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import safetensors.torch
from processes import SMALL, Outcome, command, events, wrapper_arguments

from grpo_lib.ledger import check_chain
from grpo_lib.runfolder import RunFolder, canonical, sha256
from grpo_lib.teaching_model import teaching_model_path

ARABIC = re.compile("[\u0621-\u064a]{2,}")


def ended(cwd: Path, *arguments: str) -> Outcome:
    with command(cwd, *arguments) as running:
        return running.wait()


def assert_one_message(outcome: Outcome, *parts: str) -> None:
    """One message in both languages, Arabic first, without the machinery that it came through."""
    arabic, latin = ARABIC.search(outcome.err), re.search("[A-Za-z]+ [a-z]+ [a-z]+", outcome.err)
    assert arabic and latin and arabic.start() < latin.start(), outcome.err
    for part in parts:
        assert part in outcome.err, outcome.err
    for machinery in ("Traceback", "papermill", "ValidationError", "pydantic", "Exception encountered"):
        assert machinery not in outcome.err, outcome.err


WRONG = {
    "unknown name": (
        ("-p", "learning_rat", "0.1"),
        ["learning_rat", "Did you mean learning_rate?", "هل تقصد"],
    ),
    "not a number": (("-p", "learning_rate", "fast"), ["learning_rate='fast'", "must be a number"]),
    "out of range": (("-p", "num_generations", "1"), ["num_generations=", "at least 2"]),
    "no such model": (("-p", "model", "./no/such/model"), ["./no/such/model", "no model folder here"]),
    "unreadable file": (("-f", "broken.yaml"), ["broken.yaml", "cannot be read"]),
    "no such file": (("-f", "nothing.yaml"), ["nothing.yaml", "cannot be read"]),
    "file of a list": (("-f", "list.yaml"), ["list.yaml", "must hold names and values"]),
    "not a file of text": (("-f", "bytes.yaml"), ["bytes.yaml", "cannot be read"]),
    "two faults": (("-p", "steps", "0", "-p", "seed", "x"), ["steps=", "seed="]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input(tmp_path: Path, case: str) -> None:
    arguments, parts = WRONG[case]
    cwd = tmp_path / "work"
    cwd.mkdir()
    (cwd / "broken.yaml").write_text("steps: [1, 2\nseed: }", encoding="utf-8")
    (cwd / "list.yaml").write_text("- steps\n- seed\n", encoding="utf-8")
    (cwd / "bytes.yaml").write_bytes(b"\xff\xfe\x00\x9c")
    before = set(cwd.iterdir())
    # `-p` takes two words each; the shell sees the same.
    outcome = ended(cwd, "grpo_lib.run", *arguments)
    assert outcome.code == 2, outcome.err
    assert_one_message(outcome, *parts)
    assert set(cwd.iterdir()) == before, "no half-written run folder"


def test_a_run_in_progress_is_left_alone(tmp_path: Path) -> None:
    cwd = tmp_path / "work"
    run = RunFolder(cwd / "runs" / "busy-run")
    with run.locked():
        outcome = ended(cwd, *wrapper_arguments(run_id=run.run_id, **SMALL))
    assert outcome.code == 2, outcome.err
    assert_one_message(outcome, "busy-run", "in progress in another process")
    assert [path.name for path in run.root.rglob("*") if path.suffix != ".lock"] == []


def test_the_gate_refuses_before_anything_starts(tmp_path: Path) -> None:
    cwd = tmp_path / "work"
    run = RunFolder(cwd / "runs" / "refused-run")
    outcome = ended(cwd, *wrapper_arguments(run_id=run.run_id, data_class="", **SMALL))
    assert outcome.code == 3, outcome.err
    assert_one_message(outcome, "The residency gate refused this run", "class-empty")
    decision = json.loads(run.decision.read_text(encoding="utf-8"))
    assert decision["verdict"] == "deny"
    assert [reason["rule"] for reason in decision["reasons"]] == ["class-empty"]
    digest = decision.pop("digest")
    assert digest == sha256(canonical(decision))
    names = [event["event"] for event in events(run)]
    assert "process_started" not in names and "base_loaded" not in names
    (decided,) = events(run, "gate_decided")
    assert decided["data"] == {"verdict": "deny", "decision_sha256": digest}
    assert names[-1] == "run_ended"
    said = events(run)[-1]["data"]
    assert (said["status"], said["exit_code"]) == ("refused", 3)
    assert check_chain(run.ledger).intact
    manifest = json.loads(run.manifest.read_text(encoding="utf-8"))
    assert (manifest["status"], manifest["exit_code"]) == ("refused", 3)
    assert not run.logs.exists() and not run.adapters.exists()


@pytest.mark.trains
def test_a_model_of_no_numbers_stops_the_run(tmp_path: Path) -> None:
    model = Path(shutil.copytree(teaching_model_path(), tmp_path / "broken-model"))
    weights = safetensors.torch.load_file(model / "model.safetensors")
    for tensor in weights.values():
        tensor.fill_(float("nan"))
    safetensors.torch.save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    cwd = tmp_path / "work"
    run = RunFolder(cwd / "runs" / "broken-run")
    outcome = ended(cwd, *wrapper_arguments(run_id=run.run_id, model=model, workers=1, **SMALL))
    logs = "".join(path.read_text(encoding="utf-8")[-2000:] for path in run.logs.iterdir())
    assert outcome.code == 4, outcome.err + logs
    assert_one_message(outcome)
    assert events(run)[-1]["event"] == "run_ended"
    said = events(run)[-1]["data"]
    assert (said["status"], said["exit_code"]) == ("stopped", 4)
    manifest = json.loads(run.manifest.read_text(encoding="utf-8"))
    assert (manifest["status"], manifest["exit_code"]) == ("stopped", 4)
