"""The page of threats names tests; they must be there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_named_test_is_there() -> None:
    text = (ROOT / "compliance" / "threats.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) >= 9
    for file, function in named:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in source, f"{file}::{function}"
    arabic, english = text.split("# Threats on one page")
    assert arabic.count("\n| ") - 1 == english.count("\n| ") - 1, "the same rows in both languages"
