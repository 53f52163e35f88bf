"""What a validation fault is called in Arabic and English: the field, the value that was given, and the remedy."""

from __future__ import annotations

import difflib
from typing import Any

from grpo_lib.errors import isolate


def describe(fault: dict[str, Any], known: list[str]) -> tuple[str, str]:
    """One pydantic fault as (Arabic, English): the field, the value and the remedy; `known` are the field names."""
    name = str(fault["loc"][0]) if fault["loc"] else ""
    value, kind, context = fault.get("input"), fault["type"], fault.get("ctx", {})
    given_ar, given_en = (f"{isolate(f'{name}={value!r}')}: ", f"{name}={value!r}: ") if name else ("", "")
    if kind == "bilingual":
        return given_ar + context["ar"], given_en + context["en"]
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(name, known, n=1)
        ar = f" هل تقصد {isolate(near[0])}؟" if near else " راجع ‎--help‎ لقائمة المعاملات."
        en = f" Did you mean {near[0]}?" if near else " See --help for the list."
        return f"{isolate(name)}: معامل غير معروف.{ar}", f"{name}: unknown parameter.{en}"
    limits = {
        "greater_than": ("أكبر من", "greater than", "gt"),
        "greater_than_equal": ("على الأقل", "at least", "ge"),
        "less_than": ("أصغر من", "less than", "lt"),
        "less_than_equal": ("على الأكثر", "at most", "le"),
    }
    if kind in limits:
        ar, en, key = limits[kind]
        return f"{given_ar}يجب أن يكون {ar} {isolate(context[key])}", f"{given_en}must be {en} {context[key]}"
    if kind == "finite_number":
        return f"{given_ar}المطلوب عدد محدود", f"{given_en}must be a finite number"
    if kind == "literal_error":
        return (
            f"{given_ar}القيم المقبولة: {isolate(context['expected'])}",
            f"{given_en}accepted: {context['expected']}",
        )
    wanted = {"int": ("عدد صحيح", "a whole number"), "float": ("عدد", "a number"), "string": ("نص", "text")}
    ar, en = next(
        (words for key, words in wanted.items() if kind.startswith(key)), ("قيمة أخرى", fault["msg"])
    )
    return f"{given_ar}المطلوب {ar}", f"{given_en}must be {en}"
