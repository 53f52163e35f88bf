"""Installed packages with versions and licences, from their own metadata (PEP 639, PEP 566); nothing is looked up."""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any


def installed() -> list[dict[str, Any]]:
    """Name, version and licence of every installed distribution, by name; a licence not stated is None."""
    rows = {}
    for one in importlib.metadata.distributions():
        name = one.metadata.get("Name")
        if name:
            rows[re.sub(r"[-_.]+", "-", name).lower()] = {
                "name": name,
                "version": one.version,
                "licence": licence(one.metadata),
            }
    return [rows[key] for key in sorted(rows)]


def licence(metadata: Any) -> str | None:
    """The licence expression, else the licence classifiers, else the first line of the licence field."""
    expression = metadata.get("License-Expression")
    if expression:
        return expression.strip()
    classifiers = [
        line.rpartition("::")[2].strip()
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License ::") and not line.endswith("OSI Approved")
    ]
    if classifiers:
        return ", ".join(classifiers)
    first = (metadata.get("License") or "").strip().splitlines()
    return first[0][:80] if first and first[0].strip().upper() not in ("", "UNKNOWN") else None
