"""What the gate looks at before any rule: what people state, the packs they name, their files, the screen of the data.

A statement that is missing or unknown denies, and no override sets that aside: stating it costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo_lib import packs
from grpo_lib.errors import GrpoError
from grpo_lib.findings import DENY, Finding, Found, Remedy
from grpo_lib.incidents import public
from grpo_lib.pack_rules import Case
from grpo_lib.runfolder import canonical, sha256
from grpo_lib.sentences import Texts, joined, say
from grpo_lib.settings import DATA_CLASSES, RunSettings

# Denials that leave no question to put to a pack.
UNANSWERABLE = {
    "class-empty",
    "class-unknown",
    "personal-data-empty",
    "personal-data-unknown",
    "synthetic-with-personal-data",
}
_NEXT = {"ar": "؛ ", "en": "; "}
_SCHEMA = "compliance/schemas/rule-pack.schema.json"


def suite(rule: str, said: str | Texts, *remedies: Remedy, effect: str = DENY, **more: Any) -> Finding:
    """A finding that rests on no pack; `said` is a key of the sentences, or the text."""
    texts = say(said) if isinstance(said, str) else said
    return Finding(rule, more.pop("layer", "suite"), effect, texts, remedies=remedies, **more)


def stated(settings: RunSettings, named: list[str], light: bool) -> Found:
    """What people have to state. Class and personal data come first; the rest matters only once they are known."""
    found = Found()

    def ask(rule: str, field: str, values: tuple[str, ...]) -> None:
        value = getattr(settings, field)
        if value in values:
            return
        remedy = Remedy(say("state_one_of", field=field, values=", ".join(values)))
        key = rule.replace("-data", "").replace("-", "_")
        if value in ("", None):
            found.findings.append(suite(f"{rule}-empty", f"{key}_empty", remedy))
        else:
            texts = say(f"{key}_unknown", value=public(value, 40))
            found.findings.append(suite(f"{rule}-unknown", texts, remedy))

    ask("class", "data_class", DATA_CLASSES)
    ask("personal-data", "personal_data", ("none", "some"))
    if found.findings or light:
        return found
    if settings.data_class == "synthetic":
        remedy = Remedy(say("state_true_class", field="data_class"))
        found.findings.append(suite("synthetic-with-personal-data", "synthetic_personal", remedy))
        return found
    ask("controller", "controller", ("government", "private"))
    if not named:
        remedy = Remedy(say("state_packs", field="jurisdictions", example="sa"))
        found.findings.append(suite("jurisdictions-empty", "jurisdictions_empty", remedy))
    return found


def load_packs(named: list[str], extra: Path, case: Case, said: Found) -> list[packs.Pack]:
    """The packs that are named; one that is unknown or damaged denies."""
    loaded = []
    for one in dict.fromkeys(named):
        shown, file = public(one, 40), f"{case.folder}/rules/{public(one, 40)}.yaml"
        if one not in packs.known(extra):
            write = say("write_pack", file=file, schema=_SCHEMA, field="jurisdictions")
            said.findings.append(suite("pack-missing", say("pack_missing", pack=shown), Remedy(write)))
            continue
        try:
            loaded.append(packs.load(one, extra))
        except GrpoError as error:
            why = {"ar": public(error.ar, 600), "en": public(error.en, 600)}
            remedy = Remedy(say("mend_pack"))
            said.findings.append(suite("pack-damaged", say("pack_damaged", pack=shown, why=why), remedy))
    return loaded


def files(case: Case) -> list[Finding]:
    """A file of the governance folder that cannot be relied on denies, whether or not this case needs it."""
    faults = [*case.papers.faults, *case.overlays.faults]
    if not faults:
        return []
    texts = say("files_damaged", faults=joined([one.texts for one in faults], _NEXT))
    return [suite("governance-file", texts, Remedy(say("mend_files")), by_papers=True)]


def screened(settings: RunSettings, screen: dict[str, Any] | None) -> list[Finding]:
    """A finding of the screen under "no personal data" denies until a named person has answered for its kind."""
    if screen is None or settings.personal_data != "none":
        return []
    shown = screen_json(screen)
    if shown is None:
        return [suite("pii-unreadable", "pii_unreadable", Remedy(say("pii_again")), layer="pii")]
    if not shown["unanswered"]:
        return []
    texts = say("pii_unanswered", kinds=", ".join(shown["unanswered"]))
    answer = Remedy(say("pii_answer"), command="python -m grpo_lib.pii answer")
    declare = Remedy(say("pii_declare", field="personal_data", value="some"), set={"personal_data": "some"})
    return [suite("pii-unanswered", texts, answer, declare, layer="pii", by_papers=True)]


def screen_json(screen: dict[str, Any] | None) -> dict[str, Any] | None:
    """Counts by kind and the kinds that nobody has answered for; None for no screen, or one that cannot be read.

    A screen that does not say what was answered counts as unanswered.
    """
    if screen is None:
        return None
    try:
        findings = {str(one["kind"]): int(one["rows"]) for one in screen["findings"]}
        unanswered = [str(kind) for kind in screen.get("unanswered", findings)]
        digest = sha256(canonical(screen))
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    return {"sha256": digest, "findings": findings, "unanswered": sorted(unanswered)}
