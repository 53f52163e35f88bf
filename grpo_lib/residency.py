"""The gate before a launch: may this data be processed in this place?

First layer only: there are no rule packs yet, so only the suite's own synthetic data, and public data without personal
data, may run, and each decision is recorded. Everything unknown or empty is denied. The place is derived from the
back-end and the address it listens on, never typed; a declared country stands beside it as a declaration.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from grpo_lib.ledger import utc_now
from grpo_lib.runfolder import canonical, sha256
from grpo_lib.settings import RunSettings


def address_class(address: str) -> str:
    """`loopback`, `private` or `public`; a name that is not an address counts as public, the strictest."""
    try:
        parsed = ipaddress.ip_address("127.0.0.1" if address == "localhost" else address)
    except ValueError:
        return "public"
    if parsed.is_loopback:
        return "loopback"
    return "private" if parsed.is_private and not parsed.is_unspecified else "public"


def decide(settings: RunSettings) -> dict[str, Any]:
    """The decision for a run, with its reasons in both languages and a digest over all of it."""
    reasons = []
    if not settings.data_class:
        reasons.append(
            _reason(
                "class-empty",
                "تصنيف البيانات فارغ، والفراغ يعني الرفض. حدِّد data_class.",
                "The class of the data is empty, and empty means deny. State data_class.",
            )
        )
    if not settings.personal_data:
        reasons.append(
            _reason(
                "personal-data-empty",
                "لم يُذكر هل توجد بيانات شخصية، والفراغ يعني الرفض. حدِّد personal_data.",
                "Whether personal data is present is empty, and empty means deny. State personal_data.",
            )
        )
    if settings.personal_data not in ("", "none"):
        reasons.append(
            _reason(
                "personal-data-without-pack",
                "لا توجد حزمة قواعد مُراجَعة تسمح ببيانات شخصية. استخدم بيانات بلا بيانات شخصية.",
                "No reviewed rule pack allows personal data. Use data without personal data.",
            )
        )
    if settings.data_class not in ("", "synthetic", "public"):
        reasons.append(
            _reason(
                "class-without-pack",
                "لا توجد حزمة قواعد مُراجَعة تسمح بهذا التصنيف. استخدم بيانات عامة أو اصطناعية.",
                "No reviewed rule pack allows this class. Use public or synthetic data.",
            )
        )
    verdict = "deny" if reasons else "allow"
    if not reasons:
        reasons.append(
            _reason(
                "public-or-synthetic-with-record",
                "بيانات عامة أو اصطناعية بلا بيانات شخصية: مسموح مع التسجيل.",
                "Public or synthetic data without personal data: allowed, with record.",
            )
        )
    listening = address_class(settings.bind)
    decision = {
        "verdict": verdict,
        "reasons": reasons,
        "conditions": [],
        "place": {
            "backend": settings.backend,
            "declared_country": settings.country,
            "observed": "this machine"
            if listening == "loopback"
            else f"machines that reach a {listening} address",
        },
        "data": {
            "class": settings.data_class,
            "personal_data": settings.personal_data,
            "task": settings.task,
        },
        "decided_at": utc_now(),
    }
    return {**decision, "digest": sha256(canonical(decision))}


def _reason(rule: str, ar: str, en: str) -> dict[str, str]:
    return {"rule": rule, "ar": ar, "en": en}
