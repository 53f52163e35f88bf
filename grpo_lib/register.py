"""The register of runs: every run under a folder with its purpose, class, decision, expiry and adapter state.

It also answers "which adapters saw this data set?" by the digest of the data (`sha256` of the data manifest) or of the
manifest file itself. Built from the run folders alone, each time anew, so there is no second record that could differ.
A folder that cannot be read is listed as damaged with the reason; it never hides the others.

    python -m grpo_lib.register ROOT [--data SHA256] [--json]
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from grpo_lib import adapter_state, command
from grpo_lib.errors import GrpoError, WrongInput, isolate
from grpo_lib.incidents import data_of, public
from grpo_lib.ledger import check_chain, read_events
from grpo_lib.process import exit_with
from grpo_lib.runfolder import RunFolder, file_sha256

SCHEMA = "grpo-lib/register/1"
_DIGEST = re.compile(r"[0-9a-f]{8,64}")


def collect(root: Path, data: str = "") -> dict[str, Any]:
    """All runs under `root`, by run id; with `data`, those alone that were trained on that data set.

    Args:
        data: SHA-256 of the data or of the data manifest, or its first 8 or more digits.

    Raises:
        WrongInput: `root` is no folder, or `data` is no digest.
    """
    if not root.is_dir():
        raise WrongInput(
            ar=f"لا يوجد مجلد باسم {isolate(root)}. أعط المجلد الذي يضم التشغيلات، مثل {isolate('runs')}.",
            en=f"There is no folder {root}. Give the folder that holds the runs, such as runs.",
        )
    if data and not _DIGEST.fullmatch(data):
        raise WrongInput(
            ar=f"{isolate(data)} ليست بصمة. أعط {isolate('SHA-256')} كما في بيان البيانات، أو أول ثمانية أرقام منها على الأقل.",
            en=f"{data!r} is no digest. Give the SHA-256 from a data manifest, or at least its first eight digits.",
        )
    runs = [_row(path) for path in sorted(root.iterdir()) if _looks_like_a_run(path)]
    if data:
        # A damaged folder may have seen the data set, for all that can be told; it is not left out.
        runs = [row for row in runs if row["damaged"] or any(d.startswith(data) for d in row["data"])]
    return {"schema": SCHEMA, "data": data or None, "runs": runs}


def _looks_like_a_run(path: Path) -> bool:
    try:
        return path.is_dir() and not path.name.startswith(".") and any(path.iterdir())
    except OSError:
        return True  # closed to this user: listed, as damaged


def _row(path: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"run_id": path.name, "damaged": [], "data": []}
    try:
        run = RunFolder(path)
        settings, decision = _object(run.settings, row), _object(run.decision, row)
        manifest = _object(run.data_manifest, row)
        events = [event for event in read_events(run.ledger) if isinstance(event.get("event"), str)]
        check = check_chain(run.ledger)
        if not events:
            row["damaged"].append("ledger: no readable event")
        if manifest and not isinstance(manifest.get("sha256"), str):
            row["damaged"].append("data_manifest.json: no digest of the data")
        row["damaged"] += [f"ledger: {fault}" for fault in check.faults[:1]]
        digests = [
            manifest.get("sha256"),
            file_sha256(run.data_manifest) if run.data_manifest.is_file() else None,
        ]
        row["data"] = [digest for digest in digests if isinstance(digest, str)]
        ends = [data_of(event).get("status") for event in events if event.get("event") == "run_ended"]
        row |= {name: _text(settings.get(name)) for name in ("purpose", "organisation", "retention_until")}
        row |= {
            "class": _text(settings.get("data_class")),
            "personal_data": _text(settings.get("personal_data")),
            "decision": _text(decision.get("verdict")),
            "decision_until": _expiry(decision),
            "started": _text(events[0].get("time")) if events else None,
            "status": _text(ends[-1]) if ends else None,
            "adapters": {
                run.adapter(version).name: file_sha256(run.adapter(version) / "adapter_model.safetensors")
                for version in run.adapter_versions()
            },
            "adapter": _standing(run),
        }
    except GrpoError as error:
        row["damaged"].append(public(error.en))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        row["damaged"].append(public(f"{type(error).__name__}: {error}"))
    return row


def _standing(run: RunFolder) -> dict[str, Any]:
    stands = adapter_state.of(run)
    return {name: stands[name] for name in ("class", "inherited_class", "state")}


def _object(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    """A JSON object, or an empty one with the damage noted."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        row["damaged"].append(f"{path.name}: missing")
        return {}
    except (OSError, ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    row["damaged"].append(f"{path.name}: unreadable")
    return {}


def _text(value: Any) -> str | None:
    return public(value) if isinstance(value, str) and value else None


def _expiry(decision: dict[str, Any]) -> str | None:
    """First day on which something that the decision rests on lapses: a review, a piece of evidence or an override."""
    found = [(decision.get("override") or {}).get("until")]
    found += [((pack or {}).get("review") or {}).get("until") for pack in decision.get("packs") or []]
    found += [((one or {}).get("evidence") or {}).get("expires") for one in decision.get("conditions") or []]
    return min((day for day in found if isinstance(day, str) and day), default=None)


_COLUMNS = {
    "run_id": "التشغيل | run",
    "purpose": "الغرض | purpose",
    "class": "التصنيف | class",
    "decision": "القرار | decision",
    "decision_until": "يسري حتى | valid until",
    "retention_until": "يُحفظ حتى | kept until",
    "adapter": "المُهايئ | adapter",
}


def table(register: dict[str, Any]) -> str:
    """The register as text, one run a line."""
    rows = [list(_COLUMNS.values()), *([_cell(row, name) for name in _COLUMNS] for row in register["runs"])]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_COLUMNS))]
    lines = []
    for number, row in enumerate(rows):
        # Isolated cell by cell, so that one in Arabic does not reorder its neighbours; isolates have no width.
        lines.append(
            "  ".join(
                isolate(cell) + " " * (width - len(cell)) for cell, width in zip(row, widths, strict=True)
            )
        )
        if number and register["runs"][number - 1]["damaged"]:
            lines += [
                f"    تالف | damaged: {isolate(reason)}" for reason in register["runs"][number - 1]["damaged"]
            ]
    return "\n".join(lines)


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if name == "adapter" and value:
        return f"{value['class'] or '?'}, {value['state']}"
    return str(value or "-")


def main() -> None:
    parser = command.parser("register", "List all runs of a folder.", "قائمة التشغيلات في مجلد")
    parser.add_argument("root", metavar="ROOT", type=Path, help="مجلد التشغيلات | folder of runs")
    parser.add_argument(
        "--data",
        default="",
        metavar="SHA256",
        help="أي مُهايئات رأت هذه البيانات؟ | which adapters saw this data set?",
    )
    parser.add_argument("--json", action="store_true", help="للبرامج | for programs")
    args = parser.parse_args()
    register = collect(args.root, args.data)
    if args.json:
        print(json.dumps(register, ensure_ascii=False, indent=1))
        return
    print(table(register))
    for row in register["runs"] if args.data else []:
        for version, digest in row.get("adapters", {}).items():
            print(f"{row['run_id']}  {version}  {digest}")


if __name__ == "__main__":
    exit_with(main)
