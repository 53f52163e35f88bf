"""Trainer checkpoints: sealed by digests in the ledger, and loaded only if they still match.

transformers loads optimizer, scheduler and random state with `weights_only=True`; the adapter is safetensors. A
checkpoint without a ledger record was cut off while it was written, and is not used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_lib.ledger import Ledger, read_events
from grpo_lib.runfolder import RunFolder, file_sha256, write_json

FEED_STATE = "feed_state.json"


def seal(folder: Path, step: int, feed_state: dict[str, Any], ledger: Ledger) -> None:
    """Add the feed's state to a finished checkpoint and record the digest of each of its files."""
    write_json(folder / FEED_STATE, feed_state)
    files = {
        str(path.relative_to(folder)): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    ledger.append("checkpoint_saved", step=step, files=files)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that matches the ledger."""

    folder: Path
    step: int

    def feed_state(self) -> dict[str, Any]:
        return json.loads((self.folder / FEED_STATE).read_text(encoding="utf-8"))


def newest_sound(run: RunFolder, refuse: Callable[[int, str], None] = lambda *_: None) -> Checkpoint | None:
    """The newest checkpoint that matches the ledger; None starts from the beginning.

    Args:
        refuse: called with (step, reason) for every newer one that was passed over.
    """
    sealed = {
        e["data"]["step"]: e["data"]["files"]
        for e in read_events(run.ledger)
        if e["event"] == "checkpoint_saved"
    }
    folders = {int(path.name.rpartition("-")[2]): path for path in run.checkpoints.glob("checkpoint-*")}
    for step in sorted(folders, reverse=True):
        reason = _fault(folders[step], sealed.get(step))
        if reason is None:
            return Checkpoint(folders[step], step)
        refuse(step, reason)
    return None


def _fault(folder: Path, files: dict[str, str] | None) -> str | None:
    if files is None:
        return "not in the ledger"
    present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    if present != set(files):
        return "files missing or added"
    for name, digest in files.items():
        if file_sha256(folder / name) != digest:
            return f"{name} changed"
    return None
