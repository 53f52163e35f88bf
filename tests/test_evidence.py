"""Evidence of a synthetic run: right figures, their sources, and no crash on whatever is missing or damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures_run import BASE, RUN_ID, STEPS, write_run

from grpo_lib.errors import WrongInput
from grpo_lib.evidence import collect
from grpo_lib.incidents import public
from grpo_lib.measures import overlap
from grpo_lib.report import FIGURES, REPORTS, render


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("evidence"))


@pytest.fixture(scope="module")
def evidence(run_dir: Path) -> dict:
    return collect(run_dir)


def test_complete_run_is_no_draft(evidence: dict) -> None:
    assert evidence["draft"] == []
    assert evidence["problems"] == []
    assert evidence["contradictions"] == []


def test_is_json(evidence: dict) -> None:
    json.dumps(evidence, allow_nan=False)


def test_facts_carry_their_source(evidence: dict) -> None:
    assert evidence["who"]["purpose"]["source"] == {"file": "settings.json", "field": "purpose", "seq": None}
    assert evidence["until"]["started"]["source"]["seq"] == 0
    assert evidence["status"]["value"] == "complete"


def test_incidents_are_complete_and_ordered(evidence: dict) -> None:
    kinds = [incident["kind"] for incident in evidence["incidents"]]
    assert kinds == [
        "torn_line",
        "worker_refused",
        "message_dropped",
        "worker_lost",
        "process_signal",
        "stale_dropped",
    ]
    by_kind = {incident["kind"]: incident for incident in evidence["incidents"]}
    assert by_kind["message_dropped"]["count"] == 3
    assert by_kind["stale_dropped"]["count"] == 6
    assert by_kind["process_signal"]["values"]["signal"] == "SIGKILL"


def test_an_earlier_interruption_is_handled_and_the_last_end_is_serious() -> None:
    from grpo_lib.incidents import find

    ends = [
        {"seq": seq, "event": "run_ended", "data": {"status": status, "exit_code": code}}
        for seq, (status, code) in enumerate([("interrupted", 5), ("stopped", 4)])
    ]
    assert [(one["severity"], one["values"]["status"]) for one in find(ends, [], [])] == [
        ("serious", "stopped"),
        ("handled", "interrupted"),
    ]


def test_measures(evidence: dict) -> None:
    assert {group["backend"] for group in evidence["groups"]} == {"gloo"}
    assert evidence["base"] == {**evidence["base"], "sha256": BASE, "same": True}
    assert evidence["staleness"]["steps"] == STEPS
    assert evidence["staleness"]["within_bound"] is True
    assert evidence["sync"]["bytes_mean"] == 412_345
    assert evidence["sync"]["bytes_total"] == 412_345 * STEPS
    assert evidence["overlap"]["share"] == pytest.approx(0.702, abs=0.005)


def test_overlap_by_hand() -> None:
    spans = [
        {"actor": "learner", "kind": "step", "start": 0.0, "end": 4.0},
        {"actor": "learner", "kind": "step", "start": 6.0, "end": 10.0},
        # Two workers at once count once; what lies outside training time does not count.
        {"actor": "worker-0", "kind": "generate", "start": -3.0, "end": 3.0},
        {"actor": "worker-1", "kind": "generate", "start": 1.0, "end": 7.0},
        {"actor": "worker-1", "kind": "score", "start": 7.0, "end": 9.0},
    ]
    found = overlap(spans)
    assert found["share"] == pytest.approx(5.0 / 10.0)
    assert (found["training_s"], found["step_s"], found["generate_s"]) == (10.0, 8.0, 7.0)


def test_every_file_matches_its_digest(evidence: dict) -> None:
    states = {row["file"]: row["state"] for row in evidence["files"]}
    assert states.pop("metrics.jsonl") == states.pop("timeline.jsonl") == "not_recorded"
    assert set(states.values()) == {"match"}
    assert f"adapters/v{STEPS:06d}/adapter_model.safetensors" in states


def _reasons(run_dir: Path) -> set[str]:
    return {reason["kind"] for reason in collect(run_dir)["draft"]}


def test_a_changed_ledger_line_breaks_the_chain(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    ledger = run_dir / "ledger" / "events.jsonl"
    lines = ledger.read_bytes().split(b"\n")
    lines[20] = lines[20].replace(b'"loss":0.01', b'"loss":0.02')
    ledger.write_bytes(b"\n".join(lines))
    evidence = collect(run_dir)
    assert evidence["ledger"]["intact"] is False
    assert evidence["ledger"]["broken_lines"] == [22]
    assert evidence["incidents"][0]["kind"] == "chain_broken"
    assert "ledger" in _reasons(run_dir)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("evaluation.json", "no_evaluation"),
        ("settings.json", "not_stated"),
        ("decision.json", "files_missing"),
        ("data_manifest.json", "files_missing"),
        ("metrics.jsonl", "files_missing"),
        ("timeline.jsonl", "files_missing"),
        ("ledger/events.jsonl", "ledger"),
    ],
)
@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]\n5\n", b"\xff\xfe\x00"])
def test_missing_or_damaged_file_makes_a_draft(
    tmp_path: Path, name: str, reason: str, content: bytes | None
) -> None:
    run_dir = write_run(tmp_path)
    if content is None:
        (run_dir / name).unlink()
    else:
        (run_dir / name).write_bytes(content)
    if name.endswith("jsonl") and content is not None and "ledger" not in name:
        collect(
            run_dir
        )  # an append-only file that holds nothing is not told from one that was never written to
    else:
        assert reason in _reasons(run_dir)


def test_an_empty_folder_is_a_draft(tmp_path: Path) -> None:
    assert {"ledger", "not_complete", "no_evaluation", "not_stated", "files_missing"} <= _reasons(tmp_path)


def test_values_of_a_wrong_kind_do_not_crash(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    for name in ("settings.json", "decision.json", "evaluation.json", "data_manifest.json"):
        values = json.loads((run_dir / name).read_text(encoding="utf-8"))
        for wrong in (None, 7, "x", [], {}, [[1]], {"mean": "high"}):
            (run_dir / name).write_text(json.dumps(dict.fromkeys(values, wrong)), encoding="utf-8")
            json.dumps(collect(run_dir), allow_nan=False)


def test_ledger_values_of_a_wrong_kind_do_not_crash(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    ledger = run_dir / "ledger" / "events.jsonl"
    records = [json.loads(line) for line in ledger.read_bytes().split(b"\n") if line.endswith(b"}")]
    for wrong in (None, 7, "x", [], [[1]], {"a": "b"}):
        for changed in (
            [record | {"data": dict.fromkeys(record["data"], wrong)} for record in records],
            [dict.fromkeys(record, wrong) | {"event": record["event"]} for record in records],
            [record | {"event": wrong} for record in records],
        ):
            ledger.write_text("".join(json.dumps(record) + "\n" for record in changed), encoding="utf-8")
            evidence = collect(run_dir)
            json.dumps(evidence, allow_nan=False)
            for report in REPORTS:
                render(evidence, report, "ar", dict.fromkeys(FIGURES, "<svg></svg>"))


def test_a_changed_file_is_seen(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    (run_dir / f"adapters/v{STEPS:06d}/adapter_model.safetensors").write_bytes(b"another adapter")
    assert "files_differ" in _reasons(run_dir)


def test_a_changed_decision_is_seen(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    decision = json.loads((run_dir / "decision.json").read_text(encoding="utf-8"))
    decision["verdict"] = "allow_with_conditions"
    (run_dir / "decision.json").write_text(json.dumps(decision), encoding="utf-8")
    assert collect(run_dir)["decision"]["digest_holds"] is False
    assert "files_differ" in _reasons(run_dir)


def test_a_contradiction_is_seen(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path, data_class="public")
    assert collect(run_dir)["contradictions"] == ["data_class"]
    assert "contradictions" in _reasons(run_dir)


def test_a_ledger_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    from grpo_lib.digests import compare
    from grpo_lib.runfolder import RunFolder

    run_dir = write_run(tmp_path)
    (tmp_path / "outside").write_bytes(b"outside")
    event = {
        "seq": 1,
        "event": "checkpoint_saved",
        "data": {"step": STEPS, "files": {"../../../outside": "0" * 64}},
    }
    row = next(row for row in compare(RunFolder(run_dir), [event]) if "outside" in row["file"])
    assert row["state"] == "missing"
    assert row["sha256"] is None


def test_unknown_folder_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(WrongInput) as caught:
        collect(tmp_path / "no-such-run")
    assert "no-such-run" in caught.value.ar
    assert "no-such-run" in caught.value.en


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("/home/sara/runs", "…/runs"),
        ("/home/sara", "…"),
        ("/Users/sara/", "…"),
        ("C:\\Users\\sara\\models\\base", "…/base"),
        ("~sara/models/base", "…/base"),
        ("cannot open '/srv/data/secret/rows.json': denied", "cannot open '…/rows.json': denied"),
        ("organisation/model-1b", "organisation/model-1b"),
        ("allow and/or deny", "allow and/or deny"),
        ("run\u202e-1\u2066\x00", "run -1  "),
    ],
)
def test_public_text(given: str, printed: str) -> None:
    assert public(given) == printed


def test_run_id_is_the_fixtures(evidence: dict) -> None:
    assert evidence["run_id"]["value"] == RUN_ID
