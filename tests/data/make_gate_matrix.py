"""Writes `gate_matrix.yaml`: what the residency gate must answer, derived from the facts and from nothing else.

The table below was written from the collected law facts (checked 2026-12-01), without sight of the gate or of the
rule packs, so that an error in them is not copied into what they are measured with.

Three answers. `deny`: the facts demand it. `not_deny`: the facts permit it plainly. `any`: they do not settle it; a
cautious gate may say either. A case that expects `deny` and gets anything else is a *false allow*, of which none is
tolerated; a `not_deny` that gets `deny` makes the gate useless, which is a fault too, but a lesser one.

Principles: unknown, empty, low confidence and null deny. Without a review only public data without personal data and
the suite's own synthetic data may run or leave. Classified levels never leave. Of several jurisdictions the strictest
decides. The place of HF Jobs is not declared by the provider, and declaring one for it is a contradiction.

Use: `python tests/data/make_gate_matrix.py` writes the file beside this script; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

TARGET = Path(__file__).with_name("gate_matrix.yaml")
Answer = Literal["deny", "not_deny", "any"]


@dataclass(frozen=True)
class Facts:
    """What the facts say of one jurisdiction, as far as the gate needs it.

    personal: rule for personal data that leaves the country.
    home: government data on the customer's own machine inside the country: "clear" where the hosting rule asks for
        just this, "clear_without_persons" where it does so for data without personal data, "empty" where no hosting
        rule could be verified for a body that the law binds, "unclear" otherwise.
    abroad_clear: a private controller's personal data may leave with complete evidence, by a cited article.
    """

    country: str
    confidence: Literal["high", "medium", "low"]
    personal: Literal["deny", "needs_authorisation", "needs_evidence"]
    home: Literal["clear", "clear_without_persons", "empty", "unclear"]
    home_why: str
    abroad_clear: bool = False


FACTS: dict[str, Facts] = {
    "sa": Facts("SA", "high", "needs_authorisation", "clear_without_persons",
                "localisation is asked by the NDMO rules and met at home; personal data of a ministry must sit with a "
                "registered provider", True),
    "ae": Facts("AE", "medium", "needs_authorisation", "unclear", "data-location clause of the cloud policy not seen"),
    "ae-du": Facts("AE", "medium", "deny", "empty", "the hosting clause was not read"),
    "ae-difc": Facts("AE", "medium", "needs_evidence", "unclear", "the law does not reach onshore ministries"),
    "ae-adgm": Facts("AE", "medium", "needs_evidence", "unclear", "ADGM bodies only; section numbers not verified"),
    "qa": Facts("QA", "medium", "needs_evidence", "unclear", "levels C0-C4 without a verified hosting clause", True),
    "bh": Facts("BH", "medium", "needs_evidence", "unclear", "no hosting clause verified, low confidence", True),
    "om": Facts("OM", "high", "needs_authorisation", "clear",
                "Circular 6/2024 asks ministries to process personal data inside Oman"),
    "kw": Facts("KW", "low", "deny", "unclear", "the status of the tiers conflicts between sources"),
    "eg": Facts("EG", "medium", "needs_authorisation", "clear", "Cloud First Policy: higher levels are stored locally",
                True),
    "jo": Facts("JO", "medium", "needs_evidence", "unclear", "the class that must stay at home is of low confidence",
                True),
    "ma": Facts("MA", "medium", "needs_authorisation", "unclear", "Decree 2-24-921 speaks of qualified providers",
                True),
    "tn": Facts("TN", "medium", "needs_authorisation", "unclear", "a label is needed to host government applications",
                True),
    "dz": Facts("DZ", "medium", "needs_authorisation", "unclear", "the specification speaks of cloud providers only",
                True),
    "lb": Facts("LB", "low", "needs_evidence", "empty", "no rule verified and no condition listed"),
    "iq": Facts("IQ", "low", "deny", "empty", "no general law"),
}  # fmt: skip

# A private controller at home makes no transfer, and no duty to file before processing is in the facts.
PRIVATE_HOME_CLEAR = {"sa", "jo", "om"}
CLASSIFIED = ("restricted", "secret", "top_secret")
ABROAD = "FR"


@dataclass(frozen=True)
class Case:
    """One situation. `reviewed_only` names the packs that are reviewed where that is not all or none."""

    data_class: str
    personal_data: str
    controller: str
    jurisdictions: str
    country: str
    place: str
    reviewed: bool = True
    evidence: str = "complete"
    place_form: bool = True
    reviewed_only: tuple[str, ...] | None = None

    def is_reviewed(self, pack: str) -> bool:
        return self.reviewed if self.reviewed_only is None else pack in self.reviewed_only


def of_pack(case: Case, pack: str) -> tuple[Answer, str]:
    """The answer of one named jurisdiction to a case that is neither synthetic nor public without persons."""
    if pack not in FACTS:
        return "deny", f"no pack {pack}: unknown jurisdiction"
    facts = FACTS[pack]
    government, persons = case.controller == "government", case.personal_data == "some"
    if not case.is_reviewed(pack):
        return "deny", f"{pack} unreviewed: only public data without persons and synthetic data may run"
    if facts.confidence == "low":
        return "deny", f"{pack} is of low confidence"

    if case.place == "this_machine" and case.country == facts.country:
        if not case.place_form:
            return "deny", "no named officer asserts the place of the machine"
        if government and facts.home == "empty":
            return "deny", f"{pack}: {facts.home_why}; empty is deny"
        if case.evidence != "complete":
            return "any", "whether evidence is needed at home is not settled"
        if case.data_class in ("secret", "top_secret"):
            return "any", "no fact on the highest levels on an own machine at home"
        if government:
            clear = facts.home == "clear" or (facts.home == "clear_without_persons" and not persons)
            if pack == "om" and not persons:
                return "any", "Circular 6/2024 speaks of personal data"
            return ("not_deny" if clear else "any"), f"{pack} at home: {facts.home_why}"
        if pack in PRIVATE_HOME_CLEAR and case.data_class in ("public", "internal"):
            return "not_deny", f"{pack}: no transfer, and the recorded law forbids nothing at home"
        return "any", f"{pack}: prior filings at home are not settled"

    where = "undeclared country" if case.place == "hf_jobs" else "another country"
    if case.data_class in CLASSIFIED:
        return "deny", f"{pack}: classified levels never leave ({where})"
    if pack == "sa" and government and case.data_class != "public":
        return "deny", "sa: any non-public level of government data is deny abroad"
    if persons and facts.personal == "deny":
        return "deny", f"{pack}: personal data does not leave"
    if case.evidence != "complete":
        return "deny", f"{pack}: abroad without valid evidence ({case.evidence})"
    if case.place == "hf_jobs":
        return "any", "complete evidence against an undeclared country is not settled"
    plain = (
        persons and case.data_class == "public" and not government and facts.abroad_clear and case.place_form
    )
    if plain:
        return "not_deny", f"{pack}: every condition of the transfer article is met, the country is named"
    return "any", f"{pack}: abroad with complete evidence is not settled for this class and controller"


def expected(case: Case) -> tuple[Answer, str]:
    """The answer to a case, with the reason in short."""
    if not case.data_class:
        return "deny", "class empty"
    if not case.personal_data:
        return "deny", "personal data not answered"
    if case.place == "hf_jobs" and case.country:
        return "deny", "a country is declared for HF Jobs, which declares none"
    packs = [name for name in case.jurisdictions.split(",") if name]
    if case.personal_data == "none":
        if case.data_class == "synthetic":
            return "not_deny", "the suite's own synthetic data"
        if case.data_class == "public":
            unknown = not packs or any(name not in FACTS for name in packs)
            if unknown or not case.controller or (case.place == "this_machine" and not case.country):
                return "any", "public, but something is left empty or unknown"
            if any(FACTS[name].confidence == "low" for name in packs):
                return "any", "public, under a pack of low confidence"
            return "not_deny", "public without persons may run and leave, with record"
    if not packs:
        return "deny", "jurisdiction empty"
    if not case.controller:
        return "deny", "controller empty"
    if case.place == "this_machine" and not case.country:
        return "deny", "country of the machine unknown"
    answers = [of_pack(case, name) for name in packs]
    strictness = ("deny", "any", "not_deny")
    answer, why = min(answers, key=lambda one: strictness.index(one[0]))
    if answer != "deny" and case.data_class == "synthetic":
        return "any", "synthetic data with persons contradicts itself"
    return answer, why


# --- Which cases are asked ---------------------------------------------------------------------------------------

# (reviewed, evidence, place form)
BARE = (False, "none", False)
UNREVIEWED = (False, "complete", True)
NO_EVIDENCE = (True, "none", True)
FULL = (True, "complete", True)
EXPIRED = (True, "expired", True)
WRONG = (True, "wrong_country", True)
NO_FORM = (True, "complete", False)

Variant = tuple[bool, str, bool]


def variants(data_class: str, personal: str, at_home: bool, hf: bool) -> tuple[Variant, ...]:
    """What is worth asking: each one thing that can be missing, and the case in which nothing is."""
    if (data_class, personal) in (("public", "none"), ("synthetic", "none")):
        return (BARE,)
    if at_home:
        return (UNREVIEWED, FULL, NO_FORM)
    if data_class in CLASSIFIED:
        return (FULL,)  # not even with everything in order
    if hf:
        return (UNREVIEWED, NO_EVIDENCE, FULL, EXPIRED)
    return (UNREVIEWED, NO_EVIDENCE, FULL, EXPIRED, WRONG)


def of_each_pack() -> Iterator[Case]:
    """Each jurisdiction × class × personal × place, for the controllers to which the difference matters."""
    data = (
        ("synthetic", "none", ("government",)),
        ("public", "none", ("government",)),
        ("public", "some", ("government", "private")),
        ("internal", "none", ("government",)),
        ("internal", "some", ("government", "private")),
        ("restricted", "none", ("government",)),
        ("restricted", "some", ("private",)),
        ("secret", "none", ("government",)),
        ("top_secret", "some", ("government",)),
    )
    for pack, facts in FACTS.items():
        for country, place in ((facts.country, "this_machine"), (ABROAD, "this_machine"), ("", "hf_jobs")):
            for data_class, personal, controllers in data:
                for controller in controllers:
                    home = country == facts.country
                    for reviewed, evidence, form in variants(data_class, personal, home, place == "hf_jobs"):
                        if controller == "private" and data_class == "internal" and evidence != "complete":
                            continue  # the same answer as for class public, asked there
                        yield Case(
                            data_class, personal, controller, pack, country, place, reviewed, evidence, form
                        )


def of_empty_fields() -> Iterator[Case]:
    """A case that is allowed with everything in order (Oman, at home), and each of its fields left empty or unknown."""
    sound = Case("internal", "some", "government", "om", "OM", "this_machine")
    yield sound
    for field in ("data_class", "personal_data", "controller", "jurisdictions", "country"):
        yield replace(sound, **{field: ""})
        yield replace(sound, data_class="public", **{field: ""} if field != "data_class" else {})
    for field in ("data_class", "personal_data"):
        for data_class in ("synthetic", "public", "restricted"):
            empty = replace(sound, data_class=data_class, personal_data="none", place="hf_jobs", country="")
            yield replace(empty, **{field: ""})
    for jurisdictions in ("ye", "xx", "om,ye", "fr"):
        for data_class, personal in (
            ("internal", "none"),
            ("internal", "some"),
            ("public", "some"),
            ("public", "none"),
        ):
            yield replace(sound, jurisdictions=jurisdictions, data_class=data_class, personal_data=personal)
    # The default settings of a first run: synthetic, nothing else said.
    first = Case("synthetic", "none", "", "", "", "this_machine", False, "none", False)
    yield first
    yield replace(first, place="hf_jobs")
    yield replace(first, personal_data="some")
    yield replace(first, personal_data="some", place="hf_jobs")
    yield replace(first, data_class="public", place="hf_jobs")
    yield replace(first, data_class="top_secret")


def of_contradictions() -> Iterator[Case]:
    """HF Jobs with a declared country, all else in order."""
    for pack in ("sa", "om", "qa", "jo", "ma", "ae-difc"):
        for country in (FACTS[pack].country, "US"):
            for data_class, personal in (("public", "none"), ("public", "some"), ("internal", "none")):
                yield Case(data_class, personal, "private", pack, country, "hf_jobs")
    yield Case("synthetic", "none", "government", "sa", "SA", "hf_jobs")


def of_several_jurisdictions() -> Iterator[Case]:
    """The strictest decides, at whichever place of the list it stands; one reviewed pack does not cover another."""
    pairs = (
        "sa,jo",
        "jo,sa",
        "om,kw",
        "kw,om",
        "qa,iq",
        "sa,lb",
        "eg,om",
        "ae,ae-du",
        "ae-du,ae-difc",
        "ma,tn,dz",
    )
    for jurisdictions in pairs:
        home = FACTS[jurisdictions.split(",")[0]].country
        for data_class, personal in (
            ("public", "none"),
            ("public", "some"),
            ("internal", "some"),
            ("restricted", "none"),
        ):
            case = Case(data_class, personal, "government", jurisdictions, home, "this_machine")
            yield case
            yield replace(case, evidence="none")
            yield replace(case, place="hf_jobs", country="")
    for jurisdictions, only in (
        ("sa,jo", "sa"),
        ("sa,jo", "jo"),
        ("om,eg", "om"),
        ("om,eg", "eg"),
        ("qa,bh", "bh"),
    ):
        home = FACTS[only].country
        for data_class, personal in (("public", "some"), ("internal", "none")):
            yield Case(
                data_class, personal, "private", jurisdictions, home, "this_machine", reviewed_only=(only,)
            )


def cases() -> list[dict[str, object]]:
    """All cases in the order of the file; of those that the facts do not settle, every fourth is kept."""
    rows, seen, unsettled = [], set(), 0
    for source in (of_each_pack, of_empty_fields, of_contradictions, of_several_jurisdictions):
        for case in source():
            answer, why = expected(case)
            if case in seen:
                continue
            seen.add(case)
            if answer == "any":
                unsettled += 1
                if unsettled % 4:
                    continue
            settings = {key: value for key, value in asdict(case).items() if key in SETTINGS}
            row: dict[str, object] = {"name": name_of(case, len(rows)), "settings": settings}
            row |= {"reviewed": case.reviewed, "evidence": case.evidence, "place_form": case.place_form}
            if case.reviewed_only is not None:
                row["reviewed_only"] = list(case.reviewed_only)
            rows.append(row | {"expect": answer, "because": why})
    return rows


SETTINGS = ("data_class", "personal_data", "controller", "jurisdictions", "country", "place")


def name_of(case: Case, number: int) -> str:
    parts = [case.jurisdictions or "nowhere", case.data_class or "noclass", case.personal_data or "unasked"]
    parts += [case.controller or "nobody", case.place, case.country or "undeclared"]
    return "-".join([f"{number:04d}", *parts]).replace(",", "+")


HEADER = """\
# Expected verdicts of the residency gate, written from the facts by make_gate_matrix.py (do not edit by hand).
# expect: deny | not_deny | any (the facts do not settle it). reviewed_only: just these packs are reviewed.
"""


def file_text() -> str:
    """YAML with one case a line; JSON is the flow style of YAML."""
    return HEADER + "cases:\n" + "".join(f"- {json.dumps(row, ensure_ascii=False)}\n" for row in cases())


if __name__ == "__main__":
    TARGET.write_text(file_text(), encoding="utf-8")
