"""Which ledger events an officer must hear of, and in what order.

An incident is anything that did not go as launched: a worker lost or refused, a message or a group dropped, a process
that ended by a signal, a resumed run, a torn line, a refused checkpoint, a broken chain, a run that did not complete.
Each carries the ledger lines it is drawn from. Wording is not here: `kind` is a key into `compliance/wording.yaml`.

Severity, for the order and the tone of page 1:
    serious   the evidence or the result is in doubt
    handled   something failed and the run went on or resumed
    expected  part of normal asynchronous work, listed for completeness
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_ORDER = {"serious": 0, "handled": 1, "expected": 2}

# A local path after a space, a quote or an opening bracket; `org/model` and `and/or` are not touched.
_PATH = re.compile(r"(?<![\w./\\-])(?:~[\w.-]*|[A-Za-z]:)?(?:[\\/][^\s\\/:*?\"<>|'،,;()]+)+[\\/]?")
_HOME = re.compile(r"(?:~[\w.-]*|[A-Za-z]:)?[\\/](?:home|Users)[\\/][^\\/]+[\\/]?")
# Control characters, and bidi controls that could reorder what a reader sees (UAX #9).
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def public(value: Any, limit: int = 200) -> str:
    """Text of `value` fit to be printed: no local path, no control character, at most `limit` characters.

    A path keeps its last part only (`…/name`), since folders name users and machines.
    """
    text = _CONTROL.sub(" ", str(value)).encode("utf-8", "replace").decode("utf-8")
    text = _PATH.sub(lambda match: "…" if _HOME.fullmatch(match[0]) else f"…/{_last(match[0])}", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _last(path: str) -> str:
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1]


def data_of(event: dict[str, Any]) -> dict[str, Any]:
    """The event's data; an empty dict where a damaged line holds something else."""
    data = event.get("data")
    return data if isinstance(data, dict) else {}


def cleaned(event: dict[str, Any]) -> dict[str, Any]:
    """A ledger event whose fields have the kinds that readers rely on; what has another kind becomes None."""
    names = ("time", "run_id", "event", "actor")
    texts = {name: value if isinstance(value := event.get(name), str) else None for name in names}
    seq = event.get("seq")
    return {**texts, "seq": seq if _whole(seq) else None, "data": data_of(event)}


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def find(
    events: Iterable[dict[str, Any]], torn_lines: Iterable[int], broken_lines: Iterable[int]
) -> list[dict[str, Any]]:
    """Incidents of a run, most serious first, then in ledger order.

    Args:
        events: Ledger events in order.
        torn_lines: Line numbers (from 1) that are not JSON.
        broken_lines: Line numbers (from 1) at which the hash chain does not hold.
    """
    found: list[dict[str, Any]] = [
        *(_incident("chain_broken", "serious", None, line=line) for line in broken_lines),
        *(_incident("torn_line", "handled", None, line=line) for line in torn_lines),
    ]
    grouped: dict[tuple, dict[str, Any]] = {}
    events = list(events)
    last_end = max(
        (place for place, event in enumerate(events) if event.get("event") == "run_ended"), default=None
    )
    for place, event in enumerate(events):
        one = _from_event(event)
        if one is None:
            continue
        # An earlier end that was resumed from is over; the last one says how the run stands.
        if one["kind"] == "not_complete" and place != last_end:
            one["severity"] = "handled"
        # Thousands of alike drops become one row with a count; every other incident keeps its own row.
        if one["kind"] in ("message_dropped", "stale_dropped"):
            key = (one["kind"], one["values"].get("worker"), one["values"].get("reason"))
            first = grouped.setdefault(key, one)
            if first is not one:
                first["count"] += one["count"]
                first["seqs"] += one["seqs"]
                continue
        found.append(one)
    found.sort(key=lambda incident: _ORDER[incident["severity"]])
    return found


def _incident(
    kind: str, severity: str, event: dict[str, Any] | None, count: int = 1, **values: Any
) -> dict[str, Any]:
    return {
        "kind": kind,
        "severity": severity,
        "time": event.get("time") if event else None,
        "seqs": [event["seq"]] if event and event["seq"] is not None else [],
        "count": count,
        "values": {
            key: value if value is None or _whole(value) else public(value) for key, value in values.items()
        },
    }


def _from_event(event: dict[str, Any]) -> dict[str, Any] | None:
    name, data = event.get("event"), data_of(event)
    worker, reason = data.get("worker_id"), data.get("reason")
    match name:
        case "worker_lost":
            returned = data.get("leases_returned")
            return _incident("worker_lost", "handled", event, worker=worker, reason=reason, leases=returned)
        case "worker_refused":
            return _incident("worker_refused", "handled", event, worker=worker, reason=reason)
        case "message_dropped":
            return _incident("message_dropped", "handled", event, worker=worker, reason=reason)
        case "stale_dropped":
            groups = data.get("groups")
            return _incident("stale_dropped", "expected", event, count=groups if _whole(groups) else 1)
        case "checkpoint_refused":
            return _incident("checkpoint_refused", "serious", event, step=data.get("step"), reason=reason)
        case "resumed" if not data.get("torn_line"):
            return _incident("resumed", "handled", event)
        case "run_started" if data.get("resumed_from") is not None:
            return _incident("resumed_from", "handled", event, step=data["resumed_from"])
        case "process_ended" if data.get("signal") or data.get("exit_code"):
            kind = "process_signal" if data.get("signal") else "process_failed"
            return _incident(
                kind,
                "handled",
                event,
                process=worker or data.get("role"),
                signal=data.get("signal"),
                exit_code=data.get("exit_code"),
            )
        case "run_ended" if data.get("status") != "complete":
            return _incident(
                "not_complete", "serious", event, status=data.get("status"), exit_code=data.get("exit_code")
            )
    return None
