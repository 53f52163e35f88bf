"""A report as PDF/A-3u (ISO 19005-3) with the evidence it was drawn from attached as JSON.

WeasyPrint renders the same HTML that the screen shows. It needs the Pango libraries of the system; where they or
WeasyPrint are missing the HTML reports are complete without it, and this module says how to get the PDFs. The same
input gives the same bytes: every date in the file comes from the run, its identifier from its content.
"""

from __future__ import annotations

import contextlib
import logging
import os
from datetime import datetime
from functools import cache
from pathlib import Path

from compliance import path as data_path
from grpo_lib.runfolder import sha256, write_atomic

EVIDENCE_NAME = "evidence.json"
INSTALL = "sudo apt-get install -y libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 && .venv/bin/pip install -c constraints.txt 'grpo-lib[pdf]'"
MISSING = (
    f"لم تُكتب ملفات PDF: مكتبة WeasyPrint أو Pango غير مثبتة. تقارير HTML كاملة. للحصول عليها: ⁨{INSTALL}⁩",
    f"No PDF files were written: WeasyPrint or Pango is not installed. The HTML reports are complete. To get them: {INSTALL}",
)


@cache
def available() -> bool:
    """Whether this machine can write PDFs, and `GRPO_NO_PDF` does not ask for HTML alone."""
    if os.environ.get("GRPO_NO_PDF"):
        return False
    try:
        import weasyprint  # noqa: F401
    except (ImportError, OSError):  # OSError: the package is there, the system's Pango is not
        return False
    logging.getLogger("weasyprint").setLevel(logging.ERROR)
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    return True


def write(html: str, target: Path, evidence_json: bytes, description: str, created: datetime) -> Path:
    """Write one report; `created` is a time of the run."""
    import weasyprint

    attachment = weasyprint.Attachment(
        string=evidence_json,
        name=EVIDENCE_NAME,
        description=description,
        created=created,
        modified=created,
        relationship="Data",
    )
    sheet = weasyprint.CSS(string=data_path("print.css").read_text(encoding="utf-8"))
    with _clock(created):
        raw = weasyprint.HTML(string=_dated(html, created)).write_pdf(
            pdf_variant="pdf/a-3u",
            pdf_identifier=sha256(html.encode() + evidence_json).encode()[:32],
            stylesheets=[sheet],
            attachments=[attachment],
        )
    write_atomic(target, raw)
    return target


@contextlib.contextmanager
def _clock(created: datetime):
    """What font subsetting and metadata take for the time of day (SOURCE_DATE_EPOCH), unless the caller has set it."""
    before = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(int(created.timestamp())))
    try:
        yield
    finally:
        if before is None:
            del os.environ["SOURCE_DATE_EPOCH"]


def _dated(html: str, created: datetime) -> str:
    stamp = created.isoformat(timespec="seconds")
    metas = f'<meta name="dcterms.created" content="{stamp}"><meta name="dcterms.modified" content="{stamp}">'
    return html.replace("</head>", metas + "\n</head>", 1)
