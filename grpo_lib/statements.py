"""What only people know about a run, stated after it: who answers for it, why, where, and how long it is kept.

A run may start without these; its reports stay drafts until they are there. They are kept beside the settings, never
written over them, so that a report can show what was known at the launch and what was added, and when.
"""

from __future__ import annotations

import json
from typing import Any

from grpo_lib import drafts
from grpo_lib import settings as run_settings
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.ledger import Ledger
from grpo_lib.runfolder import RunFolder, file_sha256, write_json


def record(run: RunFolder, given: dict[str, str]) -> bool:
    """Add statements to a run that has ended or stands still; empty values state nothing. True when something was added.

    Raises:
        WrongInput: there is no such run, a value is malformed, or it contradicts what was stated before.
    """
    given = {name: value.strip() for name, value in given.items() if value.strip()}
    if not given:
        return False
    stored = run_settings.read(run.settings)
    run_settings.load(given)  # the same rules as for a launch, all faults at once
    before = read(run) | {name: getattr(stored, name) for name in drafts.STATED if getattr(stored, name)}
    changed = [name for name in given if before.get(name, given[name]) != given[name]]
    if changed:
        ar = "\n".join(f"  • {isolate(f'{name}: {before[name]!r} → {given[name]!r}')}" for name in changed)
        en = "\n".join(f"  • {name}: {before[name]!r} → {given[name]!r}" for name in changed)
        raise WrongInput(
            ar=f"ذُكر هذا من قبل بقيمة أخرى، وما سُجّل لا يُستبدل:\n{ar}",
            en=f"This was stated before with another value, and what is recorded is not replaced:\n{en}",
        )
    new = {name: value for name, value in given.items() if name not in before}
    if not new:
        return False
    with run.locked():
        write_json(run.statements, read(run) | new)
        ledger = Ledger(run.ledger, run.run_id, "report")
        ledger.append("stated", fields=sorted(new), statements_sha256=file_sha256(run.statements))
    return True


def read(run: RunFolder) -> dict[str, Any]:
    """Statements added after the launch."""
    if not run.statements.is_file():
        return {}
    try:
        found = dict(json.loads(run.statements.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise WrongInput(
            ar=f"تعذّرت قراءة {isolate(run.statements.name)}: {isolate(error)}. استعده من نسخة أو احذفه واذكر البيانات من جديد.",
            en=f"{run.statements.name} cannot be read: {error}. Restore it from a copy, or delete it and state the facts again.",
        ) from None
    return {name: value for name, value in found.items() if name in drafts.STATED}
