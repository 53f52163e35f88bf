"""The ledger's chain: what it shows, what it survives, and that several processes may write to it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_lib.ledger import GENESIS, Ledger, check_chain, read_events
from grpo_lib.runfolder import canonical, sha256


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger" / "events.jsonl"


@pytest.fixture
def filled(path):
    """Five events; returns the path."""
    ledger = Ledger(path, "run-1", "learner")
    for step in range(5):
        ledger.append("step", step=step, reward_mean=0.5, note="خطوة")
    return path


def found(path) -> bool:
    """Whether a check shows that something is not as it was written."""
    check = check_chain(path)
    return bool(check.faults or check.torn_lines)


def test_lines_are_chained_numbered_and_canonical(filled):
    lines = filled.read_bytes().split(b"\n")
    assert lines.pop() == b""
    previous = GENESIS
    for number, line in enumerate(lines):
        record = json.loads(line)
        assert set(record) == {"seq", "time", "run_id", "event", "actor", "data", "prev"}
        assert (record["seq"], record["prev"], record["run_id"]) == (number, previous, "run-1")
        assert canonical(record) == line
        assert record["time"].endswith("Z")
        previous = sha256(line)
    check = check_chain(filled)
    assert (check.intact, check.lines, check.head, check.torn_lines) == (True, 5, previous, [])


def test_append_returns_the_digest_that_the_next_line_holds(path):
    ledger = Ledger(path, "run-1", "learner")
    digests = [ledger.append("step", step=n) for n in range(3)]
    assert [event["prev"] for event in read_events(path)] == [GENESIS, *digests[:-1]]
    assert check_chain(path).head == digests[-1]


def test_an_empty_or_missing_ledger_is_intact_and_empty(path):
    assert check_chain(path).intact and read_events(path) == []
    path.parent.mkdir()
    path.write_bytes(b"")
    assert check_chain(path).lines == 0


def test_values_that_canonical_json_cannot_hold_leave_the_ledger_as_it_was(filled):
    before = filled.read_bytes()
    with pytest.raises(ValueError):
        Ledger(filled, "run-1", "learner").append("step", loss=float("nan"))
    assert filled.read_bytes() == before


# ---- torn lines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 20, -2])
def test_a_torn_line_is_kept_closed_and_recorded(filled, keep):
    whole = filled.read_bytes().split(b"\n")
    torn = whole[4][:keep]
    filled.write_bytes(b"\n".join(whole[:4]) + b"\n" + torn)
    assert check_chain(filled).torn_lines == [5] and len(read_events(filled)) == 4

    Ledger(filled, "run-1", "learner").append("step", step=9)
    lines = filled.read_bytes().split(b"\n")
    assert lines[4] == torn  # evidence stays
    assert [event["event"] for event in read_events(filled)][-2:] == ["resumed", "step"]
    assert json.loads(lines[5])["prev"] == sha256(torn) and json.loads(lines[5])["data"] == {
        "torn_line": True
    }
    check = check_chain(filled)
    assert check.intact and check.torn_lines == [5] and check.lines == 7


def test_a_whole_line_without_its_newline_counts_as_torn_and_stays_an_event(filled):
    filled.write_bytes(filled.read_bytes().removesuffix(b"\n"))
    Ledger(filled, "run-1", "learner").append("step", step=9)
    assert [event["event"] for event in read_events(filled)] == ["step"] * 5 + ["resumed", "step"]
    assert check_chain(filled).intact


def test_two_crashes_leave_two_torn_lines_in_one_chain(filled):
    for _ in range(2):
        with filled.open("ab") as handle:
            handle.write(b'{"actor":"lea')
        Ledger(filled, "run-1", "learner").append("step", step=9)
    check = check_chain(filled)
    assert check.intact and check.torn_lines == [6, 9]
    assert [json.loads(line)["seq"] for line in filled.read_bytes().splitlines() if line.endswith(b"}")] == [
        0, 1, 2, 3, 4, 6, 7, 9, 10,
    ]  # fmt: skip


def test_a_ledger_that_begins_torn_goes_on(path):
    path.parent.mkdir()
    path.write_bytes(b'{"act')
    Ledger(path, "run-1", "learner").append("step", step=1)
    check = check_chain(path)
    assert check.intact and check.torn_lines == [1] and check.lines == 3


def test_foreign_bytes_in_the_middle_are_a_fault_not_a_crash_to_forgive(filled):
    lines = filled.read_bytes().split(b"\n")
    filled.write_bytes(b"\n".join([*lines[:2], b"not json", *lines[2:]]))
    assert not check_chain(filled).intact


# ---- tampering -----------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_but_the_last_lines_own_is_found(filled, data):
    original = filled.read_bytes()
    try:
        place = data.draw(st.integers(0, original.rstrip(b"\n").rfind(b"\n") - 1))
        value = data.draw(st.integers(0, 255).filter(lambda v: v != original[place]))
        filled.write_bytes(original[:place] + bytes([value]) + original[place + 1 :])
        assert found(filled)
        read_events(filled)
    finally:
        filled.write_bytes(original)


@pytest.mark.parametrize("place", range(4))
def test_a_dropped_line_is_found(filled, place):
    lines = filled.read_bytes().splitlines(keepends=True)
    filled.write_bytes(b"".join(lines[:place] + lines[place + 1 :]))
    assert not check_chain(filled).intact


@pytest.mark.parametrize("place", range(4))
def test_swapped_lines_are_found(filled, place):
    lines = filled.read_bytes().splitlines(keepends=True)
    lines[place], lines[place + 1] = lines[place + 1], lines[place]
    filled.write_bytes(b"".join(lines))
    assert not check_chain(filled).intact


@pytest.mark.parametrize("place", range(5))
def test_an_inserted_line_is_found(filled, place):
    lines = filled.read_bytes().splitlines(keepends=True)
    lines.insert(place, lines[min(place, 4)])
    filled.write_bytes(b"".join(lines))
    assert not check_chain(filled).intact


@pytest.mark.parametrize("place", range(6))
def test_a_blank_line_is_found(filled, place):
    lines = filled.read_bytes().splitlines(keepends=True)
    lines.insert(place, b"\n")
    filled.write_bytes(b"".join(lines))
    assert found(filled)


def test_a_blank_line_at_the_end_does_not_vanish_under_the_next_event(filled):
    filled.write_bytes(filled.read_bytes() + b"\n")
    Ledger(filled, "run-1", "learner").append("step", step=9)
    assert found(filled)


def test_a_record_rewritten_in_other_spelling_is_found(filled):
    lines = filled.read_bytes().splitlines()
    record = json.loads(lines[-1])
    filled.write_bytes(b"\n".join([*lines[:-1], json.dumps(record).encode()]) + b"\n")
    assert any("canonical" in fault for fault in check_chain(filled).faults)


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"9007199254740993", b"1e999", b'"\\ud800"'])
def test_values_outside_canonical_json_are_a_fault_and_never_an_exception(filled, value):
    raw = filled.read_bytes()
    assert raw.count(b'"step":4') == 1
    filled.write_bytes(raw.replace(b'"step":4', b'"step":' + value))
    assert not check_chain(filled).intact
    assert len(read_events(filled)) == 5


@pytest.mark.parametrize("line", [b"[]", b"5", b"null", b'"text"', b"{}", b"[" * 5000 + b"]" * 5000])
def test_json_that_is_no_record_is_found_and_never_an_exception(filled, line):
    filled.write_bytes(filled.read_bytes() + line + b"\n")
    assert found(filled)
    assert [event for event in read_events(filled) if event.get("event") == "step"]
    Ledger(filled, "run-1", "learner").append("step", step=9)


# ---- several writers -----------------------------------------------------------------------------------------


def test_two_processes_append_to_one_chain(path):
    code = (
        "import sys; from pathlib import Path; from grpo_lib.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]), 'run-1', sys.argv[2])\n"
        "for number in range(60): ledger.append('step', step=number)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    check = check_chain(path)
    assert check.intact and check.lines == 120 and not check.torn_lines
    events = read_events(path)
    for name in ("one", "two"):
        assert [e["data"]["step"] for e in events if e["actor"] == name] == list(range(60))
