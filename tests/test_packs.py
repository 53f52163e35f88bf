"""Rule packs: data that hold to a schema, say what is not verified, and name file, line and field when they do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from grpo_lib import packs
from grpo_lib.packs import PackError

IDS = [
    "ae",
    "ae-adgm",
    "ae-difc",
    "ae-du",
    "bh",
    "dz",
    "eg",
    "iq",
    "jo",
    "kw",
    "lb",
    "ma",
    "om",
    "qa",
    "sa",
    "tn",
]
YEMEN = Path(__file__).parent / "data"
ARABIC = re.compile("[\u0621-\u064a]")


def walk(value, path=()):
    if isinstance(value, dict):
        if set(value) == {"ar", "en"}:
            yield path, value
        for key, one in value.items():
            yield from walk(one, (*path, key))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from walk(one, (*path, place))


def test_all_are_there() -> None:
    assert packs.known() == IDS


@pytest.mark.parametrize("pack_id", IDS)
def test_texts_are_in_both_languages_and_quote_no_law(pack_id) -> None:
    for path, texts in walk(packs.load(pack_id).to_dict()):
        assert texts["en"].strip(), path
        if path != ("names",) and "instrument" not in path:
            assert ARABIC.search(texts["ar"]), path
        if "paraphrase" in path:
            assert not re.search('[«»“”"]', texts["ar"] + texts["en"]), path


@pytest.mark.parametrize("pack_id", IDS)
def test_nothing_is_said_to_be_reviewed(pack_id) -> None:
    pack = packs.load(pack_id)
    assert pack.arabic_review.reviewer is None
    assert pack.unverified
    for language in ("ar", "en"):
        assert packs.explain(pack, language).count("\n") > 10


@pytest.mark.parametrize("pack_id", IDS)
def test_what_is_null_is_read_out_as_not_verified(pack_id) -> None:
    pack = packs.load(pack_id)
    law = pack.to_dict()["personal_data_law"]
    absent = sum(
        law[part]["paraphrase"] is None
        for part in ("transfer", "records", "impact_assessment", "retention", "breach")
    )
    assert packs.explain(pack, "en").count("not verified") >= absent
    assert packs.explain(pack, "ar").count("غير متحقق منه") >= absent


def test_conflicts_are_read_out() -> None:
    assert "24 hours or 72" in packs.explain(packs.load("kw"), "en")


def test_an_own_pack_is_data(tmp_path) -> None:
    text = (YEMEN / "ye.yaml").read_text(encoding="utf-8")
    (tmp_path / "ye.yaml").write_text(text, encoding="utf-8")
    assert "ye" in packs.known(tmp_path)
    assert packs.load("ye", tmp_path).country == "YE"
    with pytest.raises(PackError, match="How to write one"):
        packs.load("ye")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda v: v.pop("gate"), "-"),
        (
            lambda v: v["personal_data_law"]["transfer"].update(effect="maybe"),
            "personal_data_law.transfer.effect",
        ),
        (
            lambda v: v["personal_data_law"]["breach"].update(authority_hours="72"),
            "personal_data_law.breach.authority_hours",
        ),
        (lambda v: v["sources"].clear(), "sources"),
        (lambda v: v.update(id="xx"), "id"),
    ],
)
def test_a_fault_names_file_line_and_field(tmp_path, change, field) -> None:
    values = packs.load("sa").to_dict()
    change(values)
    path = tmp_path / "sa.yaml"
    path.write_text(yaml.safe_dump(values, allow_unicode=True, sort_keys=False), encoding="utf-8")
    with pytest.raises(PackError) as caught:
        packs.load("sa", tmp_path)
    assert re.search(rf"sa\.yaml:\d+: {re.escape(field)}: ", caught.value.en)
    assert "sa.yaml" in caught.value.ar
    if field != "-":
        line = int(re.search(r"sa\.yaml:(\d+)", caught.value.en)[1])
        assert (
            path.read_text(encoding="utf-8")
            .splitlines()[line - 1]
            .strip()
            .startswith(("- ", "[]", field.rsplit(".")[-1]))
        )


@pytest.mark.parametrize("raw", [b"a: [", b"\xff\xfe", b"", b"- 1", b"a: &x [*x]"])
def test_a_damaged_file_is_a_clear_error(tmp_path, raw) -> None:
    (tmp_path / "sa.yaml").write_bytes(raw)
    with pytest.raises(PackError) as caught:
        packs.load("sa", tmp_path)
    assert "sa.yaml:" in caught.value.en


def test_the_digest_is_that_of_the_file(tmp_path) -> None:
    pack = packs.load("sa")
    (tmp_path / "sa.yaml").write_bytes(pack.raw + b"# a comment\n")
    assert packs.load("sa", tmp_path).digest != pack.digest
