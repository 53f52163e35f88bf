"""The governance half of a run's evidence: rule packs, screen, observed network, signatures, custody, what was purged.

Read from the run folder alone, like the rest of the evidence: the packs that the gate used are copied into the folder
when it decides. A part that is not there is None or empty, and the report says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo_lib import digests, packs, treeheads
from grpo_lib.errors import GrpoError
from grpo_lib.facts import fact
from grpo_lib.incidents import data_of, public
from grpo_lib.measures import number
from grpo_lib.runfolder import RunFolder

_PARTS = ("transfer", "records", "impact_assessment", "retention", "breach", "training")


def clean(value: Any, limit: int = 2000) -> Any:
    """JSON from outside with every text fit to print."""
    if isinstance(value, dict):
        return {public(key, 60): clean(one, limit) for key, one in value.items()}
    if isinstance(value, list):
        return [clean(one, limit) for one in value]
    return public(value, limit) if isinstance(value, str) else value


def decision(given: dict[str, Any]) -> dict[str, Any]:
    """The gate's decision with every part that a report shows, whatever the file holds."""
    held = digests.of_decision(given)
    given = clean(given)
    digest = fact(given.get("digest"), "decision.json", "digest")
    rows = {name: _objects(given.get(name)) for name in ("reasons", "conditions", "remedies")}
    return {
        "verdict": fact(given.get("verdict"), "decision.json", "verdict"),
        "decided_at": fact(given.get("decided_at"), "decision.json", "decided_at"),
        "digest": digest,
        "digest_holds": digest["value"] in held if digest["value"] else None,
        "reasons": [_ROW | one for one in rows["reasons"]],
        "conditions": [
            _ROW | {"id": None, "met": False, "evidence": None} | one for one in rows["conditions"]
        ],
        "remedies": [_ROW | one for one in rows["remedies"]],
        "nearest_allowed": _object(given.get("nearest_allowed")),
        "override": _object(given.get("override")),
        "provider": _object(given.get("provider")) or {},
    }


_ROW = {"rule": None, "pack": None, "layer": None, "article": None, "confidence": None, "ar": "", "en": ""}


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def rule_packs(folder: Path, decision: dict[str, Any]) -> list[dict[str, Any]]:
    """Each pack that the decision names, as the copy in the run folder has it, with its review.

    A copy that is missing or whose digest is not the one decided upon is listed with `intact` false.
    """
    rows = []
    for named in _objects(decision.get("packs")):
        named = clean(named)
        row = {"id": named.get("id"), "reviewed": bool(named.get("reviewed")), "review": named.get("review")}
        row |= {"digest": named.get("digest"), "intact": False, "unverified": [], "conflicts": []}
        row |= {"names": {"ar": named.get("id"), "en": named.get("id")}, "authority": None}
        row |= {"confidence": named.get("confidence"), "status": named.get("status")}
        row |= {
            "verified_on": named.get("verified_on"),
            "arabic_reviewed": bool(named.get("arabic_reviewed")),
        }
        row |= {part: _EMPTY[part] for part in _PARTS}
        try:
            pack = packs.load(str(named.get("id")), extra=folder)
        except GrpoError:
            rows.append(row)
            continue
        value = pack.to_dict()
        law = value["personal_data_law"]
        row |= {
            "names": value["names"],
            "authority": value["authority"],
            "intact": pack.digest == named.get("digest"),
        }
        row |= {part: law[part] for part in _PARTS if law[part] is not None}
        row |= {"hosting": value["government_hosting"], "unverified": value["unverified"]}
        rows.append(row | {"conflicts": value["conflicts"]})
    return rows


_NOTHING = {"article": None, "paraphrase": None, "confidence": None}
_EMPTY = {
    "transfer": _NOTHING | {"conditions": []},
    "records": _NOTHING | {"keep_years_after_end": None},
    "impact_assessment": _NOTHING,
    "retention": _NOTHING,
    "breach": _NOTHING | {"authority_hours": None, "persons_hours": None, "conflict": None},
    "training": _NOTHING,
}


def signing(run: RunFolder, covered: int) -> dict[str, Any]:
    """Tree heads over the lines that the report covers, and who signed and cosigned them.

    Signatures are not checked here, only read: `compliance/verify.py` checks them against a key from outside.
    """
    heads = [head for head in treeheads.read(run) if head.size <= covered]
    last = heads[-1] if heads else None
    witnessed = [head for head in heads if head.witness]
    return {
        "heads": len(heads),
        "size": last.size if last else None,
        "root": last.root if last else None,
        "signer": public(last.signer, 60) if last else None,
        "fingerprint": treeheads.stored_fingerprint(run),
        "witness": public(witnessed[-1].witness, 60) if witnessed else None,
        "witnessed_size": witnessed[-1].size if witnessed else None,
        "witnessed_at": witnessed[-1].witnessed_at if witnessed else None,
    }


def custody(record: dict[str, Any], data_class: str | None) -> dict[str, Any]:
    """Class and state of the adapter: what its data were until a named person lowered it."""
    record = clean(record)
    return {
        "class": record.get("class", data_class),
        "inherited": record.get("class", data_class) == record.get("inherited_class", data_class),
        "lowered": [one for one in _objects(record.get("lowered")) if one.get("counts")],
        "state": record.get("state"),
    }


def memorisation(measured: dict[str, Any]) -> dict[str, Any] | None:
    """Exposure of the planted canaries under the trained adapter, or None where it was not measured.

    Units: bits; `without_memory` is what a policy that never saw them gives, `most` the largest that can be shown.
    """
    policies = _object(measured.get("policies")) or {}
    exposure = _object((_object(policies.get("trained")) or {}).get("exposure"))
    if exposure is None or any(number(exposure.get(name)) is None for name in ("mean", "low", "high")):
        return None
    return {name: measured.get(name) for name in ("canaries", "most", "without_memory")} | {
        "exposure": exposure
    }


def purges(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was destroyed, when, by whom and why, with its ledger line."""
    return [
        {"time": event["time"], "seq": event["seq"], **clean(data_of(event))}
        for event in events
        if event["event"] == "purged"
    ]


def releases(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every decision about handing an adapter on, allowed or refused."""
    return [
        {"time": event["time"], "seq": event["seq"], "event": event["event"], **clean(data_of(event))}
        for event in events
        if event["event"] in ("release_decided", "class_lowered")
    ]


def package_list(stored: dict[str, Any]) -> list[dict[str, Any]]:
    """Name, version and licence of each package that the run could use."""
    names = ("name", "version", "licence")
    return [{name: one.get(name) for name in names} for one in _objects(clean(stored).get("packages"))]
