"""Provider profiles: what a provider declares about place, storage, logs and access, and what it does not.

Each claim is the provider's own, with its source, the date it was read and the date it lapses; a lapsed claim counts as
not declared. No profile says that anybody complies with a law. A customer's own premises have no profile here: they are
described by a form that a named officer fills in (`places`).
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from compliance import path as data_path
from grpo_lib.errors import WrongInput, isolate


@dataclass(frozen=True)
class Provider:
    """One profile; `claims` are dicts with id, subject, claim, declared, source, checked_on, expires."""

    id: str
    names: dict[str, str]
    legal_home: str | None
    claims: tuple[dict[str, Any], ...]


def known() -> list[str]:
    """Ids of all profiles."""
    return sorted(path.stem for path in data_path("providers").glob("*.yaml"))


def load_provider(provider_id: str, today: date | None = None) -> Provider:
    """A profile as it stands on a day (today in UTC where none is given); a claim that has lapsed is not declared.

    Raises:
        WrongInput: there is no such profile, or it does not hold to the schema.
    """
    if provider_id not in known():
        raise WrongInput(
            ar=f"لا يوجد تعريف للمزود {isolate(provider_id)}. المتاح: {isolate(', '.join(known()))}.",
            en=f"There is no profile of a provider {provider_id}. There are: {', '.join(known())}.",
        )
    values = read_profile(data_path("providers", f"{provider_id}.yaml"))
    day = (today or datetime.now(UTC).date()).isoformat()
    # Copies: the profile is read once, and what one decision does with its claims is no business of the next.
    claims = tuple(
        copy.deepcopy(claim)
        | {"declared": claim["declared"] and claim["checked_on"] <= day <= claim["expires"]}
        for claim in values["claims"]
    )
    return Provider(values["id"], dict(values["names"]), values["legal_home"], claims)


@cache
def read_profile(path: Path) -> dict[str, Any]:
    """A profile as it was written.

    Raises:
        WrongInput: it cannot be read, does not hold to the schema, or a claim names a day that does not exist.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _invalid(path, [str(error).splitlines()[0]]) from None
    schema = json.loads(data_path("schemas", "provider.schema.json").read_text(encoding="utf-8"))
    faults = [
        f"{'.'.join(map(str, one.absolute_path)) or '-'}: {one.message}"
        for one in jsonschema.Draft202012Validator(schema).iter_errors(values)
    ]
    if faults:
        raise _invalid(path, faults)
    if values["id"] != path.stem:
        raise _invalid(path, [f"id: {values['id']} is not the file's name"])
    for place, claim in enumerate(values["claims"]):
        for name in ("checked_on", "expires"):
            try:
                date.fromisoformat(claim[name])
            except ValueError:
                raise _invalid(
                    path, [f"claims.{place}.{name}: {claim[name]} is no day of the calendar"]
                ) from None
    return values


def _invalid(path: Path, faults: list[str]) -> WrongInput:
    return WrongInput(
        ar=f"تعريف المزود {isolate(path.name)} غير صالح: {isolate('; '.join(faults[:5]))}.",
        en=f"The provider profile {path.name} is not valid: {'; '.join(faults[:5])}.",
    )
