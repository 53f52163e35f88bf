"""A fact: one figure of a report with its source, or who still owes it."""

from __future__ import annotations

from typing import Any

from grpo_lib.incidents import public
from grpo_lib.measures import number


def fact(
    value: Any, file: str, field: str, seq: int | None = None, absent: str = "not_measured"
) -> dict[str, Any]:
    """One figure with its source. `absent` is `not_stated` (a person owes it) or `not_measured` (the run owes it)."""
    if isinstance(value, str):
        value = public(value)
    elif not isinstance(value, int) and number(value) is None:
        value = None  # a list, an object, or a number that is none
    missing = value is None or value == ""
    source = {"file": file, "field": field, "seq": seq}
    return {"value": None if missing else value, "source": source, "absent": absent if missing else None}
