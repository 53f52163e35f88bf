"""The gate: may these data be processed in this place? Asked before a launch, and again before an adapter is handed on.

(class, personal data, controller, jurisdictions) x place x rule packs -> allow, allow with conditions, or deny, with
the rules cited. Empty and unknown mean deny. The strictest of all named packs wins. Only the suite's own synthetic
data and public data, both without personal data, pass on their own, with record; everything else needs every named
pack reviewed, and every condition met by evidence (`pack_rules`).

A decision is data in both languages: what denied, what would turn it, and the nearest place that would be allowed. It
is our conservative reading and not legal advice, and it says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from grpo_lib import overlays, packs, papers, providers
from grpo_lib.findings import ALLOW, CONDITION, DENY, Finding, Found, Remedy
from grpo_lib.incidents import public
from grpo_lib.ledger import utc_now
from grpo_lib.pack_rules import Case, is_zone, judge, rule_ids
from grpo_lib.places import PLACE_RULES, Place, address_class, placed
from grpo_lib.runfolder import canonical, sha256
from grpo_lib.sentences import say
from grpo_lib.settings import RunSettings
from grpo_lib.stated import UNANSWERABLE, files, load_packs, screen_json, screened, stated, suite

__all__ = ["Place", "address_class", "decide", "own_packs", "settings_digest"]

SCHEMA = "grpo-lib/decision/2"
# What approval of settings does not rest on: a name and a folder.
_NOT_APPROVED = ("run_id", "runs_dir")


def own_packs(settings: RunSettings) -> Path:
    """Folder of the customer's own rule packs, which stand before those of the suite."""
    return Path(settings.governance_dir) / "rules"


def settings_digest(settings: RunSettings) -> str:
    """SHA-256 that binds an override to settings, whatever run id they are launched under."""
    values = {name: value for name, value in settings.model_dump().items() if name not in _NOT_APPROVED}
    return sha256(canonical(values))


def decide(
    settings: RunSettings,
    place: Place | None = None,
    screen: dict[str, Any] | None = None,
    today: date | None = None,
    extra: Path | None = None,
) -> dict[str, Any]:
    """The decision for a run, with its reasons in both languages and a digest over all of it.

    Args:
        settings: what people state: class, personal data, controller, jurisdictions, country, governance folder.
        place: where the data would be; by default the place that the settings lead to.
        screen: result of the screen for personal data, with its `unanswered` kinds; None where none was made, as in
            a preview. The launcher always makes one.
        today: the day on which reviews, evidence, forms and overrides have to hold; by default today (UTC).
        extra: folder of own rule packs; by default the one in the governance folder.
    """
    question = _Question.of(settings, place, today, extra)
    found = question.answer()
    found.findings += screened(settings, screen)
    if not found.denials and question.case.light:
        found.findings.insert(0, suite("public-or-synthetic-with-record", "light_allowed", effect=ALLOW))
    found, override = _set_aside(question, found)
    denials = found.denials
    conditioned = found.conditions or any(one.effect == CONDITION for one in found.findings)
    verdict = "deny" if denials else "allow_with_conditions" if conditioned else "allow"
    listed = [*denials, *(one for one in found.findings if one.effect != DENY)]
    decision = {
        "schema": SCHEMA,
        "verdict": verdict,
        "reasons": [one.as_json() for one in listed],
        "conditions": [one.as_json() for one in found.conditions],
        "remedies": [
            {"rule": one.rule, **remedy.texts, "set": remedy.set, "command": remedy.command}
            for one in denials
            for remedy in one.remedies
        ],
        "nearest_allowed": question.nearest(denials) if denials else None,
        "override": override,
        "packs": [question.pack_json(pack) for pack in question.loaded],
        "conflicts": [{"pack": pack.id, **one} for pack in question.loaded for one in pack.conflicts],
        "unverified": [{"pack": pack.id, **one} for pack in question.loaded for one in pack.unverified],
        "provider": _provider(question.place, today),
        "place": question.place.as_json(),
        "data": {
            "class": settings.data_class,
            "personal_data": settings.personal_data,
            "task": settings.task,
            "controller": settings.controller,
            "jurisdictions": question.named,
        },
        "pii": screen_json(screen),
        "basis": "conservative_reading",
        "decided_at": utc_now(),
    }
    return {**decision, "digest": sha256(canonical(decision))}


@dataclass(frozen=True)
class _Question:
    """Everything that a decision is drawn from, read once."""

    settings: RunSettings
    named: list[str]
    loaded: list[packs.Pack]
    place: Place
    case: Case
    said: Found
    """What is found before any pack is asked: statements, packs as files, the customer's files, the place."""

    @classmethod
    def of(
        cls, settings: RunSettings, place: Place | None, today: date | None, extra: Path | None
    ) -> _Question:
        governance, day = Path(settings.governance_dir), (today or datetime.now(UTC).date()).isoformat()
        case = Case(
            data_class=settings.data_class,
            personal=settings.personal_data != "none",
            government=settings.controller != "private",
            country=None,
            zones=frozenset(),
            sovereign=False,
            papers=papers.read(governance),
            overlays=overlays.read(governance, day),
            today=day,
            folder=public(settings.governance_dir, 120),
        )
        place = place or Place.of(settings)
        named = [one for one in str(settings.jurisdictions or "").split(",") if one]
        said, loaded = stated(settings, named, case.light), []
        if not {one.rule for one in said.denials} & UNANSWERABLE:
            loaded = load_packs(named, extra or own_packs(settings), case, said)
            place, case = placed(place, case, said)
        said.findings += files(case)
        return cls(settings, named, loaded, place, case, said)

    def answer(self) -> Found:
        """What every layer finds."""
        found = Found([*self.said.findings], [*self.said.conditions])
        for pack in self.loaded:
            found.add(judge(pack, self.case))
        return found

    def nearest(self, denials: list[Finding]) -> dict[str, Any]:
        """The nearest place where nothing but papers of the customer would be missing; or that there is none.

        A machine of their own in the country of a pack comes first, then the place as it is.
        """
        data = [one for one in denials if one.layer in ("suite", "pii")]
        if fixed := [one for one in data if not one.by_papers]:
            return _nowhere(fixed)
        if self.case.light and all(one.by_papers or one.layer == "place" for one in denials):
            return _somewhere(None, data)
        homes = list(dict.fromkeys(pack.country for pack in self.loaded))
        homes.sort(key=lambda country: country != self.settings.country)
        if self.place.kind == "this_machine" and self.case.country and self.case.country not in homes:
            homes.append(self.case.country)
        blocking: list[Finding] = []
        for country in homes:
            missing = self._missing_at(country)
            hard = [one for one in missing if not one.by_papers]
            if not hard:
                return _somewhere(country, [*data, *missing])
            blocking = blocking or hard
        return _nowhere(blocking or denials)

    def _missing_at(self, country: str) -> list[Finding]:
        """What would deny on a machine of one's own in `country`, inside every named part of it."""
        said = Found()
        _, case = placed(Place.own_machine(country), self.case, said)
        zones = frozenset(one.id for one in self.loaded if is_zone(one) and one.country == country)
        if not zones <= case.zones:
            texts = say("place_missing", country=", ".join(sorted(zones)))
            said.findings.append(suite("place-form", texts, by_papers=True))
            case = replace(case, zones=zones)
        for pack in self.loaded:
            said.add(judge(pack, case))
        return said.denials

    def pack_json(self, pack: packs.Pack) -> dict[str, Any]:
        review, _ = self.case.overlays.review_of(pack.id, pack.digest)
        names = ("id", "digest", "confidence", "status", "verified_on")
        return {name: getattr(pack, name) for name in names} | {
            "reviewed": review is not None,
            "review": review.shown() if review else None,
            "arabic_reviewed": bool(pack.arabic_review.reviewer and pack.arabic_review.date),
        }


def _somewhere(country: str | None, missing: list[Finding]) -> dict[str, Any]:
    rules = ", ".join(dict.fromkeys(one.rule for one in missing))
    key = f"nearest_{'home' if country else 'own'}{'' if rules else '_now'}"
    return {"backend": "local", "country": country, **say(key, country=country, rules=rules)}


def _nowhere(findings: list[Finding]) -> dict[str, Any]:
    rules = ", ".join(dict.fromkeys(one.rule for one in findings))
    return {"backend": None, "country": None, **say("nearest_none", rules=rules)}


def _provider(place: Place, today: date | None) -> dict[str, Any]:
    """What the provider of the place declares and does not; claims of the provider, not of ours."""
    if not place.hosted or place.kind == "unknown":
        return {"id": place.provider, "claims": []}
    return {"id": place.provider, "claims": list(providers.load_provider(place.provider, today).claims)}


def _set_aside(question: _Question, found: Found) -> tuple[Found, dict[str, Any] | None]:
    """Apply the override that covers most denials, where a named person gave one for this run or these settings.

    An override that is unsound, or that names a rule which is unknown or which nobody can set aside, counts for nothing,
    and is named as long as something still denies.
    """
    denials = found.denials
    if not denials:
        return found, None
    known = PLACE_RULES.union(*(rule_ids(pack) for pack in question.loaded))
    fixed = {one.rule for one in denials if not one.settable_aside}
    refused, best, covered = [], None, 0
    for one in question.case.overlays.overrides:
        if not _is_for(one.body, question.settings):
            continue
        wrong = [rule for rule in one.body.rules if rule not in known or rule in fixed]
        if one.state != "valid" or wrong:
            refused.append(_refused(question, one, wrong))
            continue
        covers = sum(denial.rule in one.body.rules for denial in denials)
        if covers > covered:
            best, covered = one, covers
    if best is not None:
        found = Found([_spoken(one, best.body) for one in found.findings], found.conditions)
    if found.denials:
        found.findings += refused
    return found, best.body.shown(best.sha256) if best else None


def _is_for(override: overlays.Override, settings: RunSettings) -> bool:
    if override.run_id is not None:
        return override.run_id == settings.run_id
    try:
        return override.settings_sha256 == settings_digest(settings)
    except ValueError:  # a number that canonical JSON cannot hold
        return False


def _refused(question: _Question, one: overlays.Signed[overlays.Override], wrong: list[str]) -> Finding:
    folder = f"{question.case.folder}/{overlays.TRUSTED}"
    if one.state != "valid":
        why = say(f"override_{one.state}", folder=folder)
    else:
        why = say("override_rules", rules=", ".join(wrong))
    texts = say("override_refused", file=one.file, why=why)
    return suite("override-refused", texts, Remedy(say("renew_override")), layer="override")


def _spoken(finding: Finding, override: overlays.Override) -> Finding:
    if finding.effect != DENY or finding.rule not in override.rules:
        return finding
    texts = say("override_applied", text=finding.texts)
    return replace(finding, effect=CONDITION, layer="override", texts=texts, remedies=())
