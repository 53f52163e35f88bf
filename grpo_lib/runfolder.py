"""The run folder: one place that holds everything a run leaves behind, and how files appear in it.

Files appear by write-then-rename, so that a reader never meets half a file. Append-only files (ledger, metrics,
timeline) get whole lines. One lock per run id keeps two launches from sharing a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import rfc8785

from grpo_lib.errors import WrongInput, isolate


def canonical(value: Any) -> bytes:
    """Canonical JSON bytes (RFC 8785), the only form that digests and ledger lines are taken from."""
    return rfc8785.dumps(value)


def sha256(data: bytes) -> str:
    """SHA-256 of `data` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes as 64 hexadecimal digits."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write `data` under a temporary name beside `path`, flush it to disk, then rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode("utf-8") if isinstance(data, str) else data
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(raw)
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable UTF-8 JSON, atomically."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n")


def append_line(path: Path, value: Any) -> None:
    """Append `value` as one JSON line in a single write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as handle:
        handle.write(json.dumps(value, ensure_ascii=False).encode("utf-8") + b"\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All JSON objects of `path`; a line torn by a crash is left out. A missing file has no lines."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_bytes().split(b"\n"):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


class RunFolder:
    """Paths of one run under `runs_dir/run_id`, and its lock."""

    def __init__(self, root: Path | str):
        self.root = Path(root).absolute()
        self.settings = self.root / "settings.json"
        self.statements = self.root / "statements.json"
        self.decision = self.root / "decision.json"
        self.data_manifest = self.root / "data_manifest.json"
        self.packs = self.root / "packs"
        self.packages = self.root / "packages.json"
        self.screen = self.root / "pii.json"
        self.network = self.root / "network.json"
        self.custody = self.root / "custody.json"
        self.ledger = self.root / "ledger" / "events.jsonl"
        self.tree_heads = self.root / "ledger" / "tree-heads"
        self.statement = self.root / "statement.dsse.json"
        self.rollouts = self.root / "rollouts"
        self.metrics = self.root / "metrics.jsonl"
        self.timeline = self.root / "timeline.jsonl"
        self.transport = self.root / "transport.json"
        self.evaluation = self.root / "evaluation.json"
        self.adapters = self.root / "adapters"
        self.checkpoints = self.root / "checkpoints"
        self.logs = self.root / "logs"
        self.notebooks = self.root / "notebooks"
        self.reports = self.root / "reports"
        self.manifest = self.root / "manifest.json"

    @property
    def run_id(self) -> str:
        return self.root.name

    def adapter(self, version: int) -> Path:
        """Folder of one stored adapter version, in PEFT's own format."""
        return self.adapters / f"v{version:06d}"

    def adapter_versions(self) -> list[int]:
        """Stored adapter versions, ascending."""
        return sorted(int(path.name[1:]) for path in self.adapters.glob("v[0-9]*"))

    @contextmanager
    def locked(self, name: str = "run", timeout_s: float = 0.0) -> Iterator[None]:
        """Hold one of the run's locks, waiting for it at most `timeout_s` seconds.

        Raises:
            WrongInput: another live process holds it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self.root / f".{name}.lock")
        try:
            lock.acquire(timeout=timeout_s)
        except filelock.Timeout:
            raise WrongInput(
                ar=f"التشغيل {isolate(self.run_id)} قيد التنفيذ في عملية أخرى. انتظر انتهاءها أو اختر run_id آخر.",
                en=f"Run {self.run_id!r} is in progress in another process. Wait for it, or choose another run_id.",
            ) from None
        try:
            yield
        finally:
            lock.release()
