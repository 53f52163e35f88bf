"""Step records: what each optimizer step was trained on, sealed, in order, so that training can be replayed.

One record per optimizer step, `rollouts/<n>.sealed`: the rollout batches that first served in this step, byte for byte
as the workers sent them, and which groups of which batch made the step, in the order of training. One record per step
and not one per batch, because a step is then there whole or not at all, costs one flush to disk, and batches that were
dropped as stale, hence never trained on, are not kept. A batch that serves several steps is stored with the first; the
later ones point at it.

Records are numbered over the life of the run. After a resume from the checkpoint of step k, the steps k + 1, ... are
recorded again under new numbers and another session; `replay_order` tells the line that led to the last step.

    python -m grpo_lib.step_records RUN_ID       # every record against the ledger; needs the run's key
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_lib import command
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.incidents import data_of
from grpo_lib.ledger import read_events
from grpo_lib.process import exit_with
from grpo_lib.runfolder import RunFolder, canonical, write_atomic
from grpo_lib.vault import RunKey, broken, load_key, seal, unseal

_SCHEMA = "grpo-lib/step-record/1"


@dataclass(frozen=True)
class StepRecord:
    """What one optimizer step was trained on.

    Attributes:
        number: of the record, from 0 over the life of the run.
        session: number of the first record that the same learner process made.
        step: optimizer step, from 1.
        groups: (payload of the batch, place of the group in it), in the order of training.
        digest: keyed digest, as the ledger holds it.
    """

    number: int
    session: int
    step: int
    groups: tuple[tuple[bytes, int], ...]
    digest: str


class Sealer:
    """Writes the step records of one learner process.

    Attributes:
        seconds: spent in here so far, flush to disk included.
    """

    def __init__(self, run: RunFolder, key: RunKey):
        self._run, self._key = run, key
        # Also what the ledger names: the number of a record that somebody removed is not given out again.
        self.next = max([*numbers(run), *_in_ledger(run)], default=-1) + 1
        self.session = self.next
        self.seconds = 0.0
        self._known: dict[bytes, tuple[int, int]] = {}  # batch of the step before -> (record, place in it)
        self._chain = key.digest(b"")

    def step(self, step: int, groups: Sequence[tuple[bytes, int]]) -> dict[str, Any]:
        """Seal one step; returns what its ledger line says: record number and keyed digest.

        Args:
            step: optimizer step, from 1.
            groups: (payload of the batch, place of the group in it), in the order of training.
        """
        begun = time.perf_counter()
        number, fresh, places = self.next, [], {}
        for payload, _ in groups:
            if payload not in places:
                places[payload] = self._known.get(payload) or (number, len(fresh))
                if places[payload][0] == number:
                    fresh.append(payload)
        header = canonical(
            {
                "schema": _SCHEMA,
                "session": self.session,
                "step": step,
                "batches": [len(payload) for payload in fresh],
                "groups": [[*places[payload], place] for payload, place in groups],
            }
        )
        record = b"".join([header, b"\n", *fresh])
        write_atomic(_path(self._run, number), seal(self._key, number, record))
        digest = self._key.digest(record)
        self._chain = self._key.digest(bytes.fromhex(self._chain + digest))
        # Batches are consumed in the order in which they came, so one that this step did not use is used up.
        self._known, self.next = places, number + 1
        self.seconds += time.perf_counter() - begun
        return {"record": number, "hmac": digest}

    def summary(self) -> dict[str, Any]:
        """For the ledger when the session ends: its records, one keyed digest over theirs, and the time they took."""
        return {
            "first": self.session,
            "count": self.next - self.session,
            "hmac": self._chain,
            "seconds": round(self.seconds, 4),
        }


class Reader:
    """Reads the step records of a run."""

    def __init__(self, run: RunFolder, key: RunKey):
        self._run, self._key = run, key
        self._opened: dict[int, tuple[dict[str, Any], list[bytes], str]] = {}

    def read(self, number: int) -> StepRecord:
        """One record.

        Raises:
            WrongInput: it, or an earlier record that it points at, is missing or does not open.
        """
        header, _, digest = self._open(number)
        groups = tuple((self._open(record)[1][batch], place) for record, batch, place in header["groups"])
        # The next one may point at these too.
        needed = {number, *(record for record, _, _ in header["groups"])}
        self._opened = {kept: self._opened[kept] for kept in needed}
        return StepRecord(number, header["session"], header["step"], groups, digest)

    def replay_order(self) -> list[int]:
        """Records that led to the last step, in order: a session that began again at step k replaces what came after."""
        line: list[tuple[int, int, int]] = []
        for number in numbers(self._run):
            record = self.read(number)
            if not line or line[-1][1] != record.session:
                line = [kept for kept in line if kept[2] < record.step]
            line.append((number, record.session, record.step))
        return [number for number, _, _ in line]

    def _open(self, number: int) -> tuple[dict[str, Any], list[bytes], str]:
        if number not in self._opened:
            path = _path(self._run, number)
            if not path.is_file():
                raise broken(path.name, "مفقود", "is missing")
            record = unseal(self._key, number, path.read_bytes(), path.name)
            head, _, rest = record.partition(b"\n")
            header, batches = json.loads(head), []
            for size in header["batches"]:
                batches.append(rest[:size])
                rest = rest[size:]
            self._opened[number] = header, batches, self._key.digest(record)
        return self._opened[number]


def check(run: RunFolder, key: RunKey) -> list[tuple[str, str]]:
    """Every record against the ledger, in both directions; faults as (Arabic, English), none if all hold.

    A record without a ledger line is no fault if it is the last of its session: the process ended between the two.
    """
    faults: list[tuple[str, str]] = []
    said, reader, sessions = _in_ledger(run), Reader(run, key), {}
    for number in numbers(run):
        name = _path(run, number).name
        try:
            record = reader.read(number)
        except WrongInput as error:
            faults.append((error.ar, error.en))
            continue
        sessions[number] = record.session
        if number in said and said[number] != record.digest:
            faults.append((f"{isolate(name)} غير الذي في السجل.", f"{name} is not the one in the ledger."))
    for number, session in sessions.items():
        if number not in said and sessions.get(number + 1) == session:
            name = _path(run, number).name
            faults.append((f"{isolate(name)} ليس في السجل.", f"{name} is not in the ledger."))
    for number in sorted(said.keys() - set(numbers(run))):
        name = _path(run, number).name
        faults.append(
            (f"{isolate(name)} في السجل وليس في المجلد.", f"{name} is in the ledger, not in the folder.")
        )
    return faults


def _path(run: RunFolder, number: int) -> Path:
    return run.rollouts / f"{number:06d}.sealed"


def numbers(run: RunFolder) -> list[int]:
    """Records that are there, ascending."""
    stems = [path.stem for path in run.rollouts.glob("*.sealed")]
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())


def _in_ledger(run: RunFolder) -> dict[int, str]:
    """Keyed digest of each record that a `step` line names."""
    found = {}
    for event in read_events(run.ledger):
        named = data_of(event).get("rollouts") if event.get("event") == "step" else None
        if isinstance(named, dict) and isinstance(named.get("record"), int):
            found[named["record"]] = named.get("hmac")
    return found


def main() -> None:
    parser = command.parser(
        "step_records",
        "Check every sealed step record against the ledger.",
        "مطابقة كل سجل خطوة مختوم مع السجل.",
    )
    command.add_run(parser)
    run = command.run_of(parser.parse_args())
    faults, count = check(run, load_key(run.run_id)), len(numbers(run))
    for ar, en in faults:
        print(f"{ar}\n{en}")
    print(f"سجلات مختومة: {isolate(count)}، مخالفات: {isolate(len(faults))}")
    print(f"sealed records: {count}, faults: {len(faults)}")
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    exit_with(main)
