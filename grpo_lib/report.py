"""Reports of a run, in Arabic and English, from its run folder alone: `python -m grpo_lib.report RUN_DIR`.

Each report is one HTML file: style, font and figures are inside it, and it asks for nothing from any network. Dates come
from the run, never from the clock, so the same run folder gives the same bytes. Nothing here needs torch, and nothing
printed is a prompt, a completion, a secret, a user name or a local path (see `incidents.public`).

Sentences stand in `compliance/wording.yaml`, layout in `compliance/templates/`, figures' values in the evidence.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from compliance import path as data_path
from grpo_lib import attestation, documents, keys, model_card, pdf, plots, treeheads, wording
from grpo_lib.errors import GrpoError, WrongInput, isolate
from grpo_lib.evidence import LEDGER, collect
from grpo_lib.ledger import Ledger
from grpo_lib.runfolder import RunFolder, file_sha256, write_atomic
from grpo_lib.settings import read
from grpo_lib.view_governance import GovernanceView as View
from grpo_lib.wording import ltr

REPORTS = ("training-audit", "data-residency")
FIGURES = {"reward": plots.reward_curve, "staleness": plots.staleness, "timeline": plots.timeline}


def build(run_dir: Path | str, languages: Iterable[str] = wording.LANGUAGES) -> list[Path]:
    """Write every report of a run in the given languages, the documents it calls for, and the adapter's model card.

    A report that nobody can answer for yet says DRAFT on each page and in its file name. Returns what was written; PDFs
    are among it where this machine can write them.

    Raises:
        WrongInput: no such run folder, or a language that no report is written in.
    """
    languages = _known(languages)
    evidence = collect(run_dir)
    folder = RunFolder(run_dir).reports
    for old in [*folder.glob("*.html"), *folder.glob("*.pdf")]:
        old.unlink()  # a draft must not lie beside what replaces it
    written = []
    for language in languages:
        drawn = {name: plots.svg(draw(evidence["series"], language)) for name, draw in FIGURES.items()}
        for report in REPORTS:
            name = f"{report}{'.DRAFT' if evidence['draft'] else ''}.{language}"
            html = render(evidence, report, language, drawn)
            written += _write(folder / name, html, evidence, language)
    written += _documents(Path(run_dir), evidence, documents.needed(evidence), languages)
    path = folder / "model-card.md"
    write_atomic(path, str(model_card.card(evidence)))
    return [*written, path]


def build_documents(run_dir: Path | str, every: bool = False) -> list[Path]:
    """Write the documents that a run calls for, or every kind, in both languages."""
    evidence = collect(run_dir)
    wanted = documents.all_kinds(evidence) if every else documents.needed(evidence)
    return _documents(Path(run_dir), evidence, wanted, wording.LANGUAGES)


def _known(languages: Iterable[str]) -> tuple[str, ...]:
    languages = tuple(languages)
    unknown = [language for language in languages if language not in wording.LANGUAGES]
    if unknown or not languages:
        raise WrongInput(
            ar=f"لغات التقارير المتاحة: {isolate('ar, en')}.",
            en=f"Reports are written in: ar, en. Not in: {', '.join(unknown) or 'no language at all'}.",
        )
    return languages


def _write(stem: Path, html: str, evidence: dict[str, Any], language: str) -> list[Path]:
    """One page as HTML and, where this machine can, as PDF with the evidence attached."""
    path = stem.with_name(stem.name + ".html")
    write_atomic(path, html)
    if not pdf.available():
        return [path]
    attached = json.dumps(evidence, ensure_ascii=False, indent=1, sort_keys=True).encode()
    try:
        created = datetime.fromisoformat(evidence["until"]["last_event"]["value"])
    except (TypeError, ValueError):
        created = datetime.fromtimestamp(0, UTC)
    described = wording.plain("attached_evidence", language)
    return [path, pdf.write(html, stem.with_name(stem.name + ".pdf"), attached, described, created)]


def _documents(
    run_dir: Path, evidence: dict[str, Any], wanted: list[tuple[str, str | None]], languages: Iterable[str]
) -> list[Path]:
    written = []
    for kind, pack in wanted:
        filled = documents.fill(evidence, kind, pack, documents.answers(run_dir, kind, pack))
        for language in languages:
            stem = documents.name(kind, pack)
            name = f"{stem}{'' if filled['complete'] else '.DRAFT'}.{language}"
            for suffix in (
                ".html",
                ".pdf",
            ):  # a draft must not lie beside what replaces it, nor the other way round
                other = f"{stem}{'.DRAFT' if filled['complete'] else ''}.{language}{suffix}"
                (RunFolder(run_dir).reports / "documents" / other).unlink(missing_ok=True)
            view = View(evidence, language, {})
            context = {"e": evidence, "d": filled, "language": language, "css": _style()}
            html = _templates().get_template("document.html.j2").render(view.functions() | context)
            written += _write(RunFolder(run_dir).reports / "documents" / name, html, evidence, language)
    return written


def render(evidence: dict[str, Any], report: str, language: str, drawn: dict[str, str]) -> str:
    """One report as HTML text.

    Args:
        evidence: What `evidence.collect` returned.
        report: A name in `REPORTS`.
        drawn: SVG text of each figure in `FIGURES`.
    """
    view = View(evidence, language, drawn)
    context = view.functions() | {
        "e": evidence,
        "language": language,
        "report": report,
        "css": _style(),
        "ledger": LEDGER,
        "uses_nccl": any(group["backend"] == "nccl" for group in evidence["groups"]),
    }
    return _templates().get_template(f"{report}.html.j2").render(context)


def incident_rows(evidence: dict[str, Any], language: str) -> list[tuple[Markup, ...]]:
    """Severity, time, sentence and count of each incident as HTML, for a table in a notebook."""
    view = View(evidence, language, {})
    return [
        (
            view.t(f"severity_{one['severity']}"),
            view.clock(one["time"]) if one["time"] else view.t("not_recorded"),
            view.incident(one),
            ltr(one["count"]),
        )
        for one in evidence["incidents"]
    ]


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_path("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _style() -> Markup:
    """The style sheet with the Arabic face inside it. Both are our own files, hence markup."""
    font = base64.b64encode(data_path("fonts", "NotoNaskhArabic-Regular.ttf").read_bytes()).decode("ascii")
    face = (
        '@font-face { font-family: "Noto Naskh Arabic"; unicode-range: U+0600-06FF, U+0750-077F, U+FB50-FDFF, U+FE70-FEFF;'
        f' src: url("data:font/ttf;base64,{font}") format("truetype"); }}\n'
    )
    return Markup(face + data_path("styles.css").read_text(encoding="utf-8"))


def publish(run_dir: Path | str) -> list[Path]:
    """Build the reports, record their digests, and close the run with a signed statement and tree head."""
    run = RunFolder(run_dir)
    signer = keys.load_or_create(read(run.settings).signing_key)
    paths = build(run_dir)
    draft = bool(collect(run_dir)["draft"])
    files = {path.relative_to(run.reports).as_posix(): file_sha256(path) for path in paths}
    Ledger(run.ledger, run.run_id, "report").append("report_built", files=files, draft=draft)
    attestation.write(run, signer, draft)
    treeheads.sign_head(run, signer)
    return paths


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m grpo_lib.report",
        description="يكتب تقارير تشغيل من مجلده وحده. Writes the reports of a run from its folder alone.",
    )
    parser.add_argument("run_dir", type=Path, help="مجلد التشغيل / the run folder, e.g. runs/RUN_ID")
    parser.add_argument("--languages", default="ar,en", help="اللغات / languages, default: ar,en")
    options = parser.parse_args(arguments)
    try:
        for path in build(options.run_dir, [one for one in options.languages.split(",") if one]):
            print(path)
        if not pdf.available():
            print("\n".join(pdf.MISSING), file=sys.stderr)
    except GrpoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
