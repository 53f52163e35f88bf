"""What the gate finds: one finding per rule that speaks to a case, the conditions it names, and what would cure it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from grpo_lib.sentences import Texts

DENY, ALLOW, CONDITION = "deny", "allow", "condition"


@dataclass(frozen=True)
class Remedy:
    """One way to turn a denial. `set` are settings to launch with; `command` is the command that does it or helps."""

    texts: Texts
    set: dict[str, Any] | None = None
    command: str | None = None


@dataclass(frozen=True)
class Finding:
    """What one rule says. Layers: suite, place, pii, review, personal_data_law, government_hosting, override."""

    rule: str
    layer: str
    effect: str
    texts: Texts
    pack: str | None = None
    article: str | None = None
    confidence: str | None = None
    remedies: tuple[Remedy, ...] = ()
    by_papers: bool = False
    """A denial that papers of the customer cure: neither the data, nor the place, nor the pack has to change."""
    settable_aside: bool = False
    """Whether an override may name it. Never where a statement is missing, a file is damaged or a screen unanswered."""

    def as_json(self) -> dict[str, Any]:
        names = ("rule", "pack", "layer", "article", "effect", "confidence")
        return {name: getattr(self, name) for name in names} | self.texts


@dataclass(frozen=True)
class Condition:
    """A condition that a rule names. It is met when `evidence` is there; None means that nothing counts for it."""

    id: str
    rule: str
    pack: str | None
    kind: str
    texts: Texts
    evidence: dict[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        names = ("id", "rule", "pack", "evidence")
        given = {name: getattr(self, name) for name in names}
        return given | self.texts | {"evidence_kind": self.kind, "met": self.evidence is not None}


@dataclass
class Found:
    """Findings and conditions, in the order in which they were made."""

    findings: list[Finding] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.findings += other.findings
        self.conditions += other.conditions

    @property
    def denials(self) -> list[Finding]:
        return [one for one in self.findings if one.effect == DENY]
