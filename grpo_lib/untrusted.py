"""Reading the customer's own files: whatever they hold, the outcome is a checked value or a named fault, never a crash.

The governance folder is written by hand and copied between machines, so every file of it is untrusted input. A fault
names the file and the field; it never repeats the value, which may be a person's name and would travel into reports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, StringConstraints, ValidationError

from grpo_lib.incidents import public
from grpo_lib.runfolder import sha256
from grpo_lib.sentences import Texts, say

# A form, a letter's data or a signed statement is a few lines; anything larger was not written for this.
LARGEST_BYTES = 64 * 1024


@dataclass(frozen=True)
class Fault:
    """What is wrong with a file: `kind` is `unreadable`, `missing`, `unknown` or `wrong`."""

    file: str  # relative to the governance folder
    kind: str
    field: str = ""

    @property
    def texts(self) -> Texts:
        return say(f"fault_{self.kind}", file=self.file, field=self.field)


def _clean(text: str) -> str:
    cleaned = public(text, len(text) + 1).strip()
    if not cleaned:
        raise ValueError("empty")
    return cleaned


def _day(text: str) -> str:
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        raise ValueError("not a date")
    return date.fromisoformat(text).isoformat()


def _plain_day(value: Any) -> Any:
    return value.isoformat() if type(value) is date else value  # YAML reads an unquoted date as a date


# Strict strings: YAML turns an unquoted `NO` into false and `123` into a number, and neither is guessed at.
_STRICT = StringConstraints(strict=True, min_length=1, max_length=400)
Text = Annotated[str, _STRICT, AfterValidator(_clean)]
Base64 = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9+/]{86}==$")]
Day = Annotated[str, BeforeValidator(_plain_day), _STRICT, AfterValidator(_day)]
Digest = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
Country = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z]{2}$")]

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Sound(Generic[Model]):
    """A file that holds what it should."""

    file: str  # relative to the governance folder
    sha256: str  # of its bytes
    value: dict[str, Any]  # as written
    body: Model


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no name stands twice: a reader and a signature must mean the same one."""
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def parse_json(raw: bytes) -> Any:
    return json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)


class _UniqueLoader(yaml.SafeLoader):
    """YAML without aliases (a few lines could expand to gigabytes) and without a key that stands twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [getattr(key, "value", None) for key, _ in node.value]
        if len({str(name) for name in names}) != len(names):
            raise yaml.YAMLError("a name stands twice")
        return super().construct_mapping(node, deep)


def parse_yaml(raw: bytes) -> Any:
    return yaml.load(raw.decode("utf-8"), Loader=_UniqueLoader)


def checked(
    root: Path, folder: str, pattern: str, parse: Callable[[bytes], Any], model: type[Model]
) -> tuple[list[Sound[Model]], list[Fault]]:
    """Every sound file of `root/folder` that matches, and the faults of the others.

    Args:
        root: the governance folder; names are given relative to it.
        pattern: glob of file names; other names in the folder are left alone.
        parse: from bytes to a value; any error of it is a fault.
    """
    sound, faults = [], []
    for path in sorted((root / folder).glob(pattern)):
        name = public(f"{folder}/{path.name}", 120)
        try:
            if not path.is_file() or path.stat().st_size > LARGEST_BYTES:
                raise ValueError(name)
            raw = path.read_bytes()
            value = parse(raw)
            if not isinstance(value, dict):
                raise TypeError(name)
            sound.append(Sound(name, sha256(raw), value, model.model_validate(value)))
        except ValidationError as error:
            faults += [_fault(name, one) for one in error.errors(include_url=False, include_input=False)]
        except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError):
            faults.append(Fault(name, "unreadable"))
    return sound, faults


_KINDS = {"missing": "missing", "extra_forbidden": "unknown"}


def _fault(name: str, error: Any) -> Fault:
    field = public(".".join(str(part) for part in error["loc"]) or "?", 60)
    return Fault(name, _KINDS.get(error["type"], "wrong"), field)
