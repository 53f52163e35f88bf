"""How the adapter of a run stands: which class it is treated as, whether it was released or purged.

The class is inherited from the data: the stricter of what settings and data manifest say. A lowering is a statement of a
named person about one adapter, by digest, signed with their own key (`lowerings/<n>.json`) and recorded in the ledger.
It counts only while all of that holds: one that is unsigned, signed by a key that nobody trusts, unknown to the ledger,
or about another adapter leaves the class where it was. Whether personal data went in is inherited too, and nothing
lowers it.

Everything is worked out anew each time; `custody.json` is what was found last, for reports, and is never believed.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field

from grpo_lib import keys
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.incidents import data_of
from grpo_lib.ledger import Ledger, check_chain, read_events
from grpo_lib.runfolder import RunFolder, canonical, file_sha256, write_json
from grpo_lib.settings import DATA_CLASSES, RunSettings, read
from grpo_lib.untrusted import Base64, Day, Digest, Sound, Text, checked, parse_json

SCHEMA = "grpo-lib/custody/1"
LOWERINGS = "lowerings"
_Class = Literal[DATA_CLASSES]


class Lowering(BaseModel):
    """A named person's statement that one adapter may be treated as a less strict class than its data."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_id: Literal["grpo-lib/lowering/1"] = Field(alias="schema")
    run_id: Text
    adapter_sha256: Digest
    from_class: _Class = Field(alias="from")
    to_class: _Class = Field(alias="to")
    by: Text
    role: Text
    reason: Text
    date: Day
    key_sha256: Digest
    signature: Base64


def newest(run: RunFolder) -> dict[str, str] | None:
    """Version and digest of the newest stored adapter, or None where there is none."""
    versions = run.adapter_versions()
    if not versions:
        return None
    folder = run.adapter(versions[-1])
    return {"version": folder.name, "sha256": file_sha256(folder / "adapter_model.safetensors")}


def of(run: RunFolder, *upcoming: dict[str, Any]) -> dict[str, Any]:
    """How the run's adapter stands, worked out anew from data, ledger, signed statements and trusted keys.

    Args:
        upcoming: events that are about to be appended to the ledger.

    Raises:
        WrongInput: settings or data manifest cannot be read.
    """
    settings, adapter = read(run.settings), newest(run)
    events = [*read_events(run.ledger), *upcoming]
    stands = inherits = _inherited(run, settings, events)
    trusted, lowered = keys.trusted(Path(settings.governance_dir)), []
    for found in _lowerings(run):
        one = found.body
        holds = (
            one.run_id == run.run_id
            and adapter is not None
            and one.adapter_sha256 == adapter["sha256"]
            and one.from_class == stands
            and looser(one.to_class, stands)
            and _recorded(found.sha256, events)
            and _signed_by(found, trusted)
        )
        shown = one.model_dump(by_alias=True, exclude={"schema_id", "run_id", "signature"})
        lowered.append({**shown, "file": found.file, "counts": holds})
        stands = one.to_class if holds else stands
    return {
        "schema": SCHEMA,
        "run_id": run.run_id,
        "adapter": adapter,
        "class": stands,
        "inherited_class": inherits,
        "personal_data": settings.personal_data,
        "state": _state(adapter, events),
        "lowered": lowered,
    }


def write(run: RunFolder) -> None:
    """Bring custody.json up to date."""
    write_json(run.custody, of(run))


def _inherited(run: RunFolder, settings: RunSettings, events: list[dict[str, Any]]) -> str:
    """The stricter of what settings and data manifest say.

    Empty, hence denied everywhere, where one of them does not say, or either file or the ledger is not as recorded:
    nobody lowers a class by editing a file.
    """
    try:
        manifest = dict(json.loads(run.data_manifest.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        name, kind = run.data_manifest.name, type(error).__name__
        raise WrongInput(
            ar=f"تعذّرت قراءة {isolate(name)} ({isolate(kind)})، فتصنيف المُهايئ مجهول. استعد الملف من نسخة احتياطية.",
            en=f"{name} cannot be read ({kind}), so the class of the adapter is unknown. Restore it from a backup.",
        ) from None
    recorded = {
        "run_started": ("settings_sha256", run.settings),
        "data_declared": ("data_manifest_sha256", run.data_manifest),
    }
    for name, (field, path) in recorded.items():
        said = [data_of(event).get(field) for event in events if event.get("event") == name]
        if said[-1:] != [file_sha256(path)]:
            return ""
    stated = [settings.data_class, manifest.get("class")]
    if not all(one in DATA_CLASSES for one in stated) or not check_chain(run.ledger).intact:
        return ""
    return max(stated, key=DATA_CLASSES.index)


def _lowerings(run: RunFolder) -> list[Sound[Lowering]]:
    """Statements in the order in which they were made; what is not one counts for nothing."""
    return checked(run.root, LOWERINGS, "*.json", parse_json, Lowering)[0]


def looser(one: str, other: str) -> bool:
    return other in DATA_CLASSES and DATA_CLASSES.index(one) < DATA_CLASSES.index(other)


def _recorded(digest: str, events: list[dict[str, Any]]) -> bool:
    return any(
        e.get("event") == "class_lowered" and data_of(e).get("statement_sha256") == digest for e in events
    )


def _signed_by(found: Sound[Lowering], trusted: dict[str, Ed25519PublicKey]) -> bool:
    key = trusted.get(found.body.key_sha256)
    if key is None:
        return False
    unsigned = {name: value for name, value in found.value.items() if name != "signature"}
    try:
        key.verify(base64.b64decode(found.body.signature, validate=True), canonical(unsigned))
    except (InvalidSignature, ValueError):
        return False
    return True


def _state(adapter: dict[str, str] | None, events: list[dict[str, Any]]) -> str:
    """`none`, `purged`, `released` once any release of this adapter was allowed, else `held`."""
    said = [(event.get("event"), data_of(event)) for event in events]
    if adapter is None:
        gone = any(name == "purged" and "adapters" in _folders(data) for name, data in said)
        return "purged" if gone else "none"
    allowed = any(
        name == "release_decided"
        and data.get("verdict") != "deny"
        and data.get("adapter_sha256") == adapter["sha256"]
        for name, data in said
    )
    return "released" if allowed else "held"


def _folders(purged: dict[str, Any]) -> list[Any]:
    what = purged.get("what")
    return [one.get("folder") for one in what if isinstance(one, dict)] if isinstance(what, list) else []


def record(run: RunFolder, event: str, **data: Any) -> None:
    """Bring custody.json to what it will be after `event`, then append the event with its digest."""
    write_json(run.custody, of(run, {"event": event, "data": data}))
    Ledger(run.ledger, run.run_id, "custody").append(event, **data, custody_sha256=file_sha256(run.custody))


def sound_adapter(run: RunFolder) -> dict[str, str]:
    """The newest adapter, if it is the one that the ledger says was published."""
    adapter = newest(run)
    if adapter is None:
        raise WrongInput(
            ar=f"لا مُهايئ في {isolate(run.run_id)}: لم يكتمل تدريبه، أو أُتلف.",
            en=f"Run {run.run_id} holds no adapter: it was not trained to its end, or was purged.",
        )
    published = {
        data_of(event).get("sha256"): data_of(event).get("version")
        for event in read_events(run.ledger)
        if event.get("event") == "adapter_published"
    }
    if published.get(adapter["sha256"]) != int(adapter["version"][1:]):
        raise WrongInput(
            ar=f"المُهايئ {isolate(adapter['version'])} ليس الذي نُشر بهذا الرقم في السجل. استعد الملف من نسخة احتياطية.",
            en=f"Adapter {adapter['version']} is not the one that the ledger says was published under this version. "
            "Restore the file from a backup.",
        )
    return adapter
