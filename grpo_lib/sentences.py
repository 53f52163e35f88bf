"""Sentences of the gate in both languages, from `compliance/gate-wording.yaml`: one place per sentence.

A decision is data: its texts hold no bidi control characters, and whoever shows them isolates Latin words and numbers
in its own way (`<bdi>` in reports, `isolated` in a terminal).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from compliance import path as data_path
from grpo_lib.wording import isolated

__all__ = ["LANGUAGES", "Texts", "isolated", "joined", "say", "table"]

LANGUAGES = ("ar", "en")
Texts = dict[str, str]


@cache
def table() -> dict[str, Texts]:
    """Every sentence: key -> language -> text with `{places}`."""
    return yaml.safe_load(data_path("gate-wording.yaml").read_text(encoding="utf-8"))


def say(key: str, **values: Any) -> Texts:
    """The sentence in both languages; a value that is itself in both languages gives each its own."""
    return {
        language: table()[key][language].format(
            **{name: value[language] if isinstance(value, dict) else value for name, value in values.items()}
        )
        for language in LANGUAGES
    }


def joined(texts: list[Texts], between: Texts | None = None) -> Texts:
    """Several sentences or names as one text, in both languages."""
    between = between or {"ar": "، ", "en": ", "}
    return {language: between[language].join(text[language] for text in texts) for language in LANGUAGES}
