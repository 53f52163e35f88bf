"""`RunSettings`: every fault at once, in both languages, and nothing written."""

from __future__ import annotations

import json
import math
import re

import pytest
from pydantic import ValidationError

from grpo_lib.errors import EXIT_WRONG_INPUT, WrongInput
from grpo_lib.settings import RunSettings, load, new_run_id, read


def refused(**values) -> WrongInput:
    with pytest.raises(WrongInput) as caught:
        load(values)
    return caught.value


def test_defaults_are_a_valid_run_with_a_fresh_id():
    first, second = load({}), load({})
    assert first.run_id != second.run_id
    assert load({"run_id": first.run_id}).run_id == first.run_id
    assert first.samples_per_step == first.prompts_per_step * first.num_generations


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError):
        load({}).steps = 5


def test_all_faults_are_listed_at_once_in_both_languages():
    error = refused(learning_rate="fast", num_generations=1, stepz=3, model="/no/such/model", task="algebra")
    assert error.exit_code == EXIT_WRONG_INPUT
    for text in (error.ar, error.en):
        for name in ("learning_rate", "num_generations", "stepz", "model", "task"):
            assert name in text
        assert text.count("•") == 5
    assert re.search("[\u0600-\u06ff]", error.ar) and not re.search("[\u0600-\u06ff]", error.en)


def test_faults_of_fields_and_of_combinations_are_listed_together():
    error = refused(learning_rate="fast", port_first=30000, port_last=29000)
    assert "learning_rate" in error.en and "port_last is below port_first" in error.en


def test_several_impossible_combinations_are_listed_at_once():
    error = refused(port_first=30000, port_last=29000, heartbeat_s=50, deadline_s=60)
    assert "port_last is below port_first" in error.en
    assert "three times heartbeat_s" in error.en


def test_a_combination_is_not_blamed_for_a_value_that_was_never_given():
    # deadline_s is faulty itself; its default (60) must not be held against heartbeat_s.
    error = refused(deadline_s="long", heartbeat_s=30)
    assert error.en.count("•") == 1 and "deadline_s='long'" in error.en


def test_unknown_names_come_with_a_suggestion():
    error = refused(learnig_rate=0.1)
    assert "learnig_rate: unknown parameter. Did you mean learning_rate?" in error.en
    assert "learning_rate" in error.ar and "معامل غير معروف" in error.ar
    assert "--help" in refused(zzzzqqqq=1).en


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("learning_rate", "fast", "must be a number"),
        ("steps", "ten", "must be a whole number"),
        ("steps", 2.5, "must be a whole number"),
        ("organisation", 7, "must be text"),
        ("num_generations", 1, "must be at least 2"),
        ("learning_rate", 0, "must be greater than 0"),
        ("learning_rate", -1e-3, "must be greater than 0"),
        ("epsilon", 1.0, "must be less than 1"),
        ("port_last", 70_000, "must be at most 65535"),
        ("seed", -1, "must be at least 0"),
        ("data_class", "open", "accepted:"),
        ("personal_data", "maybe", "accepted:"),
        ("transport", "nccl", "accepted:"),
        ("country", "Saudi", "two-letter code"),
        ("retention_until", "soon", "a date such as"),
        ("task", "algebra", "known tasks: arithmetic"),
    ],
)
def test_each_fault_names_field_value_and_remedy(name, value, says):
    error = refused(**{name: value})
    assert f"{name}={value!r}: " in error.en and says in error.en
    assert f"{name}={value!r}" in error.ar
    assert error.en.count("•") == error.ar.count("•") == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "inf"])
@pytest.mark.parametrize("name", ["learning_rate", "temperature", "deadline_s", "steps"])
def test_numbers_that_are_not_numbers_are_refused(name, value):
    error = refused(**{name: value})
    assert name in error.en and name in error.ar


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_a_finite_number_is_said_in_words(value):
    error = refused(learning_rate=value)
    assert "must be a finite number" in error.en
    assert "عدد" in error.ar


@pytest.mark.parametrize("value", ["20311231", "2031-W01-1", "2031-13-01", "31-12-2031"])
def test_retention_is_a_date_in_the_one_documented_form(value):
    assert "retention_until" in refused(retention_until=value).en


def test_retention_and_country_are_kept_as_given():
    settings = load({"retention_until": "2031-12-31", "country": "SA"})
    assert (settings.retention_until, settings.country) == ("2031-12-31", "SA")


@pytest.mark.parametrize(
    "run_id", ["..", "../x", "a/b", "Run", "a b", ".hidden", "-x", "تشغيل", "a\n", "x" * 65, "a\\b"]
)
def test_run_ids_that_could_leave_the_folder_or_confuse_a_reader_are_refused(run_id):
    assert "run_id" in refused(run_id=run_id).en


@pytest.mark.parametrize("run_id", ["a", "run-1", "0.1_x", "x" * 64, new_run_id()])
def test_plain_run_ids_are_taken(run_id):
    assert load({"run_id": run_id}).run_id == run_id


@pytest.mark.parametrize("model", ["/no/such/model", "./no/such/model", "no-such-model", ""])
def test_a_missing_model_path_is_refused(model):
    error = refused(model=model)
    assert "no model folder here" in error.en and "لا يوجد مجلد نموذج" in error.ar


def test_a_model_folder_and_a_hub_id_are_taken(tmp_path, monkeypatch):
    from huggingface_hub import constants

    (tmp_path / "config.json").write_text("{}")
    assert load({"model": str(tmp_path)}).model == str(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert load({"model": "someone/some-model"}).model == "someone/some-model"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in refused(model="someone/some-model-nobody-has").en


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"port_first": 30000, "port_last": 29999}, "port_last is below"),
        ({"heartbeat_s": 21, "deadline_s": 60}, "three times heartbeat_s"),
        ({"groups_per_lease": 49}, "groups_per_lease exceeds"),
        ({"groups_per_lease": 17, "max_staleness": 0}, "groups_per_lease exceeds"),
        ({"data_class": "public"}, "data_class must be synthetic"),
    ],
)
def test_impossible_combinations_are_refused(values, says):
    error = refused(**values)
    assert says in error.en and error.ar.count("•") == error.en.count("•") == 1


@pytest.mark.parametrize(
    "values",
    [
        {"port_first": 30000, "port_last": 30000},
        {"heartbeat_s": 20, "deadline_s": 60},
        {"groups_per_lease": 48},
        {"data_class": ""},
    ],
)
def test_the_limits_themselves_are_allowed(values):
    load(values)


def test_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(run_id="half", steps="x")
    load({"run_id": "whole"})
    assert list(tmp_path.iterdir()) == []


def test_settings_come_back_from_their_file(tmp_path):
    settings = load({"run_id": "kept", "organisation": "هيئة", "seed": 3})
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(settings.model_dump(), ensure_ascii=False), encoding="utf-8")
    assert read(path) == settings


def test_every_parameter_is_described_in_both_languages():
    for name, field in RunSettings.model_fields.items():
        assert field.description, name
        assert re.search("[\u0600-\u06ff]", field.json_schema_extra["ar"]), name


@pytest.mark.parametrize("text", ["", "{", "[1]", "5"])
def test_damaged_stored_settings_are_said_in_both_languages(tmp_path, text):
    path = tmp_path / "settings.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongInput) as caught:
        read(path)
    assert "cannot be read" in caught.value.en and "تعذّرت" in caught.value.ar
