"""Two bundles of a run: the *evidence*, without data, which may leave; and the *replay annex*, sealed, which stays.

What goes into the evidence bundle is named here, file by file; anything else stays behind, so that a new kind of file
cannot slip in. Adapters are named by digest alone, since weights can remember what they were trained on. Settings that
hold a local path are withheld and named by digest too: paths name users and machines.

The same run folder gives the same bytes: fixed order and times, and no compression, since compressors differ from
version to version. That is also why the ledger does not record a bundle: a bundle holds the ledger.

    python -m grpo_lib.bundle evidence RUN_ID
    python -m grpo_lib.bundle replay RUN_ID      # needs the run's key, to check the records before they are bundled
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from compliance import path as data_path
from grpo_lib import attestation, command, step_records
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.incidents import public
from grpo_lib.process import exit_with
from grpo_lib.runfolder import RunFolder, file_sha256, sha256
from grpo_lib.vault import load_key

FOLDER = "bundles"
_SCHEMA = "grpo-lib/bundle/1"
_EVIDENCE = (
    "settings.json",
    "statements.json",
    "packages.json",
    "decision.json",
    "packs/*.yaml",
    "data_manifest.json",
    "pii.json",
    "network.json",
    "custody.json",
    "lowerings/*.json",
    "releases/*.json",
    "ledger/events.jsonl",
    "ledger/tree-heads/*.note",
    "ledger/tree-heads/*.pub.pem",
    "statement.dsse.json",
    "metrics.jsonl",
    "timeline.jsonl",
    "transport.json",
    "evaluation.json",
    "memorisation.json",
    "manifest.json",
    "reports/**/*.html",
    "reports/**/*.pdf",
    "reports/**/*.md",
    "reports/**/*.json",
)
# What a zip entry says of its time where it has none: the beginning of the format's own calendar.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def path_of(run: RunFolder, kind: str) -> Path:
    """Where the bundle of this kind lies."""
    return run.root / FOLDER / f"{run.run_id}-{kind}.zip"


def evidence(run: RunFolder) -> Path:
    """Write the evidence bundle.

    Raises:
        WrongInput: the run is in progress, or there is no ledger to prove anything by.
    """
    files, about = _evidence(run)
    if _holds_a_path(run.settings):
        files.remove(run.settings)
        about["withheld"].append(_entry(run, run.settings) | {"why": "holds a local path"})
    return _write(run, "evidence", files, about, {})


def _evidence(run: RunFolder) -> tuple[list[Path], dict[str, Any]]:
    """Files without data, and what the bundle says of those that it leaves out."""
    found = {path for pattern in _EVIDENCE for path in run.root.glob(pattern)}
    # A link, of the file or of a folder on the way, could lead to anything.
    root = run.root.resolve()
    files = sorted(p for p in found if p.is_file() and p.resolve() == root / p.relative_to(run.root))
    withheld = [
        _entry(run, path) | {"why": "not a kind of file that leaves"}
        for path in attestation.subjects(run)
        if path not in files and not path.is_relative_to(run.adapters)
    ]
    adapters = [_entry(run, path) for path in sorted(run.adapters.glob("v*/adapter_model.safetensors"))]
    return files, {"withheld": withheld, "adapters_by_digest": adapters}


def replay(run: RunFolder) -> Path:
    """Write the replay annex from records that open and match the ledger.

    Raises:
        WrongInput: as for `evidence`; or the key is gone, there are no records, or some do not match the ledger.
    """
    records = sorted(run.rollouts.glob("*.sealed"))
    if not records:
        raise WrongInput(
            ar=f"لا سجلات مختومة في {isolate(run.run_id)}: أُتلفت، أو لم يكتمل التدريب خطوة واحدة.",
            en=f"There are no sealed records in {run.run_id}: they were purged, or no step was completed.",
        )
    faults = step_records.check(run, load_key(run.run_id))
    if faults:
        raise WrongInput(
            ar=f"سجلات {isolate(run.run_id)} المختومة لا تطابق السجل، فلا يُبنى ملحق منها:\n"
            + "\n".join(f"  • {ar}" for ar, _ in faults[:10]),
            en=f"The sealed records of {run.run_id} do not match the ledger; no annex is made of them:\n"
            + "\n".join(f"  • {en}" for _, en in faults[:10]),
        )
    files, about = _evidence(run)
    about["sealed_records"] = len(records)
    return _write(run, "replay", [*files, *records], about, {"records": len(records)})


def _holds_a_path(settings: Path) -> bool:
    """Whether settings.json names a folder of this machine; one that cannot be read is held back as well."""
    try:
        values = json.loads(settings.read_text(encoding="utf-8")).values()
    except FileNotFoundError:
        return False
    except (OSError, ValueError, AttributeError):
        return True
    return any(isinstance(value, str) and public(value, len(value)) != value for value in values)


def _entry(run: RunFolder, path: Path) -> dict[str, Any]:
    return {
        "file": path.relative_to(run.root).as_posix(),
        "sha256": file_sha256(path),
        "bytes": path.stat().st_size,
    }


def _write(
    run: RunFolder, kind: str, files: list[Path], about: dict[str, Any], values: dict[str, Any]
) -> Path:
    with run.locked():
        if run.ledger not in files:
            raise WrongInput(
                ar=f"لا سجل أحداث في {isolate(run.run_id)}، فلا شيء يمكن التحقق منه.",
                en=f"Run {run.run_id} holds no ledger, so there is nothing to verify.",
            )
        made = {
            "README.md": _readme(kind, run_id=run.run_id, **values),
            "verify.py": data_path("verify.py").read_bytes(),
            "verify.sh": data_path("verify.sh").read_bytes(),
            "bundle.json": _json({"schema": _SCHEMA, "kind": kind, "run_id": run.run_id, **about}),
        }
        named = {path.relative_to(run.root).as_posix(): path for path in files}
        digests = {name: file_sha256(path) for name, path in named.items()}
        digests |= {name: sha256(data) for name, data in made.items()}
        made["SHA256SUMS"] = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()
        target = path_of(run, kind)
        target.parent.mkdir(exist_ok=True)
        descriptor, staged = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as handle, zipfile.ZipFile(handle, "w") as archive:
                for name in sorted([*named, *made]):
                    data = made[name] if name in made else named[name].read_bytes()
                    archive.writestr(_plain(f"{run.run_id}/{name}"), data)
            os.chmod(staged, 0o644)
            os.replace(staged, target)
        except BaseException:
            Path(staged).unlink(missing_ok=True)
            raise
    return target


def _plain(name: str) -> zipfile.ZipInfo:
    """An uncompressed entry that says nothing of when and on what system it was made."""
    entry = zipfile.ZipInfo(name, date_time=_NO_TIME)
    entry.create_system, entry.external_attr = 3, 0o644 << 16
    return entry


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()


def _readme(kind: str, **values: Any) -> bytes:
    """The README of a bundle in both languages; in its Arabic half values are isolated, not in its commands."""
    latin = {"bundle_json": "bundle.json", "python": "Python 3.11", "openssl": "OpenSSL 3", "runs": "RUNS"}
    latin |= {"zero": 0, "one": 1, "three": 3, "four": 4, **values}
    text = data_path("bundles", f"{kind}.md").read_text(encoding="utf-8")
    lines = [
        line.format(**({key: isolate(value) for key, value in latin.items()} if _arabic(line) else latin))
        for line in text.splitlines(keepends=True)
    ]
    return "".join(lines).encode()


def _arabic(line: str) -> bool:
    return any("\u0600" <= char <= "\u06ff" for char in line)


def main() -> None:
    parser = command.parser(
        "bundle",
        "Make the evidence bundle or the replay annex of a run.",
        "إعداد حزمة الأدلة أو ملحق إعادة التدريب",
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    texts = {
        "evidence": "أدلة بلا بيانات، يجوز أن تغادر | evidence without data, may leave",
        "replay": "سجلات مختومة، تبقى في الجهة | sealed records, stays inside",
    }
    for kind, text in texts.items():
        command.add_run(kinds.add_parser(kind, help=text, description=text))
    args: argparse.Namespace = parser.parse_args()
    run = command.run_of(args)
    made = evidence(run) if args.kind == "evidence" else replay(run)
    print(f"كُتبت الحزمة | bundle written: {made.relative_to(run.root.parent)}")
    print(f"SHA-256: {file_sha256(made)}")


if __name__ == "__main__":
    exit_with(main)
