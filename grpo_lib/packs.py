"""Rule packs: one YAML file per jurisdiction, our reading of its law, kept as data.

A pack holds article numbers and our paraphrase in both languages; no sentence of a law stands in it. What was not
verified is null, and null is printed as "not verified" and denies at the gate: it never means that there is no duty.
`compliance/schemas/rule-pack.schema.json` says what a pack must hold; an organisation's own packs lie in
`governance/rules/` and take the place of shipped ones of the same id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import yaml

from compliance import path as data_path
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.runfolder import sha256
from grpo_lib.wording import isolated, plain

_LARGEST_BYTES = 1 << 20


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
    for folder in (extra, data_path("rules")):
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
    faults = [
        (_line(node, list(error.absolute_path)), _name(list(error.absolute_path)), _short(error))
        for error in sorted(
            _validator().iter_errors(values), key=lambda one: [str(p) for p in one.absolute_path]
        )
    ]
    if not faults and values["id"] != path.stem:
        faults.append((_line(node, ["id"]), "id", f"{values['id']!r} is not the file's name {path.stem!r}"))
    if faults:
        raise _fault(path, faults)
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


def _short(error: jsonschema.ValidationError) -> str:
    return error.message if len(error.message) <= 160 else error.message[:159] + "…"


def _fault(path: Path, faults: list[tuple[int, str, str]]) -> PackError:
    places = [(f"{path.name}:{line}: {name}", message) for line, name, message in faults]
    return PackError(
        ar=f"حزمة القواعد {isolate(path.name)} غير صالحة. صحّح كل حقل وفق {isolate('compliance/schemas/rule-pack.schema.json')}:\n"
        + "\n".join(f"  • {isolate(place)}: {isolate(message)}" for place, message in places),
        en=f"The rule pack {path.name} is not valid. Correct each field after compliance/schemas/rule-pack.schema.json:\n"
        + "\n".join(f"  • {place}: {message}" for place, message in places),
    )


# ------------------------------------------------------------------------------------------------- read out


def explain(pack: Pack, language: str) -> str:
    """A pack read out as plain text: what it says, how sure we are, and what nobody has verified."""

    def t(key: str, **values: Any) -> str:
        return plain(key, language, **values)

    def text(one: str) -> str:
        return isolated(one) if language == "ar" else one

    def said(texts: dict[str, str] | None) -> str:
        return text(texts[language]) if texts else t("article_unverified")

    def code(value: Any) -> str:
        if value is None:
            return t("article_unverified")
        return isolate(value) if language == "ar" else str(value)

    value = pack.to_dict()
    law, hosting = value["personal_data_law"], value["government_hosting"]
    lines = [
        f"{said(value['names'])} ({code(pack.id)})",
        f"{t('confidence')}: {t('confidence_' + pack.confidence)}. {t('pack_verified_on')}: {code(pack.verified_on)}. "
        f"{t('pack_status')}: {t('status_' + pack.status) if pack.status else t('article_unverified')}.",
        t("reading_basis") + " " + t("paraphrase_explained"),
        "",
    ]
    for one in value["instruments"]:
        name = one["ar"] if language == "ar" and one["ar"] else one["en"]
        lines.append(f"- {text(name)}; {code(one['number'])}; {code(one['in_force'])}")
    for part in ("transfer", "records", "impact_assessment", "retention", "breach", "training"):
        rule = law[part]
        if rule is None:
            continue
        lines.append(
            f"\n{t('rule_' + part)} ({t('article')}: {code(rule['article'])}): {said(rule['paraphrase'])}"
        )
        if part == "breach":
            hours = rule["authority_hours"]
            lines.append("  " + (t("hours", count=hours) if hours else t("article_unverified")))
        lines += [f"  - {said(one['paraphrase'])}" for one in rule.get("conditions", [])]
    for rule in hosting["rules"]:
        lines.append(
            f"\n{said(rule['instrument'])} ({t('confidence_' + (rule['confidence'] or 'low'))}): {said(rule['paraphrase'])}"
        )
    if hosting["levels"]:
        lines += [
            f"  - {one['ar'] or one['en'] if language == 'ar' else one['en']} = {code(one['suite'])}"
            for one in hosting["levels"]
        ]
    for key in ("conflicts", "unverified"):
        title = t("conflicts_of_sources" if key == "conflicts" else "unverified_points")
        if value[key]:
            lines += ["", title + ":", *(f"  - {said(one)}" for one in value[key])]
    lines += [
        "",
        t("source") + ":",
        *(f"  - {code(one['text'])} [{code(one['basis'])}]" for one in value["sources"]),
    ]
    if not value["arabic_review"]["reviewer"]:
        lines += ["", t("unreviewed")]
    return "\n".join(lines)
