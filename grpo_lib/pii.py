"""The screen for personal data, before a launch: `python -m grpo_lib.pii screen FILE`, `python -m grpo_lib.pii answer …`.

It counts by kind and keeps no match. A finding where "no personal data" was declared stops the run until a named person
has answered for each kind. The screen is a sieve: that it found nothing does not make data anonymous, and for names it
is weak and has no target.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from grpo_lib.errors import GrpoError, WrongInput, isolate
from grpo_lib.ledger import utc_now
from grpo_lib.pii_kinds import KINDS, find
from grpo_lib.pii_rows import FILES, read_rows
from grpo_lib.runfolder import file_sha256, write_json

SCHEMA = "grpo-lib/pii-screen/1"
ANSWERS = ("not_personal", "removed", "personal")
_LIBRARIES = ("python-stdnum", "idnumbers", "phonenumbers", "schwifty")
_NOT_SEEN = ("names_weak", "no_proof", "local_forms")
_DIGEST = re.compile("[0-9a-f]{64}")


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
        total: how many rows there are, where it is known; for the progress bar.
        sample: how many rows to look at, chosen by `seed`; 0 looks at all.
        data_sha256: digest of the data set, which answers name; by default of the rows, each with a line feed.
    """
    matches, holding, digest = Counter(), Counter(), hashlib.sha256()
    count = 0
    # Algorithm R: every row is as likely to be kept, however many there are. `random()` alone is the same in every Python.
    kept: list[str] = []
    draw = random.Random(seed).random

    def look(text: str) -> None:
        kinds = [kind for kind, _, _ in find(text)]
        matches.update(kinds)
        holding.update(set(kinds))

    shown = tqdm(
        rows,
        total=total,
        desc="فحص البيانات | screening",
        unit="row",
        disable=not progress or None,
        leave=False,
    )
    for text in shown:
        # Broken text (half of a surrogate pair) has a digest and is screened like any other.
        digest.update(f"{text}\n".encode("utf-8", "surrogatepass"))
        if not sample:
            look(text)
        elif count < sample:
            kept.append(text)
        elif (place := int(draw() * (count + 1))) < sample:
            kept[place] = text
        count += 1
    for text in kept:
        look(text)
    return {
        "schema": SCHEMA,
        "rows": count,
        "screened": len(kept) if sample else count,
        "sample": str(sample) if sample and sample < count else "whole",
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
        "versions": {name: version(name) for name in _LIBRARIES},
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
        and all(str(one.get(name) or "").strip() for name in ("by", "role", "reason"))
    }
    return [one["kind"] for one in result["findings"] if one["kind"] not in settled]


def answers_path(governance: Path, data_sha256: str) -> Path:
    """Where the answers about a data set stand.

    Raises:
        WrongInput: `data_sha256` is no digest; it becomes a part of a file name.
    """
    if not _DIGEST.fullmatch(data_sha256):
        raise WrongInput(
            ar=f"البصمة المعطاة ليست {isolate('SHA-256')}: المطلوب {isolate(64)} رقمًا ست عشريًا، كما في {isolate('pii.json')}.",
            en="The digest given is no SHA-256: 64 hexadecimal digits are needed, as in pii.json.",
        )
    return governance / "pii-answers" / f"{data_sha256[:16]}.json"


def answers(governance: Path, data_sha256: str) -> list[dict[str, Any]]:
    """What named people have answered about this data set; nothing where there is no file.

    Raises:
        WrongInput: the file is there and cannot be read. To go on as if nobody had answered would hide it, and the next
            answer would replace it.
    """
    path = answers_path(governance, data_sha256)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(one, dict) and "kind" in one for one in found):
        raise WrongInput(
            ar=f"ملف الأجوبة {isolate(path.name)} تالف. صحّحه أو أخرجه من المجلد.",
            en=f"The file of answers {path.name} is damaged. Correct it or take it out of the folder.",
        )
    return found


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
        kinds, known = ", ".join(KINDS), ", ".join(ANSWERS)
        raise WrongInput(
            ar=f"جواب غير مقبول: {isolate(', '.join(faults))}. اذكر اسمًا وصفة وسببًا، والأنواع: {isolate(kinds)}، "
            f"والأجوبة: {isolate(known)}.",
            en=f"The answer is not acceptable: {', '.join(faults)}. Give a name, a role and a reason; kinds: {kinds}; "
            f"answers: {known}.",
        )
    path = answers_path(governance, data_sha256)
    others = [one for one in answers(governance, data_sha256) if one["kind"] != kind]
    person = {"by": by.strip(), "role": role.strip(), "reason": reason.strip()}
    write_json(path, [*others, {"kind": kind, "answer": said, **person, "date": on.isoformat()}])
    return path


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "screen":
            rows = list(read_rows(options.file, options.column))
            digest = file_sha256(options.file)
            result = screen(rows, len(rows), options.sample, options.seed, data_sha256=digest)
            print(json.dumps(result, ensure_ascii=False, indent=1))
        else:
            given = (options.kind, options.answer, options.by, options.role, options.reason)
            today = datetime.now(UTC).date()
            print(answer(options.governance_dir, options.data_sha256, *given, today))
    except GrpoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m grpo_lib.pii",
        description="فحص البيانات الشخصية قبل الإطلاق. Screen for personal data before a launch.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("screen", help="افحص ملفًا / screen a file")
    one.add_argument("file", type=Path, help=", ".join(FILES))
    one.add_argument("--column", help="العمود / column")
    one.add_argument("--sample", type=_count, default=0, help="عدد الصفوف، 0 للكل / rows, 0 for all")
    one.add_argument("--seed", type=int, default=0, help="البذرة العشوائية / random seed")
    two = commands.add_parser("answer", help="أجب عن نوع وُجد / answer for a kind that was found")
    two.add_argument("data_sha256", help="بصمة البيانات من pii.json / digest of the data, from pii.json")
    for name, text in (
        ("kind", "النوع / kind"),
        ("answer", " | ".join(ANSWERS)),
        ("by", "الاسم / name"),
        ("role", "الصفة / role"),
        ("reason", "السبب / reason"),
    ):
        two.add_argument(f"--{name}", required=True, help=text)
    two.add_argument(
        "--governance-dir",
        type=Path,
        default=Path("governance"),
        help="مجلد الحوكمة / the organisation's own folder",
    )
    return parser


def _count(text: str) -> int:
    if int(text) < 0:
        raise ValueError(text)
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
