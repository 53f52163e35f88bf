"""Provider profiles: claims with source and dates that lapse, and nobody called compliant."""

from __future__ import annotations

import re
from datetime import date

import pytest
import yaml

from compliance import path as data_path
from grpo_lib import papers, providers
from grpo_lib.errors import WrongInput

READ, LAST = date(2026, 12, 1), date(2027, 3, 1)


def claims(day=READ):
    return {one["id"]: one for one in providers.load_provider("huggingface", day).claims}


def test_each_claim_has_both_languages_a_source_and_its_dates() -> None:
    for name, claim in claims().items():
        assert re.search("[\u0621-\u064a]", claim["claim"]["ar"]) and claim["claim"]["en"], name
        assert claim["source"] and date.fromisoformat(claim["checked_on"]) < date.fromisoformat(
            claim["expires"]
        )


def test_where_jobs_run_is_not_declared() -> None:
    assert claims()["jobs-place"]["declared"] is False
    assert claims()["storage-regions"]["declared"] is True


@pytest.mark.parametrize(
    ("day", "counts"),
    [(date(2026, 11, 30), False), (READ, True), (LAST, True), (date(2027, 3, 2), False)],
)
def test_a_claim_counts_from_the_day_it_was_read_to_the_day_it_lapses(day, counts) -> None:
    assert claims(day)["storage-regions"]["declared"] is counts
    assert claims(day)["jobs-place"]["declared"] is False  # what was never declared does not come to be


def test_what_a_caller_does_to_a_claim_stays_with_that_caller() -> None:
    claims()["jobs-place"]["claim"]["en"] = "Jobs run in the Kingdom."
    claims()["jobs-place"]["declared"] = True
    assert "Does not say" in claims()["jobs-place"]["claim"]["en"]
    assert claims()["jobs-place"]["declared"] is False


@pytest.mark.parametrize("name", ["providers", "forms"])
def test_nobody_is_called_compliant(name) -> None:
    for path in data_path(name).glob("*.yaml"):
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        said = yaml.safe_dump(values, allow_unicode=True)
        assert not re.search(r"compl(y|ies|ian)|certified|متوافق|ممتثل|امتثال", said, re.IGNORECASE), (
            path.name
        )


def test_own_premises_and_sovereign_places_are_a_form_that_names_nobody() -> None:
    text = data_path("forms", "place.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    assert "on-premises" in text and "sovereign" in text
    assert values.pop("schema") == "grpo-lib/place/1"
    assert not any(values.values()) and set(papers.STAYS) <= set(re.findall(r"\w+", text))


def test_an_unknown_provider_is_a_clear_error() -> None:
    with pytest.raises(WrongInput) as caught:
        providers.load_provider("../rules/sa")
    assert "huggingface" in caught.value.en and "huggingface" in caught.value.ar


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id: huggingface", "id: other", "not the file's name"),
        ("legal_home: US", "legal_home: usa", "legal_home"),
        ("    declared: false\n", "", "'declared' is a required property"),
        ('expires: "2027-03-01"', 'expires: "2027-02-30"', "claims.0.expires"),
        ("claims:", "claims: [", "huggingface.yaml"),
    ],
)
def test_a_damaged_profile_is_a_clear_error(tmp_path, old, new, said) -> None:
    text = data_path("providers", "huggingface.yaml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "huggingface.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(WrongInput) as caught:
        providers.read_profile(path)
    assert said in caught.value.en and "huggingface.yaml" in caught.value.ar
