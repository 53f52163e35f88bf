"""Papers of the customer that meet a condition: evidence for it, and the form in which an officer answers for a place.

One YAML file each, in `governance/evidence/` and `governance/places/`. Evidence counts only with the document that it
speaks about beside it, unchanged: the file holds the document's SHA-256. Nothing is assumed for a field that is left
empty, and nothing counts before its date or after its expiry. Whether a letter says what the file claims is for
people to judge; its digest makes sure that they judge the same letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from grpo_lib.runfolder import file_sha256
from grpo_lib.untrusted import Country, Day, Digest, Fault, Sound, Text, checked, parse_yaml

EVIDENCE, PLACES = "evidence", "places"
# Hidden ways out of a country: a form that leaves one of them open does not count.
STAYS = ("compute", "storage", "backups", "logs", "support")
KINDS = ("authorisation", "consent", "assessment", "contract", "statement")


class Evidence(BaseModel):
    """What a document of the customer proves: one condition of one rule pack, for some countries, for some time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_id: Literal["grpo-lib/evidence/1"] = Field(alias="schema")
    pack: Text
    condition: Text
    kind: Literal[KINDS]
    ref: Text
    issuer: Text
    signed_by: Text
    date: Day
    expires: Day
    countries: list[Country] = Field(min_length=1)
    document: Text  # a file under governance/evidence
    sha256: Digest

    def shown(self) -> dict[str, Any]:
        names = ("ref", "issuer", "date", "expires", "countries", "signed_by", "sha256")
        return {name: getattr(self, name) for name in names}


class Form(BaseModel):
    """A named officer answers for one place: who runs it, in which country, and what of the data stays there.

    `on-premises` is run by the organisation itself, `sovereign` by somebody else inside the country, whose written
    declaration has to lie beside the form.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_id: Literal["grpo-lib/place/1"] = Field(alias="schema")
    id: Text
    kind: Literal["on-premises", "sovereign"]
    operator: Text
    country: Country
    zones: list[Text] = []
    """Packs of parts of the country, such as `ae-difc`, in whose territory the place lies."""
    stays_in_country: list[Literal[STAYS]]
    named_officer: Text
    role: Text
    date: Day
    expires: Day
    document: Text | None = None  # a file under governance/places
    sha256: Digest | None = None

    def shown(self, sha256: str) -> dict[str, Any]:
        """The form as evidence: `sha256` is of the form's own file."""
        return {
            "ref": self.id,
            "issuer": self.operator,
            "date": self.date,
            "expires": self.expires,
            "countries": [self.country],
            "signed_by": f"{self.named_officer}, {self.role}",
            "sha256": sha256,
        }


@dataclass(frozen=True)
class Papers:
    """All papers of a governance folder, with what could not be read of them."""

    root: Path
    evidence: tuple[Sound[Evidence], ...]
    forms: tuple[Sound[Form], ...]
    faults: tuple[Fault, ...]

    def evidence_for(
        self, pack: str, condition: str, kind: str, country: str | None, today: str
    ) -> tuple[Evidence | None, str]:
        """Evidence that meets a condition, and "valid"; or None and how far the best of it came.

        Why not: `missing`, `kind`, `country`, `early`, `lapsed` or `document`, in the order of the checks.
        """
        steps = ("missing", "kind", "country", "early", "lapsed", "document")
        furthest = 0
        for one in (found.body for found in self.evidence):
            if (one.pack, one.condition) != (pack, condition):
                continue
            passed = (
                True,
                one.kind == kind,
                country in one.countries,
                one.date <= today,
                one.expires >= today,
                self._holds(EVIDENCE, one.document, one.sha256),
            )
            if all(passed):
                return one, "valid"
            furthest = max(furthest, passed.index(False))
        return None, steps[furthest]

    def form_for(self, country: str, today: str) -> tuple[Sound[Form] | None, str]:
        """The form that holds longest for a machine in `country`, and "valid"; or None and how far the best one came.

        Why not: `missing`, `early`, `lapsed`, `open` (something does not stay in the country) or `document`.
        """
        steps = ("missing", "early", "lapsed", "open", "document")
        best, furthest = None, 0
        for one in sorted(self.forms, key=lambda found: found.body.expires):
            form = one.body
            if form.country != country:
                continue
            passed = (
                True,
                form.date <= today,
                form.expires >= today,
                set(form.stays_in_country) == set(STAYS),
                form.kind == "on-premises" or self._holds(PLACES, form.document, form.sha256),
            )
            if all(passed):
                best = one
            else:
                furthest = max(furthest, passed.index(False))
        return (best, "valid") if best else (None, steps[furthest])

    def _holds(self, folder: str, document: str | None, digest: str | None) -> bool:
        """Whether the document lies in the folder (and not elsewhere through a link) with the stated digest."""
        inside = (self.root / folder).resolve()
        try:
            path = (inside / document).resolve() if document else inside
            return path.is_relative_to(inside) and path.is_file() and file_sha256(path) == digest
        except (OSError, ValueError):
            return False

    def countries(self, today: str) -> list[str]:
        """Countries for which a place form counts."""
        named = sorted({one.body.country for one in self.forms})
        return [country for country in named if self.form_for(country, today)[0]]


def read(governance: Path) -> Papers:
    """Read every paper of a governance folder; a folder that is not there holds none."""
    evidence, faults = checked(governance, EVIDENCE, "*.yaml", parse_yaml, Evidence)
    forms, more = checked(governance, PLACES, "*.yaml", parse_yaml, Form)
    return Papers(governance, tuple(evidence), tuple(forms), (*faults, *more))
