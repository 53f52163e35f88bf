"""Data of reports and gate (templates, wording, glossary, style, font). No code lives here but the path to it."""

from __future__ import annotations

from pathlib import Path


def path(*parts: str) -> Path:
    """Path of a packaged data file, e.g. `path("fonts", "OFL.txt")`."""
    return Path(__file__).parent.joinpath(*parts)
