"""Provider profiles: what a provider declares about place, storage, logs and access, and what it does not.

Each claim is the provider's own, with its source, the date it was read and the date it lapses; a lapsed claim counts as
not declared. No profile says that anybody complies with a law. A customer's own premises have no profile here: they are
described by a form that a named officer fills in (`places`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
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


@cache
def load_provider(provider_id: str, today: date | None = None) -> Provider:
    """A profile as it stands on a day; claims that have lapsed are no longer declared.

    Raises:
        WrongInput: there is no such profile, or it does not hold to the schema.
    """
    path = data_path("providers", f"{provider_id}.yaml")
    if provider_id not in known():
        raise WrongInput(
            ar=f"لا يوجد تعريف للمزود {isolate(provider_id)}. المتاح: {isolate(', '.join(known()))}.",
            en=f"There is no profile of a provider {provider_id}. There are: {', '.join(known())}.",
        )
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    schema = json.loads(data_path("schemas", "provider.schema.json").read_text(encoding="utf-8"))
    faults = [
        f"{'.'.join(map(str, one.absolute_path)) or '-'}: {one.message}"
        for one in jsonschema.Draft202012Validator(schema).iter_errors(values)
    ]
    if faults:
        raise WrongInput(
            ar=f"تعريف المزود {isolate(path.name)} غير صالح: {isolate('; '.join(faults[:5]))}.",
            en=f"The provider profile {path.name} is not valid: {'; '.join(faults[:5])}.",
        )
    day = (today or datetime.now(UTC).date()).isoformat()
    claims = tuple(
        claim | {"declared": claim["declared"] and day <= claim["expires"]} for claim in values["claims"]
    )
    return Provider(values["id"], values["names"], values["legal_home"], claims)
