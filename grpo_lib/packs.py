"""Rule packs: one YAML file per jurisdiction, our reading of its law, kept as data.

A pack holds article numbers and our paraphrase in both languages; no sentence of a law stands in it. What was not
verified is null, and null is printed as "not verified" and denies at the gate: it never means that there is no duty.
`compliance/schemas/rule-pack.schema.json` says what a pack must hold; an organisation's own packs lie in
`governance/rules/` and take the place of shipped ones of the same id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import yaml

from compliance import path as data_path
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.pack_text import explain
from grpo_lib.runfolder import sha256

__all__ = ["Pack", "PackError", "digest", "explain", "known", "load", "load_all", "load_file"]

_LARGEST_BYTES = 1 << 20
# An id becomes a file's name, so nothing else may name a pack. The schema asks for the same form.
_ID = re.compile(r"[a-z]{2}(-[a-z]+)?")
# Faults of one field: line (from 1), field, what is wrong.
Faults = list[tuple[int, str, str]]


class PackError(WrongInput):
    """A pack that cannot be used; names file, line and field of every fault."""


@dataclass(frozen=True)
class Pack:
    """One rule pack. Its keys are attributes, all the way down: `pack.personal_data_law.breach.authority_hours`."""

    raw: bytes = field(repr=False)
    values: dict[str, Any] = field(repr=False)
    digest: str

    def __getattr__(self, name: str) -> Any:
        try:
            return _attributes(object.__getattribute__(self, "values")[name])
        except KeyError:
            raise AttributeError(name) from None

    def to_dict(self) -> dict[str, Any]:
        """The pack as plain data, a copy."""
        return json.loads(json.dumps(self.values))


def load(pack_id: str, extra: Path | None = None) -> Pack:
    """A pack by its id; one in the folder `extra` comes before the shipped one.

    Raises:
        PackError: there is none of this id, or it does not hold to the schema.
    """
    for folder in (extra, data_path("rules")) if _ID.fullmatch(pack_id) else ():
        path = folder / f"{pack_id}.yaml" if folder is not None else None
        if path is not None and path.is_file():
            return load_file(path)
    raise PackError(
        ar=f"لا توجد حزمة قواعد باسم {isolate(pack_id)}. المتاح: {isolate(', '.join(known(extra)))}. لكتابة حزمة: انسخ حزمة قريبة من "
        f"{isolate('compliance/rules/')} إلى {isolate(f'governance/rules/{pack_id}.yaml')} واملأها وفق "
        f"{isolate('compliance/schemas/rule-pack.schema.json')}، واترك ما لم تتحقق منه {isolate('null')}.",
        en=f"No pack: {pack_id}. There are: {', '.join(known(extra))}. How to write one: copy a similar pack from "
        f"compliance/rules/ to governance/rules/{pack_id}.yaml, fill it in after "
        "compliance/schemas/rule-pack.schema.json, and leave null what you have not verified.",
    )


def load_all(extra: Path | None = None) -> list[Pack]:
    """Every pack, by id."""
    return [load(pack_id, extra) for pack_id in known(extra)]


def known(extra: Path | None = None) -> list[str]:
    """Ids of all packs, shipped and own."""
    folders = [data_path("rules"), *([extra] if extra is not None else [])]
    return sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})


def digest(pack: Pack) -> str:
    """SHA-256 of the pack's file, which a review names."""
    return pack.digest


def load_file(path: Path) -> Pack:
    """A pack from one file.

    Raises:
        PackError: every fault at once, each with its line and field.
    """
    try:
        raw = path.read_bytes()
        if len(raw) > _LARGEST_BYTES:
            raise ValueError("larger than 1 MiB")
        # A few aliases of aliases unfold to more than any memory holds.
        if any(isinstance(one, yaml.AliasEvent) for one in yaml.parse(raw, Loader=_Safe)):
            raise ValueError("aliases are not accepted")
        node = yaml.compose(raw, Loader=_Safe)
        values = _Loader(raw).get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _fault(path, [(line, "-", str(error.problem))]) from None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise _fault(path, [(1, "-", str(error).splitlines()[0])]) from None
    # A name that stands twice would let a reader see one value and the gate take the other.
    faults = [*_twice(node), *_schema_faults(node, values)]
    if not faults:
        faults = _inner_faults(node, values, path.stem)
    if faults:
        raise _fault(path, sorted(faults))
    return Pack(raw, values, sha256(raw))


# The C parser where it was built: a pack is read many times.
_Safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):
    """Dates stay text: a pack is compared and printed as it was written."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Safe.yaml_implicit_resolvers.items()
}


@cache
def _validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(data_path("schemas", "rule-pack.schema.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema)


def _attributes(value: Any) -> Any:
    """Objects by attribute, except texts in two languages, which stay dicts keyed by language."""
    if isinstance(value, dict):
        if set(value) == {"ar", "en"}:
            return dict(value)
        return SimpleNamespace(**{key: _attributes(one) for key, one in value.items()})
    return tuple(_attributes(one) for one in value) if isinstance(value, list) else value


def _line(node: yaml.Node, path: list[Any]) -> int:
    """Line (from 1) at which the field stands, or where it would have to."""
    for part in path:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next((value for key, value in node.value if key.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = node.value[part]
        if found is None:
            break
        node = found
    return node.start_mark.line + 1 if node is not None else 1


def _name(path: list[Any]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".") or "-"


def _twice(node: yaml.Node | None, above: tuple[Any, ...] = ()) -> Faults:
    """Names that stand more than once in one mapping; YAML itself keeps the last and says nothing."""
    faults: Faults = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                faults.append((key.start_mark.line + 1, _name([*above, name]), "stands twice"))
            seen.add(name)
            faults += _twice(value, (*above, name))
    elif isinstance(node, yaml.SequenceNode):
        for place, value in enumerate(node.value):
            faults += _twice(value, (*above, place))
    return faults


def _schema_faults(node: yaml.Node, values: Any) -> Faults:
    """What the schema says against the values; of alternatives, what is wrong with the one that was meant.

    "Not valid under any of the given schemas" helps nobody to mend a file.
    """

    def telling(error: jsonschema.ValidationError) -> Iterator[jsonschema.ValidationError]:
        meant = [one for one in error.context or () if one.validator != "type"]
        for one in meant:
            yield from telling(one)
        if not meant:
            yield error

    faults: Faults = []
    for error in (one for whole in _validator().iter_errors(values) for one in telling(whole)):
        place, message = list(error.absolute_path), error.message
        short = message if len(message) <= 160 else message[:159] + "…"
        faults.append((_line(node, place), _name(place), short))
    return faults


def _inner_faults(node: yaml.Node, values: dict[str, Any], stem: str) -> Faults:
    """What a schema cannot ask: the file's own name, days that exist, ids that stand once.

    Evidence and overrides name conditions and rules by id, so an id that stands twice would let one paper serve two.
    """

    def fault(place: list[Any], message: str) -> tuple[int, str, str]:
        return _line(node, place), _name(place), message

    faults: Faults = []
    if values["id"] != stem:
        faults.append(fault(["id"], f"{values['id']!r} is not the file's name {stem!r}"))
    for place in (["verified_on"], ["arabic_review", "date"]):
        day = values[place[0]] if len(place) == 1 else values[place[0]][place[1]]
        try:
            date.fromisoformat(day or "2000-01-01")
        except ValueError:
            faults.append(fault(place, f"{day!r} is no day of the calendar"))
    for named in _ids(values):
        seen: set[str] = set()
        for place, name in named:
            if name in seen:
                faults.append(fault(place, f"{name!r} stands twice"))
            seen.add(name)
    return faults


def _ids(values: dict[str, Any]) -> Iterator[list[tuple[list[Any], str]]]:
    """Ids that must differ from each other, with their places: instruments, hosting rules, all conditions."""
    rules = ["government_hosting", "rules"]
    hosting = values["government_hosting"]["rules"]
    yield [(["instruments", at, "id"], one["id"]) for at, one in enumerate(values["instruments"])]
    yield [([*rules, at, "id"], one["id"]) for at, one in enumerate(hosting)]
    lists = [(["personal_data_law", "transfer"], values["personal_data_law"]["transfer"])]
    lists += [([*rules, at], one) for at, one in enumerate(hosting)]
    yield [
        ([*place, "conditions", at, "id"], one["id"])
        for place, rule in lists
        for at, one in enumerate(rule["conditions"])
    ]


def _fault(path: Path, faults: list[tuple[int, str, str]]) -> PackError:
    places = [(f"{path.name}:{line}: {name}", message) for line, name, message in faults]
    return PackError(
        ar=f"حزمة القواعد {isolate(path.name)} غير صالحة. صحّح كل حقل وفق {isolate('compliance/schemas/rule-pack.schema.json')}:\n"
        + "\n".join(f"  • {isolate(place)}: {isolate(message)}" for place, message in places),
        en=f"The rule pack {path.name} is not valid. Correct each field after compliance/schemas/rule-pack.schema.json:\n"
        + "\n".join(f"  • {place}: {message}" for place, message in places),
    )
