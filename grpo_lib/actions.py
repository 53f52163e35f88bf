"""What people must do after a run, drawn from its evidence: what, who, under which article, by when, with which document.

An action list is the reason an officer opens a report. Each row is a key of the wording table with its values; dates
come from the run and from the rule packs' clocks, never from today's clock, so a report rebuilt later says the same.
The articles are those of our paraphrase in the pack; `None` is printed as "not verified", never as "no duty".
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

# Who acts. The words for them are `owner_<name>` in the wording table.
OWNERS = ("responsible", "officer", "legal", "operator", "authority")

_NOW = ("at_once", "period_not_verified")


def collect(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """Actions in the order in which they are due: what cannot wait comes first, what has no date last.

    Args:
        evidence: what `evidence.collect` gathered, without its `actions`.
    """
    found = [
        *_missing(evidence),
        *_packs(evidence),
        *_decision(evidence),
        *_personal(evidence),
        *_incidents(evidence),
        *_trust(evidence),
        *_afterwards(evidence),
    ]
    return sorted(found, key=lambda one: (one["when"] not in _NOW, one["due"] is None, one["due"] or ""))


def _action(key: str, owner: str, due: str | None = None, **more: Any) -> dict[str, Any]:
    # An article of "" is none asked for; None is one that nobody has verified.
    row = {"key": f"act_{key}", "owner": owner, "due": due, "when": None, "pack": None, "article": ""}
    return row | {"document": None, "values": {}} | more


def _missing(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    names = [
        name for reason in evidence["draft"] if reason["kind"] == "not_stated" for name in reason["names"]
    ]
    return [_action("state", "responsible", when="before_handover", names=names)] if names else []


def _packs(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for pack in evidence["packs"]:
        if not pack["reviewed"]:
            rows.append(_action("review_pack", "legal", when="before_non_public", pack=pack["id"]))
        if pack["unverified"] or pack["confidence"] == "low":
            values = {"count": len(pack["unverified"])}
            # Only a pack that is reviewed and not of low confidence can do more than deny.
            key = "verify_reviewed" if pack["reviewed"] and pack["confidence"] != "low" else "verify_pack"
            rows.append(_action(key, "legal", when="before_non_public", pack=pack["id"], values=values))
        if pack["review"]:
            rows.append(_action("renew_review", "legal", pack["review"]["until"], pack=pack["id"]))
    return rows


def _decision(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    decision, rows = evidence["decision"], []
    for condition in decision["conditions"]:
        # A condition may come from a hosting rule; the article is that of the rule it belongs to.
        article = _article_of_rule(decision, condition["rule"])
        values = {"condition": condition["id"]}
        if not condition["met"]:
            kind = condition["evidence_kind"]
            document = (
                "request" if kind == "authorisation" else "questionnaire" if kind == "contract" else None
            )
            rows.append(
                _action(
                    "supply_evidence",
                    "officer",
                    when="before_launch",
                    pack=condition["pack"],
                    article=article,
                    document=document,
                    values=values,
                )
            )
        elif condition["evidence"].get("expires"):
            expires = condition["evidence"]["expires"]
            rows.append(
                _action(
                    "renew_evidence",
                    "officer",
                    expires,
                    pack=condition["pack"],
                    article=article,
                    values=values,
                )
            )
    if decision["override"]:
        values = {"by": decision["override"]["by"]}
        rows.append(_action("end_override", "responsible", decision["override"]["until"], values=values))
    if decision["verdict"]["value"] == "deny":
        rows.append(_action("follow_remedies", "responsible", when="before_launch"))
    return rows


def _personal(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """Duties that personal data bring; a screen that found something counts until a person has answered it."""
    screen = evidence["screen"] or {}
    rows = []
    if screen.get("unanswered"):
        rows.append(
            _action(
                "answer_screen", "officer", when="before_launch", values={"count": len(screen["unanswered"])}
            )
        )
    if evidence["data"]["personal_data"]["value"] != "some":
        return rows
    started = _day(evidence["until"]["started"]["value"])
    for pack in evidence["packs"]:
        for key, part, document in (
            ("enter_record", "records", "record"),
            ("assess_impact", "impact_assessment", "assessment"),
        ):
            article = _article(evidence, pack["id"], part)
            rows.append(_action(key, "officer", started, pack=pack["id"], article=article, document=document))
    return rows


def _incidents(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    serious = [one for one in evidence["incidents"] if one["severity"] == "serious"]
    if not serious:
        return []
    first = min((one["time"] for one in serious if one["time"]), default=None)
    rows = [_action("examine_incidents", "operator", when="at_once", values={"count": len(serious)})]
    if evidence["data"]["personal_data"]["value"] == "some":
        for pack in evidence["packs"]:
            hours = pack["breach"]["authority_hours"]
            rows.append(
                _action(
                    "judge_breach",
                    "officer",
                    _later(first, hours),
                    when=None if hours else "period_not_verified",
                    pack=pack["id"],
                    article=pack["breach"]["article"],
                    document="notice",
                )
            )
    return rows


def _trust(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    rows, signing, network = [], evidence["signing"], evidence["network"]
    if not signing["heads"]:
        rows.append(_action("sign_ledger", "operator", when="before_handover"))
    else:
        rows.append(_action("hand_over_head", "operator", when="at_once", values={"size": signing["size"]}))
    if not signing["witness"]:
        rows.append(_action("name_witness", "responsible", when="next_run"))
    if network and network["beyond_loopback"]:
        rows.append(
            _action(
                "explain_endpoints", "operator", when="at_once", values={"count": network["beyond_loopback"]}
            )
        )
    return rows


def _afterwards(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    until = evidence["until"]["retention_until"]["value"]
    if not evidence["purges"] and until:
        rows.append(_action("purge", "operator", until))
    ended = _day(evidence["until"]["ended"]["value"])
    for pack in evidence["packs"]:
        years, article = pack["records"]["keep_years_after_end"], pack["records"]["article"]
        if years and ended:
            rows.append(
                _action(
                    "keep_bundle", "officer", _years_later(ended, years), pack=pack["id"], article=article
                )
            )
    if evidence["custody"]["class"] not in (None, "synthetic", "public"):
        rows.append(_action("guard_adapter", "operator", when="before_release"))
    return rows


def _article(evidence: dict[str, Any], pack_id: str | None, part: str) -> str | None:
    return next((pack[part]["article"] for pack in evidence["packs"] if pack["id"] == pack_id), None)


def _article_of_rule(decision: dict[str, Any], rule: str | None) -> str | None:
    return next((one["article"] for one in decision["reasons"] if one["rule"] == rule), None)


def _day(time: str | None) -> str | None:
    try:
        return datetime.fromisoformat(time).date().isoformat() if time else None
    except ValueError:
        return None


def _later(time: str | None, hours: int | None) -> str | None:
    """`hours` after an ISO 8601 time, to the minute."""
    try:
        moment = datetime.fromisoformat(time) if time and hours else None
    except ValueError:
        return None
    return (moment + timedelta(hours=hours)).isoformat(timespec="minutes") if moment else None


def _years_later(day: str, years: int) -> str:
    start = date.fromisoformat(day)
    try:
        return start.replace(year=start.year + years).isoformat()
    except ValueError:  # 29 February
        return start.replace(year=start.year + years, day=28).isoformat()
