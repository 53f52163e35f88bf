"""Where a run takes place: derived from the back-end and the address it listens on, never typed.

A machine cannot prove in which country it stands. What `country` of the settings says is a declaration; a form in the
governance folder, in which a named officer answers for the machine, confirms it (`papers`). Of a hosted back-end the
country is what its provider declares in writing, and none is known here.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import Any

from grpo_lib.findings import CONDITION, Condition, Found, Remedy
from grpo_lib.incidents import public
from grpo_lib.pack_rules import Case
from grpo_lib.papers import PLACES
from grpo_lib.sentences import say
from grpo_lib.settings import RunSettings
from grpo_lib.stated import suite

OWN_MACHINE = "own-machine"
# Rules about the place that a named person may set aside.
PLACE_RULES = {"place-form", "place-country-unknown"}
# Hosted back-ends: kind of place and provider. Neither declares a country for what runs there.
_HOSTED = {"hf_jobs": ("hf_jobs", "huggingface")}


def address_class(address: str) -> str:
    """`loopback`, `private` or `public`; a name that is not an address counts as public, the strictest."""
    try:
        parsed = ipaddress.ip_address("127.0.0.1" if address == "localhost" else address)
    except ValueError:
        return "public"
    if parsed.is_loopback:
        return "loopback"
    return "private" if parsed.is_private and not parsed.is_unspecified else "public"


@dataclass(frozen=True)
class Place:
    """One place of processing. `country` is what is known of it, not what was declared."""

    backend: str
    kind: str  # this_machine | network | hf_jobs | hf_hub | unknown
    declared_country: str
    observed: str
    provider: str
    country: str | None = None

    @classmethod
    def of(cls, settings: RunSettings) -> Place:
        """The place that the settings lead to. Its country is confirmed later, by a form, or stays unknown."""
        backend, declared = str(settings.backend), str(settings.country or "")
        if backend in _HOSTED:
            kind, provider = _HOSTED[backend]
            return cls(backend, kind, declared, f"machines of {provider}", provider)
        if backend != "local":
            return cls(backend, "unknown", declared, "unknown", "unknown")
        listening = address_class(settings.bind)
        if listening == "loopback":
            return cls.own_machine(declared)
        return cls(backend, "network", declared, f"machines that reach a {listening} address", OWN_MACHINE)

    @classmethod
    def own_machine(cls, declared_country: str) -> Place:
        return cls("local", "this_machine", declared_country, "this machine", OWN_MACHINE)

    def confirmed(self) -> Place:
        """The same place, its declared country confirmed."""
        return replace(self, country=self.declared_country)

    @property
    def hosted(self) -> bool:
        return self.provider != OWN_MACHINE

    def as_json(self) -> dict[str, Any]:
        names = ("backend", "kind", "declared_country", "country", "observed")
        return {name: getattr(self, name) for name in names}


def placed(place: Place, case: Case, said: Found) -> tuple[Place, Case]:
    """The place with its country as far as it is known, and the case with the country that rules are asked about.

    Where a machine of one's own lacks its form, rules are asked about the declared country, so that the denial says all
    that is missing; the place itself keeps no country.
    """

    def deny(rule: str, key: str, *remedies: Remedy, by_papers: bool = False, **values: Any) -> None:
        finding = suite(rule, say(key, **values), *remedies, layer="place", by_papers=by_papers)
        said.findings.append(replace(finding, settable_aside=rule in PLACE_RULES))

    declared = place.declared_country
    here = {"backend": "local", "bind": "127.0.0.1"}
    if place.kind == "unknown":
        deny(
            "place-unknown",
            "place_unknown",
            Remedy(say("run_here"), set=here),
            backend=public(place.backend, 40),
        )
        return place, case
    if place.kind != "this_machine":
        if place.hosted and declared:
            empty = Remedy(
                say("correct_country", field="country", value=say("leave_empty")), set={"country": ""}
            )
            deny(
                "place-contradiction",
                "place_contradiction",
                empty,
                declared=declared,
                known=say("known_undeclared"),
            )
        if not case.light:
            listen = say("listen_here_only", field="bind", value="127.0.0.1")
            remedy = Remedy(say("run_here") if place.hosted else listen, set=here)
            deny("place-country-unknown", "place_no_country", remedy)
        return place, case
    elsewhere = case.papers.countries(case.today)
    if declared and elsewhere and declared not in elsewhere:
        known = say("known_form", countries=", ".join(elsewhere))
        correct = [
            Remedy(say("correct_country", field="country", value=one), set={"country": one})
            for one in elsewhere
        ]
        fill = _fill_form(declared, case)
        deny(
            "place-contradiction",
            "place_contradiction",
            *correct,
            fill,
            by_papers=True,
            declared=declared,
            known=known,
        )
        return place, case if case.light else replace(case, country=declared)
    form, state = case.papers.form_for(declared, case.today)
    if form is not None:
        place = place.confirmed()
        case = replace(case, zones=frozenset(form.body.zones), sovereign=form.body.kind == "sovereign")
    if case.light:
        return place, replace(case, country=place.country)
    if not declared:
        deny("place-country-unknown", "place_no_country", Remedy(say("declare_country", field="country")))
        return place, case
    if form is None:
        deny("place-form", f"place_{state}", _fill_form(declared, case), by_papers=True, country=declared)
    else:
        texts = say("place_confirmed", country=declared)
        said.findings.append(suite("place-form", texts, effect=CONDITION, layer="place"))
    evidence = form and form.body.shown(form.sha256)
    said.conditions.append(
        Condition("place-form", "place-form", None, "statement", say("place_condition"), evidence)
    )
    return place, replace(case, country=declared)


def _fill_form(country: str, case: Case) -> Remedy:
    texts = say("fill_place_form", country=country, folder=f"{case.folder}/{PLACES}")
    return Remedy(texts, command="python -m grpo_lib.residency check --template place")
