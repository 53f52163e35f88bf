"""What only people know: stated after the run, recorded once, never replaced; the form does the same as parameters."""

from __future__ import annotations

import pytest
from fixtures_run import write_run

from grpo_lib import form, statements
from grpo_lib.errors import WrongInput
from grpo_lib.evidence import collect
from grpo_lib.ledger import read_events
from grpo_lib.runfolder import RunFolder

GIVEN = {
    "organisation": "وزارة",
    "responsible": "مسؤول",
    "purpose": "غرض",
    "country": "SA",
    "retention_until": "2027-01-31",
}


@pytest.fixture
def run(tmp_path) -> RunFolder:
    return RunFolder(write_run(tmp_path / "run", **dict.fromkeys(GIVEN, "")))


def test_statements_end_the_draft_and_show_their_source(run) -> None:
    before = {name for reason in collect(run.root)["draft"] for name in reason["names"]}
    assert set(GIVEN) <= before
    assert statements.record(run, GIVEN)
    evidence = collect(run.root)
    assert not [reason for reason in evidence["draft"] if reason["kind"] == "not_stated"]
    assert evidence["who"]["organisation"]["source"]["file"] == "statements.json"
    assert read_events(run.ledger)[-1]["data"]["fields"] == sorted(GIVEN)
    assert not statements.record(run, GIVEN), "the same again is nothing new"


def test_what_was_stated_is_not_replaced(run) -> None:
    statements.record(run, {"country": "SA"})
    with pytest.raises(WrongInput) as caught:
        statements.record(run, {"country": "EG"})
    assert "country" in caught.value.ar and "'SA' → 'EG'" in caught.value.en


@pytest.mark.parametrize(("name", "value"), [("country", "Saudi"), ("retention_until", "soon")])
def test_malformed_statements_are_wrong_input(run, name, value) -> None:
    with pytest.raises(WrongInput, match=name):
        statements.record(run, {name: value})
    assert not run.statements.exists()


def test_the_form_saves_what_is_typed(run) -> None:
    shown = form.statements_form(run)
    *boxes, button, _ = shown.children
    for box, value in zip(boxes, GIVEN.values(), strict=True):
        box.value = value
    button.click()
    assert statements.read(run) == GIVEN
    again = form.statements_form(run).children
    assert [box.disabled for box in again[:-2]] == [True] * len(GIVEN)
