"""Each figure of a report is read again where its source says it stands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures_run import write_run

from grpo_lib.evidence import LEDGER, collect
from grpo_lib.incidents import public
from grpo_lib.ledger import read_events
from grpo_lib.runfolder import file_sha256


def facts(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        if {"value", "source", "absent"} <= value.keys():
            yield path, value
        for key, one in value.items():
            yield from facts(one, f"{path}.{key}")
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from facts(one, f"{path}[{place}]")


def reach(value: Any, field: str) -> Any:
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def read_again(root: Path, source: dict[str, Any]) -> Any:
    if source["field"] == "SHA-256":
        return file_sha256(root / source["file"])
    if source["file"] == LEDGER:
        events = {event["seq"]: event for event in read_events(root / LEDGER)}
        if source["seq"] is None:  # many lines: how they are summed is tested with the measures
            return ...
        event = events[source["seq"]]
        name, _, field = source["field"].partition(".")
        assert event["event"] == name
        found = reach(event["data"], field)
        return event.get(field) if found is None else found
    return reach(json.loads((root / source["file"]).read_text(encoding="utf-8")), source["field"])


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("figures") / "run")


def differing(root: Path, evidence: dict[str, Any]) -> tuple[list[str], int]:
    """Paths of figures that are not where their source says, and how many were looked at."""
    wrong, looked = [], 0
    for path, fact in facts(evidence):
        again = ... if fact["value"] is None else read_again(root, fact["source"])
        if again is ...:
            continue
        shown = ", ".join(map(str, again)) if isinstance(again, list) else again
        looked += 1
        # What names a user or a machine is shortened before it is shown.
        if fact["value"] != (public(shown) if isinstance(shown, str) else shown):
            wrong.append(path)
    return wrong, looked


def test_every_figure_is_where_its_source_says(run) -> None:
    wrong, looked = differing(run, collect(run))
    assert wrong == [] and looked > 60


def test_a_figure_that_is_not_there_is_noticed(run, tmp_path) -> None:
    shutil.copytree(run, tmp_path / "run")
    evidence = collect(run)
    for name in ("settings.json", "decision.json"):
        path = tmp_path / "run" / name
        path.write_text(
            path.read_text(encoding="utf-8").replace("arithmetic", "geometry").replace("allow", "deny"),
            encoding="utf-8",
        )
    wrong, _ = differing(tmp_path / "run", evidence)
    assert ".data.task" in wrong and ".decision.verdict" in wrong
