"""Drafts of the documents that a run calls for, in Arabic and English: `python -m grpo_lib.documents RUN_DIR --all`.

Five kinds stand in `compliance/documents/`: request to the authority, questionnaire to the provider, incident notice,
record of processing, impact assessment. A cell with a source is filled from the evidence and shows that source; a cell
that asks for judgement stays blank until a named person answers it. A document is a draft until it has a name, a date
and an answer in every such cell (`documents/<name>.yaml` in the run folder: `{by, on, cells: {id: text}}`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from compliance import path as data_path
from grpo_lib.errors import GrpoError, WrongInput, isolate

KINDS = ("request", "questionnaire", "notice", "record", "assessment")


@cache
def definition(kind: str) -> dict[str, Any]:
    """Rows and titles of one kind of document."""
    return yaml.safe_load(data_path("documents", f"{kind}.yaml").read_text(encoding="utf-8"))


def needed(evidence: dict[str, Any]) -> list[tuple[str, str | None]]:
    """(kind, pack id or None) of every document that an action names, once each, in the order of `KINDS`."""
    wanted = {
        (one["document"], one["pack"] if definition(one["document"])["per_pack"] else None)
        for one in evidence["actions"]
        if one["document"]
    }
    return sorted(wanted, key=lambda one: (KINDS.index(one[0]), one[1] or ""))


def all_kinds(evidence: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Every document, for each pack of the decision where it is written to an authority."""
    ids: Iterable[str | None] = [pack["id"] for pack in evidence["packs"]] or [None]
    return [(kind, one) for kind in KINDS for one in (ids if definition(kind)["per_pack"] else [None])]


def name(kind: str, pack: str | None) -> str:
    return f"{kind}-{pack}" if pack else kind


def answers(run_dir: Path, kind: str, pack: str | None) -> dict[str, Any]:
    """What people wrote into a document; empty where nobody has.

    Raises:
        WrongInput: the file is damaged, or answers a cell that the document does not ask for.
    """
    path = run_dir / "documents" / f"{name(kind, pack)}.yaml"
    if not path.is_file():
        return {}
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        cells = {str(key): str(text) for key, text in (found.get("cells") or {}).items()}
        given = {"by": str(found.get("by") or ""), "on": str(found.get("on") or ""), "cells": cells}
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise WrongInput(
            ar=f"تعذّرت قراءة {isolate(path.name)}: {isolate(type(error).__name__)}. المطلوب الحقول {isolate('by, on, cells')}.",
            en=f"{path.name} cannot be read ({type(error).__name__}); it must hold by, on and cells.",
        ) from None
    blank = {row["id"] for row in definition(kind)["rows"] if "fill" not in row and "list" not in row}
    if unknown := sorted(set(cells) - blank):
        raise WrongInput(
            ar=f"{isolate(path.name)}: حقول لا يسأل عنها المستند: {isolate(', '.join(unknown))}. المتاح: {isolate(', '.join(sorted(blank)))}.",
            en=f"{path.name}: the document does not ask for {', '.join(unknown)}. It asks for {', '.join(sorted(blank))}.",
        )
    return given


def fill(evidence: dict[str, Any], kind: str, pack: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """One document as data: rows with their fact, list or answer, and whether it is complete."""
    rows, open_cells = [], []
    for row in definition(kind)["rows"]:
        cell = {"id": row["id"], "label": row["label"], "show": row.get("show", "text")}
        if "fill" in row:
            cell["fact"] = _fact(evidence, row["fill"])
        elif "list" in row:
            cell["list"] = row["list"]
        else:
            cell["answer"] = given.get("cells", {}).get(row["id"], "").strip() or None
            if cell["answer"] is None:
                open_cells.append(row["id"])
        rows.append(cell)
    complete = bool(given.get("by", "").strip() and given.get("on", "").strip()) and not open_cells
    return {
        "kind": kind,
        "title": definition(kind)["title"],
        "about": definition(kind)["about"],
        "pack": next((one for one in evidence["packs"] if one["id"] == pack), None),
        "rows": rows,
        "complete": complete,
        "by": given.get("by"),
        "on": given.get("on"),
    }


def _fact(evidence: dict[str, Any], path: str) -> dict[str, Any]:
    found: Any = evidence
    for part in path.split("."):
        found = found[part]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    from grpo_lib.report import build_documents

    parser = argparse.ArgumentParser(
        prog="python -m grpo_lib.documents",
        description="مسودات المستندات من مجلد التشغيل وحده. Drafts of documents, from the run folder alone.",
    )
    parser.add_argument("run_dir", type=Path, help="مجلد التشغيل / the run folder, e.g. runs/RUN_ID")
    parser.add_argument(
        "--all", action="store_true", help="كل الأنواع لا المطلوب فقط / every kind, not only those called for"
    )
    options = parser.parse_args(arguments)
    try:
        for path in build_documents(options.run_dir, every=options.all):
            print(path)
    except GrpoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
