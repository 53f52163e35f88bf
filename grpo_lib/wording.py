"""Sentences of reports and figures: one place per sentence and language, and the right order of mixed text.

Inside an Arabic line, `2026-12-01`, `0.73 ± 0.02` or a path turn round unless they are isolated (UAX #9). So every
value put into a sentence, and every Latin word or number of an Arabic sentence itself, is isolated here: by
`<bdi dir="ltr">` in HTML and by U+2066…U+2069 in plain text. Nothing else in the project writes those by hand.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import yaml
from markupsafe import Markup, escape

from compliance import path as data_path

LANGUAGES = ("ar", "en")
_FILES = ("wording.yaml", "wording-governance.yaml")
_PLACE = re.compile(r"\{(\w+)\}")
# A run of Latin words, numbers and the signs between them. It begins and ends with a letter, digit or sign of its own,
# so that the full stop or bracket of the Arabic sentence stays outside.
_LTR = re.compile(r"[+\-−±≤≥~]?[A-Za-z0-9](?:[A-Za-z0-9 _./:@%+=±×≤≥–−\-,#]*[A-Za-z0-9%])?")
_ARABIC = re.compile(r"[\u0600-\u06ff]")


@cache
def table() -> dict[str, dict[str, str]]:
    """Every sentence: key -> language -> text. Two files, one for the run and one for its governance."""
    parts = (yaml.safe_load(data_path(name).read_text(encoding="utf-8")) for name in _FILES)
    return {key: texts for part in parts for key, texts in part.items()}


def has(key: str) -> bool:
    return key in table()


def _fill(key: str, language: str, static, value, values: dict[str, Any]):
    """Pieces of a sentence: its own text through `static`, each `{name}` through `value`."""
    pieces = _PLACE.split(table()[key][language])
    return [value(values[piece]) if index % 2 else static(piece) for index, piece in enumerate(pieces)]


def plain(key: str, language: str, **values: Any) -> str:
    """A sentence as plain text, with isolates where the language is written from right to left."""

    def isolate(text: str) -> str:
        return f"\u2066{text}\u2069"

    def static(text: str) -> str:
        return isolated(text) if language == "ar" else text

    def value(one: Any) -> str:
        return isolate(str(one)) if language == "ar" else str(one)

    return "".join(_fill(key, language, static, value, values))


def isolated(text: str) -> str:
    """Arabic plain text with its Latin runs and numbers isolated."""
    return _LTR.sub(lambda match: f"\u2066{match[0]}\u2069", text)


def html(key: str, language: str, **values: Any) -> Markup:
    """A sentence as HTML. Values that are markup already are taken as they are; others are isolated."""

    def static(text: str) -> Markup:
        return mixed(text) if language == "ar" else escape(text)

    def value(one: Any) -> Markup:
        return one if isinstance(one, Markup) else own(one)

    return Markup("").join(_fill(key, language, static, value, values))


def ltr(value: Any, css: str = "") -> Markup:
    """A number, date, id, digest, path or code, kept in its own order."""
    attribute = Markup(' class="{}"').format(css) if css else Markup("")
    return Markup('<bdi dir="ltr"{}>{}</bdi>').format(attribute, value)


def own(value: Any) -> Markup:
    """Text from outside in its own direction: Arabic from the right, anything else from the left."""
    text = str(value)
    return Markup('<bdi dir="rtl">{}</bdi>').format(mixed(text)) if _ARABIC.search(text) else ltr(text)


def mixed(text: str) -> Markup:
    """Arabic text as HTML with its Latin runs and numbers isolated."""
    out, position = Markup(""), 0
    for match in _LTR.finditer(text):
        out += escape(text[position : match.start()]) + ltr(match[0])
        position = match.end()
    return out + escape(text[position:])
