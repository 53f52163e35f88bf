"""Why a report is a draft: what is missing, what does not fit together, and what people still owe.

A report that nobody answers for, or whose files contradict its ledger, must not look finished. Each reason is a key of
`compliance/wording.yaml` with the names it is about.
"""

from __future__ import annotations

from typing import Any

# What only people know; a report that lacks one of them is a draft.
STATED = ("organisation", "responsible", "purpose", "country", "retention_until")


def contradictions(
    settings: dict[str, Any], decision: dict[str, Any], manifest: dict[str, Any], events: list[dict[str, Any]]
) -> list[str]:
    """Names of statements that differ between the files of one run."""
    decided = decision.get("data") if isinstance(decision.get("data"), dict) else {}
    place = decision.get("place") if isinstance(decision.get("place"), dict) else {}
    told = {
        "data_class": [
            settings.get("data_class"),
            decided.get("class"),
            manifest.get("data_class", manifest.get("class")),
        ],
        "personal_data": [
            settings.get("personal_data"),
            decided.get("personal_data"),
            manifest.get("personal_data"),
        ],
        "country": [settings.get("country"), place.get("declared_country")],
        "backend": [settings.get("backend"), place.get("backend")],
        "run_id": [settings.get("run_id"), *(event.get("run_id") for event in events)],
    }
    return [name for name, values in told.items() if len({str(v) for v in values if v is not None}) > 1]


def reasons(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """Why this report is a draft; empty when it is not."""
    found: list[dict[str, Any]] = []
    unstated = [
        name
        for name in STATED
        if (evidence["who"] | evidence["where"] | evidence["until"])[name]["value"] is None
    ]
    differing = [row["file"] for row in evidence["files"] if row["state"] in ("differs", "missing")]
    if not evidence["ledger"]["intact"]:
        found.append({"kind": "ledger", "names": []})
    if evidence["decision"]["digest_holds"] is False:
        differing.append("decision.json")
    if differing:
        found.append({"kind": "files_differ", "names": sorted(set(differing))})
    if evidence["contradictions"]:
        found.append({"kind": "contradictions", "names": evidence["contradictions"]})
    if evidence["status"]["value"] != "complete":
        found.append({"kind": "not_complete", "names": []})
    if evidence["problems"]:
        found.append(
            {"kind": "files_missing", "names": [problem["file"] for problem in evidence["problems"]]}
        )
    if evidence["result"]["trained"] is None:
        found.append({"kind": "no_evaluation", "names": []})
    if unstated:
        found.append({"kind": "not_stated", "names": unstated})
    return found
