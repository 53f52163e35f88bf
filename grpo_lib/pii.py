"""The screen for personal data, before a launch: `python -m grpo_lib.pii screen FILE`, `python -m grpo_lib.pii answer …`.

It counts by kind and keeps no match. A finding where "no personal data" was declared stops the run until a named person
has answered for each kind. The screen is a sieve: that it found nothing does not make data anonymous, and for names it
is weak and has no target.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.metadata
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from tqdm import tqdm

from grpo_lib.errors import GrpoError, WrongInput, isolate
from grpo_lib.ledger import utc_now
from grpo_lib.pii_kinds import KINDS, find
from grpo_lib.runfolder import file_sha256, write_json

SCHEMA = "grpo-lib/pii-screen/1"
ANSWERS = ("not_personal", "removed", "personal")
_LIBRARIES = ("python-stdnum", "idnumbers", "phonenumbers", "schwifty")
_ENCODINGS = ("utf-8-sig", "windows-1256")
_NOT_SEEN = ("names_weak", "no_proof", "local_forms")


def screen(
    rows: Iterable[str],
    total: int | None = None,
    sample: int = 0,
    seed: int = 0,
    progress: bool = True,
    data_sha256: str | None = None,
) -> dict[str, Any]:
    """Counts by kind over rows of text.

    Args:
        rows: the texts, one per row.
        total: how many rows there are, where it is known; needed for a sample.
        sample: how many rows to look at, chosen by `seed`; 0 looks at all.
        data_sha256: digest of the data set, which answers name; by default of the rows, each with a line feed.
    """
    chosen = None
    if sample and total and sample < total:
        chosen = set(random.Random(seed).sample(range(total), sample))
    matches, holding, count, looked = Counter(), Counter(), 0, 0
    shown = tqdm(
        rows,
        total=total,
        desc="فحص البيانات | screening",
        unit="row",
        disable=not progress or None,
        leave=False,
    )
    digest = hashlib.sha256()
    for index, text in enumerate(shown):
        count += 1
        digest.update(f"{text}\n".encode())
        if chosen is not None and index not in chosen:
            continue
        looked += 1
        kinds = [kind for kind, _, _ in find(str(text))]
        matches.update(kinds)
        holding.update(set(kinds))
    return {
        "schema": SCHEMA,
        "rows": count,
        "screened": looked,
        "sample": "whole" if chosen is None else str(sample),
        "seed": seed,
        "findings": [
            {
                "kind": kind,
                "rows": holding[kind],
                "matches": matches[kind],
                "validator": KINDS[kind].validator,
                "strength": KINDS[kind].strength,
            }
            for kind in KINDS
            if holding[kind]
        ],
        "kinds_looked_for": list(KINDS),
        "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "not_seen": list(_NOT_SEEN),
        "screened_at": utc_now(),
        "data_sha256": data_sha256 or digest.hexdigest(),
    }


def unanswered(result: dict[str, Any], given: list[dict[str, Any]]) -> list[str]:
    """Kinds that were found and for which no named person has said that they are not personal, or gone."""
    settled = {
        one.get("kind")
        for one in given
        if one.get("answer") in ("not_personal", "removed")
        and str(one.get("by", "")).strip()
        and str(one.get("reason", "")).strip()
    }
    return [one["kind"] for one in result["findings"] if one["kind"] not in settled]


def answers_path(governance: Path, data_sha256: str) -> Path:
    return governance / "pii-answers" / f"{data_sha256[:16]}.json"


def answers(governance: Path, data_sha256: str) -> list[dict[str, Any]]:
    """What named people have answered about this data set; a damaged file answers nothing."""
    try:
        found = json.loads(answers_path(governance, data_sha256).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def answer(
    governance: Path, data_sha256: str, kind: str, said: str, by: str, role: str, reason: str, on: date
) -> Path:
    """Record one answer; a later answer for the same kind takes the place of an earlier one.

    Raises:
        WrongInput: an unknown kind or answer, or no name, role or reason.
    """
    faults = [name for name, value in (("by", by), ("role", role), ("reason", reason)) if not value.strip()]
    if kind not in KINDS:
        faults.append(f"kind={kind}")
    if said not in ANSWERS:
        faults.append(f"answer={said}")
    if faults:
        raise WrongInput(
            ar=f"جواب غير مقبول: {isolate(', '.join(faults))}. اذكر اسمًا وصفة وسببًا، والأنواع: {isolate(', '.join(KINDS))}، والأجوبة: {isolate(', '.join(ANSWERS))}.",
            en=f"The answer is not acceptable: {', '.join(faults)}. Give a name, a role and a reason; kinds: {', '.join(KINDS)}; answers: {', '.join(ANSWERS)}.",
        )
    path = answers_path(governance, data_sha256)
    others = [one for one in answers(governance, data_sha256) if one.get("kind") != kind]
    row = {"kind": kind, "answer": said, "by": by, "role": role, "reason": reason, "date": on.isoformat()}
    write_json(path, [*others, row])
    return path


def read_rows(path: Path, column: str | None) -> Iterator[str]:
    """Texts of a file: lines of .txt, one column (or all) of .csv, of .jsonl.

    Raises:
        WrongInput: no such file or column, a kind of file or an encoding that is not known, a damaged line.
    """
    text = _decoded(path)
    match path.suffix.lower():
        case ".csv":
            dialect = csv.excel
            if text.split("\n", 1)[0].count(";") > text.split("\n", 1)[0].count(","):
                dialect = type("semicolon", (csv.excel,), {"delimiter": ";"})
            reader = csv.DictReader(text.splitlines(), dialect=dialect)
            _check_column(path, column, list(reader.fieldnames or ()))
            rows: Iterator[dict[str, Any]] = iter(reader)
        case ".jsonl":
            rows = _json_rows(path, text)
        case ".txt":
            yield from text.splitlines()
            return
        case _:
            raise WrongInput(
                ar=f"نوع الملف {isolate(path.suffix or path.name)} غير معروف. المقبول: {isolate('.txt .csv .jsonl')}.",
                en=f"Files of kind {path.suffix or path.name} are not known. Accepted: .txt .csv .jsonl",
            )
    for row in rows:
        if column is not None and column not in row:
            _check_column(path, column, list(row))
        yield str(row[column]) if column is not None else "\n".join(str(value) for value in row.values())


def _json_rows(path: Path, text: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield dict(json.loads(line))
        except (ValueError, TypeError):
            raise WrongInput(
                ar=f"{isolate(path.name)}، السطر {isolate(number)}: ليس كائن {isolate('JSON')}. صحّحه.",
                en=f"{path.name}, line {number}: not a JSON object. Correct it.",
            ) from None


def _check_column(path: Path, column: str | None, names: list[str]) -> None:
    if column is not None and column not in names:
        raise WrongInput(
            ar=f"لا عمود باسم {isolate(column)} في {isolate(path.name)}. الأعمدة: {isolate(', '.join(names))}.",
            en=f"There is no column {column} in {path.name}. Its columns: {', '.join(names)}.",
        )


def _decoded(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise WrongInput(
            ar=f"لا يُقرأ الملف {isolate(path.name)} ({isolate(type(error).__name__)}). صحّح المسار.",
            en=f"The file {path.name} cannot be read ({type(error).__name__}). Correct the path.",
        ) from None
    for encoding in _ENCODINGS:
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise WrongInput(
        ar=f"ترميز {isolate(path.name)} غير معروف. احفظه بترميز {isolate('UTF-8')}.",
        en=f"The encoding of {path.name} is not known. Save it as UTF-8.",
    )


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m grpo_lib.pii",
        description="فحص البيانات الشخصية قبل الإطلاق. Screen for personal data before a launch.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("screen", help="افحص ملفًا / screen a file")
    one.add_argument("file", type=Path, help=".txt, .csv, .jsonl")
    one.add_argument("--column", help="العمود / column")
    one.add_argument("--sample", type=int, default=0, help="عدد الصفوف، 0 للكل / rows, 0 for all")
    one.add_argument("--seed", type=int, default=0)
    two = commands.add_parser("answer", help="أجب عن نوع وُجد / answer for a kind that was found")
    two.add_argument("data_sha256", help="بصمة البيانات من pii.json / digest of the data, from pii.json")
    for name, text in (
        ("kind", "النوع / kind"),
        ("answer", f"{' | '.join(ANSWERS)}"),
        ("by", "الاسم / name"),
        ("role", "الصفة / role"),
        ("reason", "السبب / reason"),
    ):
        two.add_argument(f"--{name}", required=True, help=text)
    two.add_argument("--governance-dir", type=Path, default=Path("governance"))
    options = parser.parse_args(arguments)
    try:
        if options.command == "screen":
            rows = list(read_rows(options.file, options.column))
            result = screen(
                rows, len(rows), options.sample, options.seed, data_sha256=file_sha256(options.file)
            )
            print(json.dumps(result, ensure_ascii=False, indent=1))
        else:
            today = datetime.now(UTC).date()
            print(
                answer(
                    options.governance_dir,
                    options.data_sha256,
                    options.kind,
                    options.answer,
                    options.by,
                    options.role,
                    options.reason,
                    today,
                )
            )
    except GrpoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
