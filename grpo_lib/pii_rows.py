"""Rows of a data file as texts: lines of .txt, records of .csv and .jsonl. Screening sees what training would see.

A record becomes "column: value" lines, because the name of a column is often all that says what a bare number is. The
first line of a CSV is screened like any other, since a file without a header has a person's data there. No error
repeats what a file holds; not even its column names, for the same reason.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpo_lib.errors import WrongInput, isolate

FILES = (".txt", ".csv", ".jsonl")
_DELIMITERS = ",;\t"


def read_rows(path: Path, column: str | None = None) -> Iterator[str]:
    """Texts of a file.

    Args:
        path: UTF-8, with or without its mark, or windows-1256.
        column: of a .csv or .jsonl; by default all of them.

    Raises:
        WrongInput: no such file or column, a kind of file or an encoding that is not known, a damaged line.
    """
    kind = path.suffix.lower()
    if kind not in FILES:
        raise WrongInput(
            ar=f"نوع الملف {isolate(path.name)} غير معروف. المقبول: {isolate(' '.join(FILES))}.",
            en=f"{path.name} is no kind of file that is known. Accepted: {' '.join(FILES)}",
        )
    if kind == ".txt" and column is not None:
        raise WrongInput(
            ar=f"لا أعمدة في ملف نصي. احذف {isolate('--column')}.",
            en="A text file has no columns. Leave --column out.",
        )
    text = _decoded(path)
    if kind == ".txt":
        yield from text.splitlines()
    else:
        yield from (_csv_rows if kind == ".csv" else _json_rows)(path, text, column)


def _csv_rows(path: Path, text: str, column: str | None) -> Iterator[str]:
    head = text.split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=head.count)
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(reader, [])
        if column is not None and column not in names:
            raise _no_column(path, column)
        if column is None:
            yield "\n".join(names)
        for values in reader:
            # Values beyond the header's columns have no name, and are screened all the same.
            named = [*names, *[""] * (len(values) - len(names))]
            fields = list(zip(named, values, strict=False))
            if column is None:
                yield _joined(fields)
            elif len(values) > names.index(column):
                yield _joined([(column, values[names.index(column)])])
    except csv.Error:
        raise _damaged(path, reader.line_num) from None


def _json_rows(path: Path, text: str, column: str | None) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise _damaged(path, number) from None
        if column is None:
            yield _joined(list(_leaves(record)))
        elif isinstance(record, dict) and column in record:
            yield _joined(list(_leaves(record[column], column)))
        else:
            raise _no_column(path, column, number)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of everything in a JSON value; what stands in a list goes by the list's name."""
    waiting = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(key, inner) for key, inner in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [(name, inner) for inner in reversed(value)]
        elif value is not None:
            yield name, value


def _joined(fields: list[tuple[str, Any]]) -> str:
    return "\n".join(f"{name}: {value}" if _is_label(name) else str(value) for name, value in fields)


def _is_label(name: str) -> bool:
    """Whether it can be the name of a column. In a table without header it is data, to be counted once only."""
    return bool(name) and "@" not in name and sum(map(str.isdigit, name)) < 5


def _decoded(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise WrongInput(
            ar=f"لا يُقرأ الملف {isolate(path.name)} ({isolate(type(error).__name__)}). صحّح المسار.",
            en=f"The file {path.name} cannot be read ({type(error).__name__}). Correct the path.",
        ) from None
    # Text has no zero bytes; UTF-16 and binary files have, and would decode as windows-1256 into what holds nothing.
    if b"\0" in raw or raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise WrongInput(
            ar=f"{isolate(path.name)} ليس نصًا بترميز {isolate('UTF-8')} أو {isolate('windows-1256')}. احفظه بترميز "
            f"{isolate('UTF-8')}.",
            en=f"{path.name} is no text in UTF-8 or windows-1256. Save it as UTF-8.",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("windows-1256")  # gives every byte a meaning


def _no_column(path: Path, column: str, line: int = 1) -> WrongInput:
    return WrongInput(
        ar=f"لا عمود باسم {isolate(column)} في {isolate(path.name)}، السطر {isolate(line)}. صحّح {isolate('--column')}.",
        en=f"There is no column {column} in {path.name}, line {line}. Correct --column.",
    )


def _damaged(path: Path, line: int) -> WrongInput:
    return WrongInput(
        ar=f"{isolate(path.name)}، السطر {isolate(line)} تالف. صحّحه.",
        en=f"{path.name}, line {line} is damaged. Correct it.",
    )
