"""Signed overlays over the gate: a review of a rule pack, an override of a denial.

Neither is part of what it speaks about: a pack stays as it is, and a review in the governance folder names its digest.
So a review lapses by itself when the pack changes by one byte, and on the date that it carries. An override sets aside
named rules, for one run id or one set of settings, for a stated reason, until a date.

Both are JSON, signed with Ed25519 (RFC 8032) over the canonical form (RFC 8785) of everything but the signature. A
signature counts only when its key stands in `governance/trusted/`, put there by somebody who checked whose it is: the
key that comes with a file proves nothing about the file.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from grpo_lib import keys
from grpo_lib.errors import WrongInput
from grpo_lib.incidents import public
from grpo_lib.runfolder import canonical, write_json
from grpo_lib.untrusted import Base64, Day, Digest, Fault, Sound, Text, checked, parse_json

REVIEWS, OVERRIDES, TRUSTED = "reviews", "overrides", "trusted"


class _Signed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    by: Text
    role: Text
    date: Day
    until: Day
    key_sha256: Digest
    signature: Base64


Body = TypeVar("Body", bound=_Signed)


class Review(_Signed):
    """A named person stands for one pack, as it is, until a date."""

    schema_id: Literal["grpo-lib/review/1"] = Field(alias="schema")
    pack: Text
    pack_sha256: Digest

    def shown(self) -> dict[str, str]:
        return {"by": self.by, "role": self.role, "until": self.until, "key_sha256": self.key_sha256}


class Override(_Signed):
    """A named person sets rules aside for one run or one set of settings; exactly one of the two is given."""

    schema_id: Literal["grpo-lib/override/1"] = Field(alias="schema")
    rules: list[Text] = Field(min_length=1)
    reason: Text
    run_id: Text | None
    settings_sha256: Digest | None

    @field_validator("settings_sha256")
    @classmethod
    def _bound_to_one_thing(cls, value: str | None, info: ValidationInfo) -> str | None:
        if (info.data.get("run_id") is None) == (value is None):
            raise ValueError("either run_id or settings_sha256")
        return value

    def shown(self, sha256: str) -> dict[str, Any]:
        names = ("by", "role", "reason", "until", "rules")
        return {name: getattr(self, name) for name in names} | {"sha256": sha256}


@dataclass(frozen=True)
class Signed(Generic[Body]):
    """A signed file as it was found. `state` is `valid`, `untrusted`, `forged`, `early` or `lapsed`."""

    file: str
    sha256: str
    state: str
    body: Body


@dataclass(frozen=True)
class Overlays:
    """Everything signed in a governance folder, with what could not be read of it."""

    reviews: tuple[Signed[Review], ...]
    overrides: tuple[Signed[Override], ...]
    faults: tuple[Fault, ...]

    def review_of(self, pack_id: str, pack_sha256: str) -> tuple[Review | None, str]:
        """The review that holds longest, and "valid"; or None and why the last one found does not count.

        Why: `missing`, `changed` (the pack is another one by now), or the state of the signature.
        """
        why = "missing"
        for one in sorted(self.reviews, key=lambda one: one.body.until, reverse=True):
            if one.body.pack != pack_id:
                continue
            state = one.state
            if state == "valid" and one.body.pack_sha256 != pack_sha256:
                state = "changed"
            if state == "valid":
                return one.body, state
            why = state if why == "missing" else why
        return None, why


def read(governance: Path, today: str) -> Overlays:
    """Read and check every signed file.

    Args:
        governance: the customer's folder.
        today: ISO date; a file counts from its `date` to its `until`, both included.
    """
    trusted, faults = _trusted(governance)

    def signed(folder: str, pattern: str, model: type[Body]) -> tuple[Signed[Body], ...]:
        found, more = checked(governance, folder, pattern, parse_json, model)
        faults.extend(more)
        return tuple(Signed(one.file, one.sha256, _state(one, trusted, today), one.body) for one in found)

    reviews = signed(REVIEWS, "*.review.json", Review)
    overrides = signed(OVERRIDES, "*.override.json", Override)
    return Overlays(reviews, overrides, tuple(faults))


def _trusted(governance: Path) -> tuple[dict[str, Ed25519PublicKey], list[Fault]]:
    """Keys whose signatures count, by fingerprint, and the files among them that are no keys."""
    found, faults = {}, []
    for path in sorted((governance / TRUSTED).glob("*.pub.pem")):
        try:
            key = keys.read_public(path)
        except WrongInput:
            faults.append(Fault(public(f"{TRUSTED}/{path.name}", 120), "unreadable"))
            continue
        found[keys.fingerprint(key)] = key
    return found, faults


def _state(found: Sound[Any], trusted: dict[str, Ed25519PublicKey], today: str) -> str:
    body, key = found.body, trusted.get(found.body.key_sha256)
    if key is None:
        return "untrusted"
    rest = {name: one for name, one in found.value.items() if name != "signature"}
    try:
        key.verify(base64.b64decode(body.signature, validate=True), canonical(rest))
    except (InvalidSignature, binascii.Error, ValueError):
        return "forged"
    if body.date > today:
        return "early"
    return "valid" if body.until >= today else "lapsed"


def write(path: Path, body: dict[str, Any], signer: keys.Signer) -> None:
    """Sign `body` and write it to `path`; fields of the key and the signature are added here."""
    body = {**body, "key_sha256": signer.fingerprint}
    signature = base64.b64encode(signer.sign(canonical(body))).decode("ascii")
    write_json(path, {**body, "signature": signature})
