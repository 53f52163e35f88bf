"""Rule packs: data that hold to a schema, say what is not verified, and name file, line and field when they do not."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest
import yaml

from grpo_lib import pack_text, packs
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


# Fields on which the gate decides or a clock or list of duties rests.
DECISIVE = [
    *("status", "authority", "government_hosting.levels"),
    *(f"gate.{one}" for one in ("personal", "classified", "public")),
    *(f"personal_data_law.{one}" for one in ("binds_government", "scope_note", "training")),
    *(f"personal_data_law.transfer.{one}" for one in ("article", "paraphrase", "confidence", "effect")),
    *(f"personal_data_law.records.{one}" for one in ("article", "paraphrase", "keep_years_after_end")),
    *(f"personal_data_law.breach.{one}" for one in ("article", "authority_hours", "persons_hours")),
    *(f"personal_data_law.{one}.paraphrase" for one in ("impact_assessment", "retention", "penalties")),
    *(f"personal_data_law.{one}.confidence" for one in ("impact_assessment", "retention", "penalties")),
    *(f"government_hosting.rules.0.{one}" for one in ("article", "confidence", "abroad", "in_country")),
    "personal_data_law.transfer.conditions.0.evidence",
]
NOTHING = {"ar": "غير متحقق منه", "en": "not verified"}


def field(values, name):
    """The parent of a field and its last key; None where the pack holds no such rule or condition."""
    *above, last = [int(part) if part.isdigit() else part for part in name.split(".")]
    for part in above:
        if values is None or (isinstance(part, int) and part >= len(values)):
            return None, last
        values = values[part]
    return values, last


@pytest.mark.parametrize("language", ["ar", "en"])
@pytest.mark.parametrize("name", DECISIVE)
def test_a_field_that_becomes_null_is_read_out_as_not_verified(name, language) -> None:
    whole = packs.load("sa")
    values = whole.to_dict()
    parent, last = field(values, name)
    before = parent[last]
    parent[last] = None
    changed = packs.explain(packs.Pack(whole.raw, values, whole.digest), language)
    # Taking a rule as a whole out silences the remarks inside it, so the words may only become more.
    more = changed.count(NOTHING[language]) - packs.explain(whole, language).count(NOTHING[language])
    assert more == 1 or (before is None and more == 0), name


@pytest.mark.parametrize("pack_id", IDS)
def test_every_null_of_the_decision_is_read_out(pack_id) -> None:
    pack = packs.load(pack_id)
    parents = [field(pack.to_dict(), name) for name in DECISIVE]
    nulls = sum(parent is not None and parent[last] is None for parent, last in parents)
    for language, words in NOTHING.items():
        assert packs.explain(pack, language).count(words) >= nulls
    if not pack.government_hosting.rules:
        assert "Rules: not verified" in packs.explain(pack, "en")


@pytest.mark.parametrize("pack_id", IDS)
def test_a_rule_that_asks_for_papers_lists_a_condition(pack_id) -> None:
    """Lebanon's transfer lists none in the facts, and the gate denies by that; a hosting rule is written by us."""
    for rule in packs.load(pack_id).government_hosting.rules:
        kinds = {one.evidence for one in rule.conditions}
        if "needs_authorisation" in (rule.abroad, rule.in_country):
            assert "authorisation" in kinds, rule.id
        if "needs_evidence" in (rule.abroad, rule.in_country):
            assert kinds, rule.id


@pytest.mark.parametrize("pack_id", [*IDS, "ye"])
def test_arabic_isolates_every_latin_word_and_number(pack_id) -> None:
    said = packs.explain(packs.load(pack_id, YEMEN), "ar")
    isolated = re.compile("[\u2066\u2068][^\u2066\u2068\u2069]*\u2069")
    outside = isolated.sub("", said)
    assert not re.search("[A-Za-z0-9\u2066\u2068\u2069]", outside), outside  # none left over, none nested


def test_sentences_stand_in_both_languages_with_the_same_places() -> None:
    def places(text):
        return sorted(name for _, name, _, _ in Formatter().parse(text) if name)

    for key, texts in pack_text.table().items():
        assert set(texts) == {"ar", "en"} and places(texts["ar"]) == places(texts["en"]), key
        bare = re.sub(r"\{\w+\}", "", texts["ar"])
        assert ARABIC.search(bare) and not re.search("[A-Za-z0-9\u064b-\u0652]", bare), key


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


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "    effect: needs_authorisation\n",
            "    effect: needs_authorisation\n    effect: allow_with_record\n",
            "personal_data_law.transfer.effect: stands twice",
        ),
        ('verified_on: "2026-12-01"', 'verified_on: "2026-02-30"', "verified_on: '2026-02-30' is no day"),
        (
            "id: sa-ccrf",
            "id: sa-ndmo-secret",
            "government_hosting.rules[2].id: 'sa-ndmo-secret' stands twice",
        ),
        ("id: sa-transfer-minimum", "id: sa-transfer-purpose", "'sa-transfer-purpose' stands twice"),
        ("authority:\n  ar:", "authority:\n  arabic:", "authority: 'ar' is a required property"),
    ],
)
def test_what_a_reader_would_overlook_is_refused(tmp_path, old, new, said) -> None:
    """A value that stands twice, a day or an id that cannot be, and a fault told by the alternative that was meant."""
    text = packs.load("sa").raw.decode("utf-8")
    assert text.count(old) == 1
    (tmp_path / "sa.yaml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(PackError) as caught:
        packs.load("sa", tmp_path)
    assert re.search(rf"sa\.yaml:\d+: .*{re.escape(said)}", caught.value.en)


def test_all_faults_are_told_at_once(tmp_path) -> None:
    text = packs.load("sa").raw.decode("utf-8")
    text = text.replace("status: in_force", "status: perhaps").replace(
        "confidence: high\nverified", "confidence: sure\nverified"
    )
    (tmp_path / "sa.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PackError) as caught:
        packs.load("sa", tmp_path)
    assert ": status: " in caught.value.en and ": confidence: " in caught.value.en


@pytest.mark.parametrize("pack_id", ["../rules/sa", "SA", "sa/", "", "sa\n", "/etc/passwd"])
def test_only_an_id_names_a_pack(tmp_path, pack_id) -> None:
    with pytest.raises(PackError, match="How to write one"):
        packs.load(pack_id, tmp_path)


def test_the_digest_is_that_of_the_file(tmp_path) -> None:
    pack = packs.load("sa")
    (tmp_path / "sa.yaml").write_bytes(pack.raw + b"# a comment\n")
    assert packs.load("sa", tmp_path).digest != pack.digest
