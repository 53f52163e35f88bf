"""Digest of each file of a run beside the digest that the ledger holds for it.

States: `match`, `differs`, `missing` (in the ledger, not in the folder), `not_recorded` (no digest in the ledger).
Reports, executed notebooks, logs and the run manifest are written after or outside the ledger and are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_lib.incidents import data_of, public
from grpo_lib.runfolder import RunFolder, canonical, file_sha256, sha256

# Events that record the digest of a fixed file: event, file, field that holds the digest.
_FIXED = (
    ("run_started", "settings.json", "settings_sha256"),
    ("run_started", "packages.json", "packages_sha256"),
    ("gate_decided", "decision.json", "decision_sha256"),
    ("data_declared", "data_manifest.json", "data_manifest_sha256"),
    ("evaluated", "evaluation.json", "evaluation_sha256"),
    ("pii_screened", "pii.json", "pii_sha256"),
    ("network_observed", "network.json", "network_sha256"),
    ("stated", "statements.json", "statements_sha256"),
)


def compare(paths: RunFolder, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per file: name, digest on disk, size in bytes, ledger line, state."""
    recorded: dict[str, tuple[Any, int | None]] = {
        "metrics.jsonl": (None, None),
        "timeline.jsonl": (None, None),
    }
    for event in events:
        name, data, seq = event.get("event"), data_of(event), event.get("seq")
        for kind, file, field in _FIXED:
            if name == kind and field in data:
                recorded[file] = (data[field], seq)
        if name in ("adapter_published", "training_finished") and isinstance(data.get("version"), int):
            file = f"adapters/v{data['version']:06d}/adapter_model.safetensors"
            digest = data.get("sha256" if name == "adapter_published" else "adapter_sha256")
            # Only some published versions are kept; a version that was not kept is not missing, the last one is.
            if name == "training_finished" or (paths.root / file).is_file():
                recorded[file] = (digest, seq)
        elif name == "checkpoint_saved" and isinstance(data.get("files"), dict):
            folder = f"checkpoints/checkpoint-{data.get('step')}"
            # The trainer keeps only the newest checkpoints; a removed folder is not a missing file.
            if (paths.root / folder).is_dir():
                recorded |= {f"{folder}/{file}": (digest, seq) for file, digest in data["files"].items()}
    return [_row(paths.root, file, digest, seq) for file, (digest, seq) in sorted(recorded.items())]


def holdings(paths: RunFolder) -> list[dict[str, Any]]:
    """What the run left that came from its data: number of files and bytes per folder."""
    rows = []
    for folder in (paths.adapters, paths.checkpoints):
        sizes = [path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()]
        rows.append({"folder": folder.name, "files": len(sizes), "bytes": sum(sizes)})
    return rows


def of_decision(decision: dict[str, Any]) -> list[str]:
    """Digests that bind a decision: of its canonical JSON with and without its own `digest` field."""
    try:
        rest = {key: value for key, value in decision.items() if key != "digest"}
        return [sha256(canonical(decision)), sha256(canonical(rest))]
    except ValueError:
        return []


def _row(root: Path, name: str, recorded: Any, seq: int | None) -> dict[str, Any]:
    path = root / name
    row = {"file": public(name), "sha256": None, "bytes": None, "seq": seq}
    # A name that leads out of the run folder is not followed: evidence comes from inside it alone.
    inside = path.resolve().is_relative_to(root.resolve())
    if not inside or not path.is_file():
        return row | {"state": "missing" if recorded else "not_recorded"}
    digest = file_sha256(path)
    known = [digest]
    if path.suffix == ".json":
        # The ledger may hold the digest of the bytes or of the canonical JSON value; both bind the content.
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            known += of_decision(value) if name == "decision.json" else [sha256(canonical(value))]
        except (ValueError, AttributeError):
            pass  # not JSON: the digest of the bytes decides
    state = "not_recorded" if not recorded else "match" if recorded in known else "differs"
    return row | {"sha256": digest, "bytes": path.stat().st_size, "state": state}
