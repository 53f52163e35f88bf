"""The personal-data screen against sentences that were labelled by someone who had not seen it.

The rows are in `tests/data/pii_labelled.jsonl`, with how they were made in `tests/data/make_pii_labelled.py`.
The screen gets each row by itself through its public function, as a data set of one row.
"""

from __future__ import annotations

import json
import re
import runpy
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from grpo_lib import pii

DATA = Path(__file__).parent / "data"
ROWS = [json.loads(line) for line in (DATA / "pii_labelled.jsonl").read_text(encoding="utf-8").splitlines()]
NEGATIVES = [row for row in ROWS if not row["kinds"]]

# A check digit decides; a validating library decides; only the form is known; no target (weak).
CHECKSUM = ("iban", "emirates_id", "kuwait_civil_id", "morocco_rib", "tax_ma", "card")
VALIDATOR = ("email", "phone", "tax_eg", "tax_tn", "tax_dz")
STRUCTURE = ("sa_nid", "eg_nid", "bh_cpr", "qa_qid", "iq_card", "ma_cin")
WEAK = ("name",)

RECALL = 0.95
FALSE_POSITIVES = 0.05


@cache
def found(text: str) -> frozenset[str]:
    """Kinds that the screen reports for one row."""
    screen = pii.screen([text], total=1, sample=0, seed=0, progress=False)
    return frozenset(finding["kind"] for finding in screen["findings"])


def rows_of(kind: str) -> list[dict]:
    return [row for row in ROWS if kind in row["kinds"]]


def recall(kind: str) -> tuple[float, list[dict]]:
    rows = rows_of(kind)
    missed = [row for row in rows if kind not in found(row["text"])]
    return 1 - len(missed) / len(rows), missed


def shown(rows: list[dict]) -> str:
    return "\n".join(f"  {row['text']!a}  [{row['note']}]" for row in rows)


def test_file_is_the_output_of_its_script() -> None:
    made = runpy.run_path(str(DATA / "make_pii_labelled.py"))["file_text"]()
    assert made == (DATA / "pii_labelled.jsonl").read_text(encoding="utf-8")


def test_set_is_large_enough_to_measure() -> None:
    assert len(ROWS) >= 400 and len(NEGATIVES) >= 150
    assert all(len(rows_of(kind)) >= 20 for kind in CHECKSUM + VALIDATOR)
    assert {kind for row in ROWS for kind in row["kinds"]} == {*CHECKSUM, *VALIDATOR, *STRUCTURE, *WEAK}


@pytest.mark.parametrize("kind", CHECKSUM + VALIDATOR)
def test_recall_of_identifiers_that_can_be_validated(kind: str) -> None:
    rate, missed = recall(kind)
    assert rate >= RECALL, (
        f"{kind}: recall {rate:.3f} of {len(rows_of(kind))} rows, missed {len(missed)}:\n{shown(missed)}"
    )


def test_false_positives() -> None:
    wrong = [row for row in NEGATIVES if found(row["text"])]
    kinds = Counter(kind for row in wrong for kind in found(row["text"]))
    assert len(wrong) <= FALSE_POSITIVES * len(NEGATIVES), (
        f"{len(wrong)} of {len(NEGATIVES)} negatives flagged, by kind {dict(kinds)}:\n{shown(wrong)}"
    )


def test_table_of_the_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints recall and false positives per kind (shown with `-s`); every kind of the labels is looked for."""
    lines = [f"{'kind':<16} {'rows':>4} {'recall':>7} {'false positives of':>20} {len(NEGATIVES)}"]
    for kind in CHECKSUM + VALIDATOR + STRUCTURE + WEAK:
        wrong = sum(kind in found(row["text"]) for row in NEGATIVES)
        lines.append(f"{kind:<16} {len(rows_of(kind)):>4} {recall(kind)[0]:>7.3f} {wrong:>20}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    looked_for = pii.screen([""], total=1, sample=0, seed=0, progress=False)["kinds_looked_for"]
    assert {*CHECKSUM, *VALIDATOR, *STRUCTURE, *WEAK} <= set(looked_for)


def test_screen_of_the_whole_file_counts_rows_and_keeps_no_match() -> None:
    screen = pii.screen([row["text"] for row in ROWS], total=len(ROWS), sample=0, seed=0, progress=False)
    counts = {finding["kind"]: finding["rows"] for finding in screen["findings"]}
    for kind in CHECKSUM + VALIDATOR:
        assert counts[kind] == sum(kind in found(row["text"]) for row in ROWS)
    told = json.dumps(screen, ensure_ascii=False).replace(screen["data_sha256"], "")
    numbers = {number for row in ROWS for number in re.findall("[0-9]{8,}", row["text"])}
    assert len(numbers) > 50
    assert not [
        secret for secret in numbers | {"example.com", "khalid.alotaibi", "العتيبي"} if secret in told
    ]
