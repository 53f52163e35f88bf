"""PDF reports: the same bytes each time, marked as PDF/A-3u, the evidence inside, every Arabic word to be found."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fixtures_run import write_run

from grpo_lib import calendars, packages, pdf, report

pytestmark = pytest.mark.skipif(
    not pdf.available(), reason="WeasyPrint or Pango is not installed: make pdf-libs"
)
ARABIC = re.compile("[\u0621-\u064a]{2,}")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    run = write_run(tmp_path_factory.mktemp("pdf") / "run", organisation="")
    report.build(run, ["ar"])
    return run / "reports"


def streams(raw: bytes) -> bytes:
    """The file's own objects with every Flate stream opened."""
    opened = []
    for part in re.findall(rb"stream\r?\n(.*?)endstream", raw, re.DOTALL):
        try:
            opened.append(zlib.decompress(part))
        except zlib.error:
            opened.append(part)
    return raw + b"".join(opened)


def test_the_same_run_gives_the_same_bytes(built) -> None:
    before = {path.name: path.read_bytes() for path in built.glob("*.pdf")}
    assert len(before) == 2
    report.build(built.parent, ["ar"])
    assert {path.name: path.read_bytes() for path in built.glob("*.pdf")} == before


def test_it_says_what_it_is_and_carries_the_evidence(built) -> None:
    raw = streams(next(built.glob("training-audit*.pdf")).read_bytes())
    assert re.search(rb"pdfaid:part[^0-9]*3", raw) and re.search(rb"pdfaid:conformance[^A-Za-z]*U", raw)
    assert b"/AFRelationship" in raw and pdf.EVIDENCE_NAME.encode() in raw
    assert b'"schema": "grpo-lib/evidence/1"' in raw


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="poppler-utils is not installed")
@pytest.mark.parametrize("name", ["training-audit", "data-residency"])
def test_arabic_words_are_found_and_dates_are_not_reversed(built, name) -> None:
    path = next(built.glob(f"{name}*.pdf"))
    text = subprocess.run(
        ["pdftotext", "-layout", path, "-"], capture_output=True, text=True, check=True
    ).stdout
    html = path.with_suffix(".html").read_text(encoding="utf-8")
    body = re.sub(r"<(style|svg)\b.*?</\1>", " ", html[html.index("<main") :], flags=re.DOTALL)
    wanted = set(ARABIC.findall(re.sub(r"<[^>]+>", " ", body)))
    found = set(ARABIC.findall(text))
    # A word at the end of a narrow column may be broken; what is written as one word elsewhere counts.
    missing = sorted(word for word in wanted if word not in found and word not in text.replace("\n", ""))
    assert len(missing) <= 0.01 * len(wanted), missing
    assert "2026-12-01" in text and "01-12-2026" not in text and "10-21-6202" not in text


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="poppler-utils is not installed")
def test_a_draft_says_so_on_every_page(built) -> None:
    path = next(built.glob("training-audit.DRAFT*.pdf"))
    text = subprocess.run(["pdftotext", path, "-"], capture_output=True, text=True, check=True).stdout
    pages = text.removesuffix("\f").split("\f")
    assert len(pages) > 3 and all("مسودة" in page for page in pages)


def test_hijri_dates_stand_beside_gregorian_ones() -> None:
    assert calendars.hijri(datetime(2026, 12, 1, tzinfo=UTC).date(), "ar") == "21 جمادى الآخرة 1448"
    assert calendars.hijri(datetime(1900, 1, 1, tzinfo=UTC).date(), "ar") is None


def test_packages_have_versions_and_licences() -> None:
    rows = {one["name"].lower(): one for one in packages.installed()}
    assert rows["trl"]["version"].startswith("1.16") and "Apache" in rows["trl"]["licence"]
    assert [one["name"].lower().replace("_", "-") for one in rows.values()] == sorted(
        one["name"].lower().replace("_", "-") for one in rows.values()
    )
