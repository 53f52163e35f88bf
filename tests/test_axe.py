"""Reports and documents in a real browser: no serious finding of axe, and not one request beyond the file itself."""

from __future__ import annotations

import shutil

import pytest
from fixtures_governed import write_governed
from fixtures_run import write_run

from grpo_lib import pdf, report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
# A pair of colours that nobody can read: the control that shows that the check can fail.
PLANTED = '<p style="color:#ccc;background:#fff">سطر لا يُقرأ</p><img src="https://192.0.2.1/x.png">'


@pytest.fixture(scope="module")
def visit():
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def look(path) -> tuple[list[str], list[str]]:
            page, asked = browser.new_page(), []
            page.on("request", lambda request: asked.append(request.url))
            page.goto(path.as_uri())
            found = [
                f"{one['id']}: {one['nodes'][0]['html'][:100]}"
                for one in Axe().run(page).response["violations"]
                if one["impact"] in ("serious", "critical")
            ]
            page.close()
            return found, [url for url in asked if not url.startswith(("file:", "data:"))]

        yield look
        browser.close()


@pytest.mark.parametrize("write", [write_run, write_governed])
def test_pages_are_accessible_and_ask_nobody(visit, tmp_path, monkeypatch, write) -> None:
    monkeypatch.setattr(pdf, "available", lambda: False)  # pages of a browser only
    run = write(tmp_path / "run")
    report.build(run)
    report.build_documents(run, every=True)
    pages = sorted((run / "reports").rglob("*.html"))
    assert len(pages) >= 14
    assert {path.name: seen for path in pages if (seen := visit(path)) != ([], [])} == {}
    page = pages[0]
    page.write_text(page.read_text(encoding="utf-8").replace("<main>", f"<main>{PLANTED}"), encoding="utf-8")
    found, asked = visit(page)
    assert any(one.startswith(("color-contrast", "image-alt")) for one in found) and len(asked) == 1
