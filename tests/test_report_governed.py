"""Reports of a run with its whole governance half: what an officer asks is answered, and each answer is where it says."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from fixtures_governed import AUDITOR, OPERATOR, PACKS, REASON, write_governed
from test_figures import differing, facts, reach
from test_report import Page

from grpo_lib import documents, pdf, report, treeheads, wording
from grpo_lib.evidence import LEDGER, collect
from grpo_lib.ledger import read_events
from grpo_lib.report import FIGURES, REPORTS
from grpo_lib.runfolder import RunFolder

LANGUAGES = ("ar", "en")
QUESTIONS = yaml.safe_load(
    (Path(__file__).parent / "data/officer_questions.yaml").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed(tmp_path_factory.mktemp("governed"))


@pytest.fixture(scope="module")
def evidence(run: Path) -> dict[str, Any]:
    return collect(run)


@pytest.fixture(scope="module")
def html(evidence: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Reports without the cost of drawing their figures."""
    drawn = dict.fromkeys(FIGURES, "<svg></svg>")
    return {
        (name, language): report.render(evidence, name, language, drawn)
        for name in REPORTS
        for language in LANGUAGES
    }


@pytest.fixture(scope="module")
def texts(html: dict) -> dict[tuple[str, str], str]:
    return {key: Page(source).visible for key, source in html.items()}


def seen(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def said(key: str, language: str, **values: Any) -> str:
    """A sentence as it can be read; of one with values, what stands before the first where none are given."""
    if not values:
        return seen(wording.table()[key][language].split("{")[0].strip())
    return re.sub("[\u2066-\u2069]", "", wording.plain(key, language, **values))


# ------------------------------------------------------------------------------------------- ten questions


def answers(run: Path, language: str) -> dict[str, dict[str, list[str]]]:
    """Question -> what must be shown -> texts to be read in the report, drawn from the files and not from the evidence."""
    read = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in run.glob("*.json")}
    settings, decision, screen, network = (read[name] for name in ("settings", "decision", "pii", "network"))
    pack = {name: yaml.safe_load((run / f"packs/{name}.yaml").read_text(encoding="utf-8")) for name in PACKS}
    law = {name: one["personal_data_law"] for name, one in pack.items()}
    met = [one for one in decision["conditions"] if one["met"]]
    unmet = [one for one in decision["conditions"] if not one["met"]]
    assert met and unmet and decision["override"] and decision["verdict"] == "allow_with_conditions"
    proofs = [one["evidence"] for one in met]
    unverified = wording.table()["article_unverified"][language]
    role, until = decision["override"]["role"], decision["override"]["until"]
    events = {event["event"]: event["data"] for event in read_events(run / LEDGER)}
    gone = events["purged"]
    heads = treeheads.read(RunFolder(run))
    exposure = read["memorisation"]["policies"]["trained"]["exposure"]
    evaluation = read["evaluation"]

    def interval(side: str) -> str:
        one = evaluation[side]["sampled"]
        return f"{one['mean']:.3f} ({one['low']:.3f}–{one['high']:.3f})"

    def t(key: str, **values: Any) -> str:
        return said(key, language, **values)

    return {
        "who-answers": {
            "organisation": [settings["organisation"]],
            "role and not a person's name": [settings["responsible"]],
            "purpose": [settings["purpose"]],
            "controller": [t("controller_government")],
            "run id": [settings["run_id"]],
        },
        "which-data": {
            "class": [t("class_restricted")],
            "personal data yes or no": [t("personal_some")],
            "rows and digest of the data": ["3920", "480", read["data_manifest"]["sha256"]],
            "counts by kind": [f"{t('pii_' + one['kind'])}{one['rows']}" for one in screen["findings"]],
            "how many rows were screened": [t("screen_covered", screened=4, rows=4)],
            "that names are weak": [t("unseen_names_weak")],
            "the role that answered": [screen["answered"][0]["role"], t("screen_unanswered")],
        },
        "where-processed": {
            "declared country and by whom": ["(SA)", t("country_unproved")],
            "derived place": [t("place_local")],
            "number of endpoints beyond loopback": [t("network_beyond", count=network["beyond_loopback"])],
            "declared and observed side by side": [t("network_declared") + t("network_seen")],
            "limits of observing": [t(f"unseen_{one}") for one in network["cannot_see"]],
        },
        "verdict-and-rule": {
            "verdict on page 1": [t("verdict_allow_with_conditions")],
            "rule ids and articles": [one["rule"] for one in decision["reasons"]]
            + [one["article"] for one in decision["reasons"] if one["article"]],
            "confidence": [t(f"confidence_{one['confidence']}") for one in decision["packs"]],
            "unverified points and conflicts": [
                seen(one[language]) for one in (*decision["unverified"], *decision["conflicts"])
            ],
            "reviewed or unreviewed": ["A. Lawyer", t("pack_not_reviewed"), t("packs_unreviewed")],
            'override with role and expiry or "none"': [role, until, REASON],
            "that it is a conservative reading and not legal advice": [t("reading_basis")],
        },
        "conditions-and-evidence": {
            "each condition": [one["id"] for one in met + unmet],
            "met or not": [t("condition_met"), t("evidence_missing")],
            "reference": [one["ref"] for one in proofs],
            "issuer": [one["issuer"] for one in proofs],
            "expiry": [one["expires"] for one in proofs],
            "countries": [one for proof in proofs for one in proof["countries"]],
            'digest of the document; "no conditions" where the list is empty': [
                one["sha256"] for one in proofs
            ],
        },
        "signed-and-witnessed": {
            "signed or not": [t("heads_count") + str(len(heads))],
            "fingerprint": [OPERATOR.fingerprint],
            "number of ledger lines": [t("ledger_lines") + str(heads[-1].size)],
            "witnessed or self-attested": [AUDITOR.name, str(heads[0].size), "2026-12-01 08:07:00 UTC"],
            "that the key holder could rewrite without a witness": [t("limit_signed")],
            "the command to verify and that the fingerprint must come from elsewhere": [
                f"verify.py . --fingerprint {OPERATOR.fingerprint}",
                t("fingerprint_outside"),
            ],
            "draft or final": [t("report_final")],
        },
        "kept-and-purged": {
            "date of expiry": [read["statements"]["retention_until"]],
            'period from the pack or "not verified"': [
                *(seen(one["retention"]["paraphrase"][language]) for one in law.values()),
                unverified,
            ],
            'what was purged with files and bytes or "nothing purged"': [
                "3\u202f145\u202f728",
                "checkpoints",
            ],
            "role": [gone["by_role"]],
            "reason": [gone["reason"]],
            "time": ["2026-12-01 08:06:25 UTC"],
            "sealed rollouts that remain": [f"{t('files_count')}: 2"],
        },
        "incidents": {
            'number and kind of incidents or "none recorded"': [t("incident_checkpoint_refused"), "SIGKILL"],
            "time of each": ["2026-12-01 08:01:48 UTC"],
            "what was done": [t("severity_serious"), t("severity_handled")],
            'hours for the authority and for the persons or "not verified"': [
                t("hours", count=law["sa"]["breach"]["authority_hours"]),
                t("breach_persons"),
                unverified,
            ],
            "conflicts between sources": [t("conflicts_of_sources")],
        },
        "did-it-learn": {
            "score before and after": [interval("base"), interval("trained")],
            "number of held-out questions": ["400", "480"],
            "interval": [evaluation["interval"]],
            "base model": ["teaching"],
            "steps and seed": ["60 / 60", t("steps_done")],
            "whether memorisation was checked": [
                f"{exposure['mean']:.2f} ({exposure['low']:.2f}–{exposure['high']:.2f})"
            ],
            "limits of the measurement": [t("limit_result")],
        },
        "what-next": {
            'action list with what, owner, article or "not verified", due date in both calendars, document': [
                t("act_judge_breach"),
                t("owner_officer"),
                law["sa"]["breach"]["article"],
                "2026-12-04 08:03 UTC",
                {"ar": "24 جمادى الآخرة 1448", "en": "24 Jumada al-Akhirah 1448"}[language],
                t("document_notice"),
            ],
            "class of the adapter, inherited or lowered by which role": [
                t("class_internal"),
                "مديرة البيانات",
            ],
            "that export, merge, push and hand-over pass the gate again": [t("gate_again")],
        },
    }


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("question", QUESTIONS["questions"], ids=lambda one: one["id"])
def test_an_officer_finds_the_answer(run: Path, texts: dict, question: dict, language: str) -> None:
    given = answers(run, language)[question["id"]]
    # A flow list of YAML parts at commas; joined again it must name the same points, none left out.
    assert re.split("[,;] ", ", ".join(given)) == re.split("[,;] ", ", ".join(question["must_show"]))
    where = {"residency": ["data-residency"], "audit": ["training-audit"], "both": list(REPORTS)}
    for name in where[question["answer_from"]]:
        text = texts[name, language]
        for point, wanted in given.items():
            assert wanted
            for one in wanted:
                assert seen(one) in text, f"{name}.{language}: {question['id']}: {point}: {one!r}"


def test_where_there_is_none_it_is_said(tmp_path: Path) -> None:
    run = write_governed(tmp_path)
    path = run / "decision.json"
    decision = json.loads(path.read_text(encoding="utf-8")) | {"conditions": [], "override": None}
    path.write_text(json.dumps(decision), encoding="utf-8")
    (run / "memorisation.json").unlink()
    for language in LANGUAGES:
        text = {
            name: Page(
                report.render(collect(run), name, language, dict.fromkeys(FIGURES, "<svg></svg>"))
            ).visible
            for name in REPORTS
        }
        for key in ("conditions_none", "override_none"):
            assert wording.table()[key][language] in text["data-residency"]
        assert wording.table()["memorisation_missing"][language] in text["training-audit"]
        # The decision was changed by hand: nothing of it is final.
        assert all(wording.table()["draft"][language] in one for one in text.values())
        assert not any(wording.table()["report_final"][language] in one for one in text.values())


# ------------------------------------------------------------------------------------------------ page 1


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", REPORTS)
def test_page_one_is_for_deciding(html: dict, evidence: dict, name: str, language: str) -> None:
    source = html[name, language]
    first = Page(
        source[source.index("<main>") : source.index('<h2 id="in-short"')] + "</section></main>"
    ).visible
    for key in ("verdict_allow_with_conditions", "reading_basis", "packs_unreviewed", "section_actions"):
        assert said(key, language) in first
    assert AUDITOR.name in first and "08:07:00" in first
    override = evidence["decision"]["override"]
    for one in (override["by"], override["role"], override["until"], REASON, *override["rules"]):
        assert one in first
    for action in evidence["actions"]:
        assert said(f"owner_{action['owner']}", language) in first
        assert said(action["key"], language) in first
        if action["article"]:
            assert action["article"] in first
        due = action["due"][:10] if action["due"] else said(f"when_{action['when']}", language)
        assert due in first
    # Both calendars: no Gregorian due date without its Hijri one.
    days = {action["due"][:10] for action in evidence["actions"] if action["due"]}
    for day in days:
        assert re.search(rf"{day}( [\d:]+ UTC)? \([^)]*14\d\d (هـ|AH)\)", first), day


def test_due_dates_are_counted_from_the_run(evidence: dict, run: Path) -> None:
    events = list(read_events(run / LEDGER))
    refused = next(one["time"] for one in events if one["event"] == "checkpoint_refused")
    assert refused.startswith("2026-12-01T08:03:")
    due = {(one["key"], one["pack"]): one["due"] for one in evidence["actions"]}
    assert due["act_judge_breach", "sa"] == "2026-12-04T" + refused[11:16] + "+00:00"  # 72 hours later
    assert due["act_keep_bundle", "sa"] == "2031-12-01"  # five years after the end
    assert due["act_enter_record", "sa"] == "2026-12-01"
    override = json.loads((run / "decision.json").read_text(encoding="utf-8"))["override"]
    assert due["act_end_override", None] == override["until"]


def test_what_cannot_wait_comes_first(evidence: dict) -> None:
    kinds = [one["when"] == "at_once" for one in evidence["actions"]]
    assert kinds == sorted(kinds, reverse=True) and any(kinds)
    dated = [one["due"] for one in evidence["actions"] if one["due"]]
    assert dated == sorted(dated)


def test_a_reviewed_pack_is_not_said_to_deny_only(evidence: dict) -> None:
    keys = {(one["key"], one["pack"]) for one in evidence["actions"]}
    assert ("act_verify_pack", "qa") in keys and ("act_verify_pack", "sa") not in keys


def test_an_article_is_that_of_the_condition_s_own_rule(run: Path) -> None:
    folder = run.parent / "hosting"
    shutil.copytree(run, folder)
    decision = json.loads((run / "decision.json").read_text(encoding="utf-8"))
    rule = next(
        one for one in decision["reasons"] if one["pack"] == "sa" and one["layer"] == "government_hosting"
    )
    condition = {"id": "sa-host", "rule": rule["rule"], "pack": "sa", "ar": "ش", "en": "c", "met": False}
    decision["conditions"] = [condition | {"evidence_kind": "contract", "evidence": None}]
    (folder / "decision.json").write_text(json.dumps(decision), encoding="utf-8")
    supply = next(one for one in collect(folder)["actions"] if one["key"] == "act_supply_evidence")
    assert supply["article"] == rule["article"] and supply["document"] == "questionnaire"


# ------------------------------------------------------------------------------------------------ sources


def test_every_figure_is_where_its_source_says(run: Path, evidence: dict) -> None:
    wrong, looked = differing(run, evidence)
    assert wrong == [] and looked > 60
    told = {path: fact for path, fact in facts(evidence) if fact["source"]["file"] == "statements.json"}
    assert [fact["value"] for fact in told.values()] == ["2027-06-30"]


def test_governance_parts_are_what_the_files_hold(run: Path, evidence: dict) -> None:
    read = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in run.glob("*.json")}
    decision = read["decision"]
    for name in ("reasons", "conditions", "remedies"):
        assert len(evidence["decision"][name]) == len(decision[name])
        for shown, held in zip(evidence["decision"][name], decision[name], strict=True):
            assert {key: shown[key] for key in held if key not in ("ar", "en")} == {
                key: one for key, one in held.items() if key not in ("ar", "en")
            }
            assert all(len(shown[language]) == len(held[language]) for language in LANGUAGES)
    assert evidence["decision"]["override"] == decision["override"]
    assert evidence["screen"] == read["pii"] and evidence["network"] == read["network"]
    assert evidence["custody"]["class"] == read["custody"]["class"]
    assert evidence["memorisation"]["exposure"] == read["memorisation"]["policies"]["trained"]["exposure"]
    events = {event["seq"]: event for event in read_events(run / LEDGER)}
    for one in (*evidence["purges"], *evidence["releases"]):
        event = events[one["seq"]]
        assert event["time"] == one["time"] and event["data"].items() <= one.items()
    signing, lines = evidence["signing"], treeheads.whole_lines(run / LEDGER)
    assert signing["size"] == len(lines) and signing["root"] == treeheads.merkle_root(lines).hex()
    for one in evidence["incidents"]:
        for seq in one["seqs"]:
            assert events[seq]["event"] in (one["kind"], "process_ended")
    for pack in evidence["packs"]:
        held = yaml.safe_load((run / f"packs/{pack['id']}.yaml").read_text(encoding="utf-8"))
        for part in ("transfer", "records", "impact_assessment", "retention", "breach"):
            assert pack[part]["article"] == held["personal_data_law"][part]["article"]
        assert pack["breach"]["authority_hours"] == held["personal_data_law"]["breach"]["authority_hours"]


SOURCE = re.compile(
    r"\[([\w./-]+?\.(?:jsonl|json|yaml)|[\w-]+/(?:[\w-]+/)?)(?:: ([^\]،]+?))?(?:[,،] [^\]]*?(\d+)(?:–(\d+))?)?\]"
)


def printed_sources(source: str) -> list[str]:
    found = re.findall(r'<span class="source">(.*?)</span>', source, flags=re.DOTALL)
    return [seen(re.sub(r"<[^>]+>", "", one)) for one in found]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_printed_source_leads_somewhere(run: Path, html: dict, language: str) -> None:
    events = {event["seq"]: event for event in read_events(run / LEDGER)}
    total = len((run / LEDGER).read_bytes().splitlines())
    looked = 0
    for name in REPORTS:
        for text in printed_sources(html[name, language]):
            if match := re.fullmatch(r"\[(?:ledger line|سطر السجل) ([\d, –]+)\]", text):
                assert all(1 <= int(one) <= total for one in re.findall(r"\d+", match[1]))
                looked += 1
                continue
            match = SOURCE.fullmatch(text)
            assert match, text
            file, field, first, last = match.groups()
            assert (run / file).exists(), text
            looked += 1
            if file == LEDGER:
                event, _, rest = field.partition(".")
                for line in (first, last):
                    if line:
                        assert events[int(line) - 1]["event"] == event, text
                if first and rest:
                    one = events[int(first) - 1]
                    assert rest in one or reach(one["data"], rest) is not None, text
            elif field and file.endswith(".json") and field != "SHA-256":
                held = json.loads((run / file).read_text(encoding="utf-8"))
                assert all(reach(held, one) is not None for one in field.split(", ")), text
            elif field and file.endswith(".jsonl"):
                rows = [json.loads(line) for line in (run / file).read_text(encoding="utf-8").splitlines()]
                assert all(one in rows[0] for one in field.split(", ")), text
    assert looked > 60


# ---------------------------------------------------------------------------------------------- documents


def written(run: Path, language: str) -> dict[str, str]:
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in (run / "reports/documents").glob(f"*.{language}.html")
    }


@pytest.fixture
def html_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "available", lambda: False)


@pytest.mark.usefixtures("html_only")
def test_documents_are_drawn_with_blank_judgement(run: Path, evidence: dict) -> None:
    report.build_documents(run, every=True)
    assert {kind for kind, _ in documents.needed(evidence)} >= {"notice", "record", "assessment"}
    for language in LANGUAGES:
        found = written(run, language)
        assert len(found) == 1 + 4 * len(PACKS) and all(".DRAFT." in name for name in found)
        blank = wording.table()["document_blank"][language]
        for kind, pack in documents.all_kinds(evidence):
            source = found[f"{documents.name(kind, pack)}.DRAFT.{language}.html"]
            cells = re.findall(r"<tr><th scope=\"row\">.*?</th><td>(.*?)</td></tr>", source, flags=re.DOTALL)
            rows = documents.definition(kind)["rows"]
            assert len(cells) == len(rows)
            for row, cell in zip(rows, cells, strict=True):
                if "fill" not in row and "list" not in row:
                    assert Page(cell).visible == blank, (kind, row["id"])
                elif wording.table()["document_none_of_list"][language] not in cell:
                    for paragraph in cell.split("</p>")[:-1]:
                        assert 'class="source"' in paragraph, (kind, row["id"], paragraph)


@pytest.mark.usefixtures("html_only")
@pytest.mark.parametrize("lacking", ["nothing", "by", "on", "cell"])
def test_a_document_is_a_draft_until_a_person_has_completed_it(
    run: Path, tmp_path: Path, lacking: str
) -> None:
    shutil.copytree(run, tmp_path / run.name, ignore=shutil.ignore_patterns("reports"))
    copy = tmp_path / run.name
    report.build_documents(copy)  # the drafts of an earlier day
    asked = [
        row["id"] for row in documents.definition("notice")["rows"] if "fill" not in row and "list" not in row
    ]
    given = {"by": "سعاد", "on": "2026-12-02", "cells": dict.fromkeys(asked, "جواب مكتوب")}
    if lacking == "cell":
        given["cells"][asked[-1]] = "  "
    elif lacking != "nothing":
        given[lacking] = ""
    (copy / "documents").mkdir()
    path = copy / "documents/notice-sa.yaml"
    path.write_text(yaml.safe_dump(given, allow_unicode=True), encoding="utf-8")
    report.build_documents(copy)
    final, draft = "notice-sa.ar.html", "notice-sa.DRAFT.ar.html"
    found = written(copy, "ar")
    assert (final in found, draft in found) == (lacking == "nothing", lacking != "nothing")
    text = Page(found.get(final) or found[draft]).visible
    assert (wording.table()["draft"]["ar"] in text) == (lacking != "nothing")
    assert text.count("جواب مكتوب") == len(asked) - (lacking == "cell")
    if lacking == "nothing":
        assert "سعاد" in text and "2026-12-02 (22 جمادى الآخرة 1448 هـ)" in text


# ---------------------------------------------------------------------------------------------- same bytes


@pytest.mark.skipif(not pdf.available(), reason="WeasyPrint or Pango is not installed: make pdf-libs")
def test_two_builds_have_the_same_bytes(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTML and PDF, whether or not the caller has set a clock for reproducible builds."""
    monkeypatch.setattr(documents, "needed", lambda _: [("notice", "sa")])
    built = []
    for place, epoch in enumerate((None, "1800000000", None, "1800000000")):
        copy = tmp_path / str(place) / run.name
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("reports"))
        with monkeypatch.context() as clock:
            clock.delenv("SOURCE_DATE_EPOCH", raising=False)
            if epoch:
                clock.setenv("SOURCE_DATE_EPOCH", epoch)
            paths = report.build(copy, ["ar"])
            assert os.environ.get("SOURCE_DATE_EPOCH") == epoch
        built.append({path.name: path.read_bytes() for path in paths})
    assert built[0] == built[2] and built[1] == built[3]
    assert len(built[0]) == 7
    pages = {name for name in built[0] if name.endswith(".html")}
    assert {name: built[0][name] for name in pages} == {name: built[1][name] for name in pages}
