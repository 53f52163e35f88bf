"""What one rule pack says to one case: its review, its personal-data law, its hosting rules.

Both layers are asked, and the stricter wins. Everything the decision rests on must be there: a field that is null is
"not verified", never "no duty", so it denies; facts of low confidence deny; a rule that needs evidence and lists no
condition denies, since no evidence could meet it. Every condition that a rule lists must be met: where the law offers
alternatives, the pack's author writes them as one condition.

Inside a country (a machine of the customer's own there) nothing is transferred, and the hosting layer decides. It binds
government, and whoever holds data of the state's own levels. Outside, data above class public are denied, and personal
data follow the stricter of the law's transfer rule and the pack's gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grpo_lib.findings import ALLOW, CONDITION, DENY, Condition, Finding, Found, Remedy
from grpo_lib.overlays import TRUSTED, Overlays
from grpo_lib.packs import Pack
from grpo_lib.papers import EVIDENCE, Papers
from grpo_lib.sentences import Texts, joined, say

# From the loosest to the strictest; anything else is not verified.
EFFECTS = ("allow_with_record", "needs_evidence", "needs_authorisation", "deny")
STATE_CLASSES = ("restricted", "secret", "top_secret")
LAW, HOSTING = "personal_data_law", "government_hosting"


@dataclass(frozen=True)
class Case:
    """The question put to each pack. `country` is where the data would be processed; None is unknown.

    `zones` are the packs of parts of that country (`ae-difc`) in whose territory the place lies, and
    `sovereign` says that somebody else runs it, both by its form.
    """

    data_class: str
    personal: bool
    government: bool
    country: str | None
    zones: frozenset[str]
    sovereign: bool
    papers: Papers
    overlays: Overlays
    today: str
    folder: str  # the governance folder as people may read it

    @property
    def light(self) -> bool:
        """What may run and leave with record, reviewed or not."""
        return self.data_class in ("synthetic", "public") and not self.personal


def rule_ids(pack: Pack) -> set[str]:
    """Every rule of a pack that an override may name."""
    suffixes = ("review", "confidence", "transfer", "classified", "public", "hosting")
    return {f"{pack.id}-{suffix}" for suffix in suffixes} | {
        rule.id for rule in pack.government_hosting.rules
    }


def judge(pack: Pack, case: Case) -> Found:
    """Everything that `pack` says to `case`."""
    found, inside = Found(), _inside(pack, case)
    if not case.light:
        found.findings += [*_review(pack, case), *_confidence(pack, case)]
    if case.light and case.data_class == "public" and not inside and pack.gate.public != "allow_with_record":
        found.findings.append(
            _denial(pack, "public", LAW, say("public_abroad", pack=pack.id), _better(pack, case))
        )
    if not inside and case.data_class not in ("synthetic", "public"):
        texts = say("classified_abroad", country=_country(pack))
        found.findings.append(_denial(pack, "classified", HOSTING, texts, _at_home(pack)))
    if not inside and case.personal:
        found.add(_transfer(pack, case))
    if case.data_class != "synthetic":
        found.add(_hosting(pack, case, inside))
    if inside and not case.light:
        found.findings.append(
            _finding(pack, f"{pack.id}-inside", LAW, ALLOW, say("stays_inside", country=_country(pack)))
        )
    return found


def _inside(pack: Pack, case: Case) -> bool:
    """Whether the place lies in the pack's territory; for a part of a country, only if the place form names that part.

    A free zone's law takes the country around it for abroad.
    """
    if case.country is None or case.country != pack.country:
        return False
    return not is_zone(pack) or pack.id in case.zones


def is_zone(pack: Pack) -> bool:
    return "-" in pack.id


def _review(pack: Pack, case: Case) -> list[Finding]:
    review, state = case.overlays.review_of(pack.id, pack.digest)
    rule = f"{pack.id}-review"
    if review is not None:
        texts = say("review_valid", pack=pack.id, until=review.until)
        return [_finding(pack, rule, "review", ALLOW, texts)]
    trusted = f"{case.folder}/{TRUSTED}"
    texts = say(f"review_{state}", pack=pack.id, folder=trusted)
    command = (
        f"python -m grpo_lib.residency review {pack.id} --by NAME --role ROLE --until YYYY-MM-DD --key KEY"
    )
    remedies = [Remedy(say("do_review"), command=command)]
    if state == "untrusted":
        remedies.append(Remedy(say("do_trust", folder=trusted)))
    return [_finding(pack, rule, "review", DENY, texts, tuple(remedies), by_papers=True)]


def _confidence(pack: Pack, case: Case) -> list[Finding]:
    if pack.confidence in ("high", "medium") and pack.country:
        return []
    unverified = [name for name in ("confidence", "country") if not getattr(pack, name)]
    texts = _unverified(pack, unverified) if unverified else say("low_confidence", pack=pack.id)
    return [_denial(pack, "confidence", "review", texts, _better(pack, case))]


def _transfer(pack: Pack, case: Case) -> Found:
    """Personal data leave the country: the stricter of the law's transfer rule and the pack's gate."""
    law, better = pack.personal_data_law.transfer, _better(pack, case)
    needed = {
        f"{LAW}.transfer.effect": law.effect in EFFECTS,
        f"{LAW}.transfer.article": law.article,
        f"{LAW}.transfer.confidence": law.confidence,
        "gate.personal": pack.gate.personal in EFFECTS,
    }
    if case.government:
        needed[f"{LAW}.binds_government"] = pack.personal_data_law.binds_government
    paraphrase = _paraphrase(law.paraphrase)
    strictest = max(_rank(law.effect), _rank(pack.gate.personal))
    conditions = _conditions(pack, f"{pack.id}-transfer", law.conditions, case)
    unmet = [one for one in conditions if one.evidence is None]

    def denied(texts: Texts, *remedies: Remedy, by_papers: bool = False) -> Found:
        more = {"article": law.article, "confidence": law.confidence, "by_papers": by_papers}
        finding = _denial(pack, "transfer", LAW, texts, *remedies, _at_home(pack), **more)
        return Found([finding], conditions)

    if strictest == EFFECTS.index("deny"):
        return denied(say("transfer_denied", country=_country(pack), paraphrase=paraphrase))
    if strictest > EFFECTS.index("allow_with_record") and not conditions:
        return denied(say("transfer_no_conditions", pack=pack.id), better)
    if missing := [name for name, value in needed.items() if not value]:
        return denied(_unverified(pack, missing), better)
    if law.confidence == "low":
        return denied(say("rule_low_confidence", paraphrase=paraphrase), better)
    kinds = {one.kind for one in conditions}
    if strictest == EFFECTS.index("needs_authorisation") and "authorisation" not in kinds:
        return denied(say("transfer_no_authorisation", pack=pack.id), better)
    if unmet:
        texts = say("transfer_unmet", conditions=_why(pack, unmet, case), paraphrase=paraphrase)
        return denied(texts, *_supply(unmet, case), by_papers=case.country is not None)
    met = _finding(
        pack,
        f"{pack.id}-transfer",
        LAW,
        CONDITION if conditions else ALLOW,
        say("transfer_met", paraphrase=paraphrase),
        article=law.article,
        confidence=law.confidence,
    )
    return Found([met], conditions)


def _hosting(pack: Pack, case: Case, inside: bool) -> Found:
    """Rules on where the state's data are kept.

    A rule that names no class speaks to every one and covers none: it may deny, but some rule has to name the class.
    Public data need no rule of their own, and an unnamed class with an unverified effect does not hold them; but the
    state's personal data, published or not, need a pack in which some hosting rule was verified at all.
    """
    found = Found()
    if not case.government and case.data_class not in STATE_CLASSES:
        return found
    where, public = "in_country" if inside else "abroad", case.data_class == "public"
    rules = pack.government_hosting.rules
    naming = [rule for rule in rules if case.data_class in rule.classes]
    speaking = [rule for rule in rules if not rule.classes and not (public and getattr(rule, where) is None)]
    if not (naming or (public and (rules or case.light))):
        texts = say("hosting_nothing", pack=pack.id)
        found.findings.append(_denial(pack, "hosting", HOSTING, texts, _better(pack, case)))
    for rule in [*naming, *speaking]:
        found.add(_hosting_rule(pack, rule, where, case))
    return found


def _hosting_rule(pack: Pack, rule: Any, where: str, case: Case) -> Found:
    effect = getattr(rule, where)
    paraphrase, better = _paraphrase(rule.paraphrase), _better(pack, case)
    elsewhere = (_at_home(pack),) if where == "abroad" else ()
    cited = {"article": rule.article, "confidence": rule.confidence}
    conditions: list[Condition] = []

    def said(effect: str, texts: Texts, *remedies: Remedy, by_papers: bool = False) -> Found:
        finding = _finding(pack, rule.id, HOSTING, effect, texts, remedies, by_papers=by_papers, **cited)
        return Found([finding], conditions)

    if effect == "deny":
        return said(DENY, say("hosting_denied", country=_country(pack), paraphrase=paraphrase), *elsewhere)
    name = f"{HOSTING}.rules.{rule.id}"
    missing = [f"{name}.{where}"] if effect not in ("allow", "needs_evidence", "needs_authorisation") else []
    missing += [] if rule.confidence else [f"{name}.confidence"]
    if missing:
        return said(DENY, _unverified(pack, missing), better, *elsewhere)
    if rule.confidence == "low":
        return said(DENY, say("rule_low_confidence", paraphrase=paraphrase), better, *elsewhere)
    if effect == "allow" and case.sovereign:
        return said(DENY, say("hosting_own_only", paraphrase=paraphrase), better, _at_home(pack))
    if effect == "allow":
        return said(ALLOW, say("hosting_allowed", country=_country(pack), paraphrase=paraphrase))
    conditions += _conditions(pack, rule.id, rule.conditions, case)
    wanted = effect == "needs_evidence" or any(one.kind == "authorisation" for one in conditions)
    if not conditions or not wanted:
        return said(DENY, say("hosting_no_conditions", pack=pack.id), better, *elsewhere)
    if unmet := [one for one in conditions if one.evidence is None]:
        texts = say("hosting_unmet", conditions=_why(pack, unmet, case), paraphrase=paraphrase)
        return said(DENY, texts, *_supply(unmet, case), *elsewhere, by_papers=case.country is not None)
    return said(CONDITION, say("hosting_met", paraphrase=paraphrase))


# ------------------------------------------------------------------------------------------------- conditions


def _conditions(pack: Pack, rule: str, listed: Any, case: Case) -> list[Condition]:
    rows = []
    for one in listed or ():
        evidence, _ = case.papers.evidence_for(pack.id, one.id, one.evidence, case.country, case.today)
        shown = evidence.shown() if evidence else None
        rows.append(Condition(one.id, rule, pack.id, one.evidence, _paraphrase(one.paraphrase), shown))
    return rows


def _why(pack: Pack, unmet: list[Condition], case: Case) -> Texts:
    """Each unmet condition with what is wrong with the evidence for it."""
    rows = []
    for one in unmet:
        _, state = case.papers.evidence_for(pack.id, one.id, one.kind, case.country, case.today)
        why = say(f"evidence_{state}")
        rows.append({language: f"{one.id} ({why[language]})" for language in why})
    return joined(rows)


def _supply(unmet: list[Condition], case: Case) -> list[Remedy]:
    """A remedy for each unmet condition; none where the country is unknown, since evidence could not name it."""
    command = "python -m grpo_lib.residency check --template evidence"
    return [
        Remedy(
            say(
                "supply_evidence",
                kind=one.kind,
                condition=one.id,
                country=case.country,
                folder=f"{case.folder}/{EVIDENCE}",
                paraphrase=one.texts,
            ),
            command=command,
        )
        for one in unmet
        if case.country is not None
    ]


# ---------------------------------------------------------------------------------------------------- wording


def _finding(
    pack: Pack,
    rule: str,
    layer: str,
    effect: str,
    texts: Texts,
    remedies: tuple[Remedy, ...] = (),
    **more: Any,
) -> Finding:
    given = {"pack": pack.id, "confidence": pack.confidence, "settable_aside": effect == DENY} | more
    return Finding(rule, layer, effect, texts, remedies=tuple(remedies), **given)


def _denial(pack: Pack, suffix: str, layer: str, texts: Texts, *remedies: Remedy, **more: Any) -> Finding:
    return _finding(pack, f"{pack.id}-{suffix}", layer, DENY, texts, remedies, **more)


def _better(pack: Pack, case: Case) -> Remedy:
    texts = say("better_pack", file=f"{case.folder}/rules/{pack.id}.yaml")
    return Remedy(texts, command=f"python -m grpo_lib.residency explain {pack.id}")


def _at_home(pack: Pack) -> Remedy:
    settings = {"backend": "local", "bind": "127.0.0.1", "country": pack.country}
    texts = say("run_in_zone" if is_zone(pack) else "run_at_home", country=_country(pack), zone=pack.id)
    return Remedy(texts, set=settings)


def _unverified(pack: Pack, fields: list[str]) -> Texts:
    return say("not_verified", pack=pack.id, fields=", ".join(fields))


def _rank(effect: Any) -> int:
    """How strict an effect is; -1 for what is not verified, which denies for itself."""
    return EFFECTS.index(effect) if effect in EFFECTS else -1


def _paraphrase(text: Texts | None) -> Texts:
    """A pack's text, marked as our paraphrase; empty where the pack holds none."""
    if text is None:
        return {"ar": "", "en": ""}
    return say("paraphrased", text=text)


def _country(pack: Pack) -> Texts:
    """Name and code of the pack's country."""
    return {language: f"{name} ({pack.country})" for language, name in pack.names.items()}
