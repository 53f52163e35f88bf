"""The ledger: one canonical JSON line per event, each holding the SHA-256 of the line before it.

The chain shows accidental damage and edits made without rewriting what follows. It does not show who wrote it, nor a
tail that was cut: signed tree heads and a witness do, and they are a later layer over these same lines. Only digests,
counts and labels go in: never a prompt, a row or a secret.

Several processes of one run append; a file lock orders them. A line torn by a crash is kept as evidence: the next
writer closes it, and records `resumed`.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock
import rfc8785

from grpo_lib.runfolder import canonical, read_lines, sha256

GENESIS = "0" * 64


def utc_now() -> str:
    """Current time as ISO 8601 with milliseconds, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Ledger:
    """Append-only event log of one run.

    Args:
        path: The JSON Lines file.
        run_id: Written into every line, so that lines of different runs cannot be mixed unnoticed.
        actor: Which process writes (`launcher`, `learner`, `report`).

    Attributes:
        seconds: spent in `append` so far, waiting for the lock included.
    """

    def __init__(self, path: Path, run_id: str, actor: str):
        self.path = path
        self.run_id = run_id
        self.actor = actor
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = filelock.FileLock(path.with_suffix(".lock"))
        self.seconds = 0.0

    def append(self, event: str, **data: Any) -> str:
        """Write one event; returns the SHA-256 of its line, which the next line's `prev` will hold."""
        begun = time.perf_counter()
        with self._lock, self.path.open("a+b") as handle:
            seq, prev, torn = self._tail(handle)
            if torn:
                handle.write(b"\n")
                seq, prev = self._write(handle, seq, prev, "resumed", {"torn_line": True})
            _, digest = self._write(handle, seq, prev, event, data)
        self.seconds += time.perf_counter() - begun
        return digest

    def _write(self, handle, seq: int, prev: str, event: str, data: dict[str, Any]) -> tuple[int, str]:
        line = canonical(
            {
                "seq": seq,
                "time": utc_now(),
                "run_id": self.run_id,
                "event": event,
                "actor": self.actor,
                "data": data,
                "prev": prev,
            }
        )
        handle.write(line + b"\n")
        handle.flush()
        return seq + 1, sha256(line)

    @staticmethod
    def _tail(handle) -> tuple[int, str, bool]:
        """(next sequence number, digest of the last line, whether that line is torn)."""
        # A record is far smaller than this; a longer tail would be a torn line of foreign bytes.
        size = handle.seek(0, 2)
        handle.seek(max(0, size - (1 << 20)))
        tail = handle.read()
        if not tail:
            return 0, GENESIS, False
        torn = not tail.endswith(b"\n")
        lines = tail.rstrip(b"\n").split(b"\n")
        for back, line in enumerate(reversed(lines)):
            try:
                # Torn lines that were closed earlier take a sequence number too.
                return json.loads(line)["seq"] + 1 + back, sha256(lines[-1]), torn
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
        return len(lines), sha256(lines[-1]), torn


@dataclass
class ChainCheck:
    """What re-hashing every line showed."""

    lines: int = 0
    head: str = GENESIS
    torn_lines: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        return not self.faults


def check_chain(path: Path) -> ChainCheck:
    """Re-hash every line of a ledger. Faults name the line (from 1) and what does not fit."""
    result = ChainCheck()
    raw = path.read_bytes() if path.is_file() else b""
    if raw and not raw.endswith(b"\n"):
        result.torn_lines.append(raw.count(b"\n") + 1)
    previous_torn = False
    for number, line in enumerate(raw.removesuffix(b"\n").split(b"\n") if raw else [], start=1):
        try:
            record = json.loads(line)
            seq, prev = record["seq"], record["prev"]
        except (ValueError, KeyError, TypeError, RecursionError):
            record = None
        if record is None:
            if number not in result.torn_lines:
                result.torn_lines.append(number)
            previous_torn = True
        else:
            if prev != result.head:
                result.faults.append(f"line {number}: prev is not the digest of line {number - 1}")
            if seq != number - 1:
                result.faults.append(f"line {number}: sequence number {seq}, expected {number - 1}")
            if not _is_canonical(record, line):
                result.faults.append(f"line {number}: not in canonical form")
            if previous_torn and record.get("event") != "resumed":
                result.faults.append(f"line {number}: a line that is not JSON stands before it")
            previous_torn = False
        result.head = sha256(line)
        result.lines = number
    return result


def _is_canonical(record: Any, line: bytes) -> bool:
    try:
        return canonical(record) == line
    except rfc8785.CanonicalizationError:  # NaN and the like, which JSON proper does not know
        return False


def read_events(path: Path) -> list[dict[str, Any]]:
    """All readable events in order."""
    return read_lines(path)
