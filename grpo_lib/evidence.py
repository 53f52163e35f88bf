"""Everything a report may say about a run, drawn from its run folder alone and nothing else.

`collect` returns one JSON-able dict. Each figure is a fact: its value, where it was read (file, field, ledger sequence
number), and, where there is none, whether a person has not stated it or the run has not measured it. A missing or
damaged file never stops the collection: it is a reason for the report to be a draft.

Lines of the kinds in `CLOSING` at the end of the ledger are checked but not counted, so that a report rebuilt later from
the same folder has the same bytes as the first, and its digest can be compared with the one in the ledger.
Reads without torch, so that an officer's machine can build reports.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from grpo_lib import actions, digests, drafts, measures, oversight
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.facts import fact
from grpo_lib.incidents import cleaned, data_of, find, public
from grpo_lib.ledger import check_chain, read_events
from grpo_lib.runfolder import RunFolder, file_sha256, read_lines, sha256
from grpo_lib.settings import TEACHING_MODEL, RunSettings

SCHEMA = "grpo-lib/evidence/1"
LEDGER = "ledger/events.jsonl"
# Written once the reports are there; a report does not speak of itself.
CLOSING = ("report_built", "statement_signed")


class _Folder:
    """Reads files of a run folder and remembers which were missing or unreadable."""

    def __init__(self, root: Path):
        self.paths = RunFolder(root)
        self.problems: list[dict[str, str]] = []

    def name(self, path: Path) -> str:
        return path.relative_to(self.paths.root).as_posix()

    def json(self, path: Path) -> dict[str, Any]:
        """A JSON object, or an empty dict with the problem noted."""
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(value, dict):
                return value
            problem = "unreadable"
        except FileNotFoundError:
            problem = "missing"
        except (OSError, ValueError):
            problem = "unreadable"
        self.problems.append({"file": self.name(path), "problem": problem})
        return {}

    def optional(self, path: Path) -> dict[str, Any]:
        """Like `json`, for a file whose absence is no fault."""
        return self.json(path) if path.is_file() else {}

    def rows(self, path: Path) -> list[dict[str, Any]]:
        """Whole JSON lines that are objects."""
        if not path.is_file():
            self.problems.append({"file": self.name(path), "problem": "missing"})
            return []
        return [row for row in read_lines(path) if isinstance(row, dict)]


def collect(run_dir: Path | str) -> dict[str, Any]:
    """Evidence of the run in `run_dir`.

    Raises:
        WrongInput: there is no such folder. Anything missing inside it is said in the evidence instead.
    """
    root = Path(run_dir)
    if not root.is_dir():
        raise WrongInput(
            ar=f"لا يوجد مجلد تشغيل باسم {isolate(root.name)}. أعط مسار مجلد تحت runs/.",
            en=f"There is no run folder named {root.name!r}. Give the path of a folder under runs/.",
        )
    folder = _Folder(root)
    paths = folder.paths
    settings, decision = folder.json(paths.settings), folder.json(paths.decision)
    manifest, evaluation = folder.json(paths.data_manifest), folder.json(paths.evaluation)
    stated = folder.optional(paths.statements)
    metrics, timeline = folder.rows(paths.metrics), folder.rows(paths.timeline)
    ledger, events = _ledger(folder)

    started, ended = _last(events, "run_started"), _last(events, "run_ended")
    versions, machine = _part(started, "versions"), _part(started, "machine")
    evidence: dict[str, Any] = {
        "schema": SCHEMA,
        "run_id": fact(settings.get("run_id") or paths.run_id, "settings.json", "run_id"),
        "teaching": settings.get("model") == TEACHING_MODEL,
        "who": {name: _stated(settings, name, stated) for name in ("organisation", "responsible", "purpose")},
        "controller": _stated(settings, "controller"),
        "jurisdictions": _stated(settings, "jurisdictions"),
        "data": _data(settings, manifest, paths),
        "where": _where(settings, decision, events, versions, _last(events, "base_loaded"), stated),
        "until": {
            "started": _event_fact(_first(events, "run_started"), "time"),
            "ended": _event_fact(ended, "time"),
            "last_event": _event_fact(events[-1] if events else None, "time"),
            "retention_until": _stated(settings, "retention_until", stated),
        },
        "decision": oversight.decision(decision),
        "packs": oversight.rule_packs(paths.packs, decision),
        "screen": oversight.clean(folder.optional(paths.screen)) or None,
        "network": oversight.clean(folder.optional(paths.network)) or None,
        "signing": oversight.signing(paths, ledger["lines"]),
        "custody": oversight.custody(folder.optional(paths.custody), settings.get("data_class")),
        "purges": oversight.purges(events),
        "releases": oversight.releases(events),
        "memorisation": oversight.memorisation(folder.optional(paths.root / "memorisation.json")),
        "rollouts": {"files": sum(1 for _ in paths.rollouts.glob("*.sealed"))},
        "model": fact(public(settings.get("model") or ""), "settings.json", "model"),
        "status": fact(data_of(ended or {}).get("status"), LEDGER, "run_ended.status", _seq(ended)),
        "result": measures.result(evaluation),
        "settings": _settings(settings),
        "groups": measures.process_groups(events),
        "workers": measures.workers(events),
        "base": measures.base_model(events),
        "staleness": measures.staleness(events, settings),
        "sync": measures.sync(events),
        "overlap": measures.overlap(timeline),
        "traffic": measures.traffic(folder.optional(paths.transport)),
        "ledger": ledger,
        "versions": _facts(versions, started, "versions"),
        "machine": _facts(machine, started, "machine"),
        "packages": oversight.package_list(folder.optional(paths.packages)),
        "code_version": fact(
            data_of(started or {}).get("code_version"), LEDGER, "run_started.code_version", _seq(started)
        ),
        "incidents": find(events, ledger["torn_lines"], ledger["broken_lines"]),
        "files": digests.compare(paths, events),
        "holdings": digests.holdings(paths),
        "problems": folder.problems,
        "series": measures.series(metrics, timeline, evaluation, settings),
    }
    evidence["contradictions"] = drafts.contradictions(settings, decision, manifest, events)
    evidence["draft"] = drafts.reasons(evidence)
    evidence["actions"] = actions.collect(evidence)
    return evidence


# ---------------------------------------------------------------------------------------------------- ledger


def _ledger(folder: _Folder) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(the chain re-hashed, readable events without the closing `report_built` lines)."""
    path = folder.paths.ledger
    raw = path.read_bytes().removesuffix(b"\n").split(b"\n") if path.is_file() else []
    if not any(raw):
        folder.problems.append({"file": LEDGER, "problem": "missing" if not path.is_file() else "unreadable"})
        raw = []
    events = [cleaned(event) for event in read_events(path)]
    covered = len(raw)
    while events and events[-1].get("event") in CLOSING:
        events.pop()
        covered -= 1
    try:
        check = check_chain(path)
        faults, torn, checked = check.faults, check.torn_lines, True
    except ValueError as error:  # a line holds a number that canonical JSON cannot
        faults, torn, checked = [f"line 0: {error}"], [], False
    broken = sorted({int(number) for fault in faults for number in re.findall(r"^line (\d+)", fault)})
    return {
        "lines": covered,
        "first": sha256(raw[0]) if raw else None,
        "head": sha256(raw[covered - 1]) if covered else None,
        "intact": bool(events) and checked and not faults,
        "faults": [public(fault) for fault in faults[:20]],
        "broken_lines": broken[:20],
        "torn_lines": torn,
    }, events


def _first(events: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((event for event in events if event.get("event") == name), None)


def _last(events: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return _first(events[::-1], name)


def _seq(event: dict[str, Any] | None) -> int | None:
    return event.get("seq") if event else None


def _part(event: dict[str, Any] | None, name: str) -> dict[str, Any]:
    part = data_of(event or {}).get(name)
    return part if isinstance(part, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _scalar(value: Any) -> Any:
    """A list of plain values as one text; anything deeper is left out."""
    if isinstance(value, list):
        return ", ".join(str(part) for part in value if isinstance(part, str | int | float))
    return value


def _event_fact(event: dict[str, Any] | None, field: str) -> dict[str, Any]:
    name = event.get("event") if event else None
    return fact(
        event.get(field) if event else None, LEDGER, f"{name}.{field}" if name else field, _seq(event)
    )


def _facts(values: dict[str, Any], event: dict[str, Any] | None, name: str) -> dict[str, dict[str, Any]]:
    return {
        public(key, 40): fact(value, LEDGER, f"run_started.{name}.{public(key, 40)}", _seq(event))
        for key, value in sorted(values.items())
        if isinstance(value, str | int | float)
    }


# ------------------------------------------------------------------------------------ who, what, where, verdict


def _stated(settings: dict[str, Any], name: str, later: dict[str, Any] | None = None) -> dict[str, Any]:
    """What people said at the launch, or in the report notebook afterwards."""
    file = "settings.json" if settings.get(name) or not (later or {}).get(name) else "statements.json"
    value = settings.get(name) if file == "settings.json" else later[name]
    return fact(value if isinstance(value, str) else None, file, name, absent="not_stated")


def _settings(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Every stored setting with the description that `RunSettings` gives it in both languages."""
    rows = []
    for name, value in settings.items():
        field = RunSettings.model_fields.get(name)
        row = fact(
            value if isinstance(value, str | int | float) else None,
            "settings.json",
            name,
            absent="not_stated",
        )
        rows.append(
            {
                "name": public(name, 40),
                "ar": (field.json_schema_extra or {}).get("ar", "") if field else "",
                "en": field.description if field else "",
                **row,
            }
        )
    # The order of `RunSettings` groups what belongs together; the file is sorted by name.
    order = {name: index for index, name in enumerate(RunSettings.model_fields)}
    return sorted(rows, key=lambda row: (order.get(row["name"], len(order)), row["name"]))


def _data(settings: dict[str, Any], manifest: dict[str, Any], paths: RunFolder) -> dict[str, Any]:
    present = paths.data_manifest.is_file()
    return {
        "task": fact(settings.get("task"), "settings.json", "task"),
        "class": _stated(settings, "data_class"),
        "personal_data": _stated(settings, "personal_data"),
        "manifest_sha256": fact(
            file_sha256(paths.data_manifest) if present else None, "data_manifest.json", "SHA-256"
        ),
        "manifest": {
            public(key, 40): fact(_scalar(value), "data_manifest.json", public(key, 40))
            for key, value in sorted(manifest.items())
            if isinstance(value, str | int | float | list)
        },
    }


def _where(
    settings: dict[str, Any],
    decision: dict[str, Any],
    events: list[dict[str, Any]],
    versions: dict[str, Any],
    base_loaded: dict[str, Any] | None,
    stated: dict[str, Any],
) -> dict[str, Any]:
    place = decision.get("place") if isinstance(decision.get("place"), dict) else {}
    classes = sorted(
        {
            str(data_of(e).get("address_class", "unknown"))
            for e in events
            if e.get("event") == "process_group_opened"
        }
    )
    torch_version, device = str(versions.get("torch", "")), str(data_of(base_loaded or {}).get("device", ""))
    if "+cpu" in torch_version:
        nccl = "cpu_only_torch"
    elif device == "cpu":
        nccl = "cpu_run"
    else:
        nccl = "accelerator" if device else "unknown"
    return {
        "backend": fact(settings.get("backend"), "settings.json", "backend"),
        "country": _stated(settings, "country", stated),
        "observed": fact(place.get("observed"), "decision.json", "place.observed"),
        "bind": fact(settings.get("bind"), "settings.json", "bind"),
        "address_classes": fact(", ".join(classes), LEDGER, "process_group_opened.address_class"),
        "transport": fact(settings.get("transport"), "settings.json", "transport"),
        "nccl": nccl,
    }
