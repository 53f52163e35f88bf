"""What happens before any process starts: the run is recorded, its data are screened, and the gate decides.

Everything that the decision rests on is put into the run folder, so that a report needs nothing else: the manifest of
the data, the result of the screen, copies of the rule packs. `clearance` is asked again right before the launch.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from grpo_lib import __version__, checkpoints, gate, packages, packs, pii
from grpo_lib.errors import Refused
from grpo_lib.ledger import Ledger, read_events
from grpo_lib.runfolder import RunFolder, canonical, file_sha256, sha256, write_atomic, write_json
from grpo_lib.sentences import isolated
from grpo_lib.settings import RunSettings
from grpo_lib.tasks import Task, load_task

_VERSIONS = (
    "torch",
    "trl",
    "transformers",
    "peft",
    "accelerate",
    "datasets",
    "safetensors",
    "cryptography",
    "numpy",
)


def open_run(run: RunFolder, settings: RunSettings, ledger: Ledger) -> None:
    """Record what starts, on what, with which data; screen the data; ask the gate.

    Raises:
        Refused: the gate denied the run; decision and refusal are recorded.
    """
    resume = checkpoints.newest_sound(run)
    write_json(run.packages, {"packages": packages.installed()})
    ledger.append(
        "run_started",
        settings_sha256=file_sha256(run.settings),
        packages_sha256=file_sha256(run.packages),
        code_version=__version__,
        versions={
            "python": platform.python_version(),
            **{n: importlib.metadata.version(n) for n in _VERSIONS},
        },
        machine=_machine(),
        resumed_from=resume.step if resume else None,
    )
    task = load_task(settings.task, settings.seed, settings.canaries)
    manifest = task.describe()
    write_json(run.data_manifest, manifest)
    ledger.append("data_declared", data_manifest_sha256=file_sha256(run.data_manifest))
    screen = _screen(run, settings, task, manifest["sha256"], ledger)
    decision = gate.decide(settings, screen=screen, today=datetime.now(UTC).date())
    for pack in decision["packs"]:
        used = packs.load(pack["id"], extra=gate.own_packs(settings))
        write_atomic(run.packs / f"{pack['id']}.yaml", used.raw)
    write_json(run.decision, decision)
    ledger.append("gate_decided", verdict=decision["verdict"], decision_sha256=decision["digest"])
    if decision["verdict"] == "deny":
        ar, en = _refusal(decision)
        raise Refused(ar=ar, en=en)


def _screen(
    run: RunFolder, settings: RunSettings, task: Task, data_sha256: str, ledger: Ledger
) -> dict[str, Any]:
    """Screen the prompts that the run will train on; answers of named people stand in the governance folder."""
    rows = settings.steps * settings.prompts_per_step
    screen = pii.screen(
        (task.train_example(index).prompt for index in range(rows)),
        total=rows,
        sample=settings.pii_sample,
        seed=settings.seed,
        data_sha256=data_sha256,
    )
    answers = pii.answers(Path(settings.governance_dir), data_sha256)
    screen["unanswered"] = pii.unanswered(screen, answers)
    settled = {one["kind"] for one in screen["findings"]} - set(screen["unanswered"])
    # Roles and not names: the report is handed on.
    screen["answered"] = [
        {name: one.get(name) for name in ("kind", "answer", "role", "date")}
        for one in answers
        if one.get("kind") in settled
    ]
    write_json(run.screen, screen)
    ledger.append(
        "pii_screened",
        pii_sha256=file_sha256(run.screen),
        findings={one["kind"]: one["rows"] for one in screen["findings"]},
        unanswered=screen["unanswered"],
    )
    return screen


def _refusal(decision: dict[str, Any]) -> tuple[str, str]:
    """(Arabic, English): each rule that denied, and what would turn the decision."""
    texts = []
    for language, head, turn in (
        ("ar", "رفضت بوابة الإقامة هذا التشغيل:", "ما الذي يغيّر القرار:"),
        ("en", "The residency gate refused this run:", "What would turn the decision:"),
    ):
        said = isolated if language == "ar" else str
        denied = [one for one in decision["reasons"] if one["effect"] == "deny"]
        lines = [head, *(f"  • {said(one['rule'])}: {said(one[language])}" for one in denied)]
        if decision["remedies"]:
            lines += [turn, *(f"  • {said(one[language])}" for one in decision["remedies"])]
        if decision["nearest_allowed"]:
            lines.append(f"  → {said(decision['nearest_allowed'][language])}")
        texts.append("\n".join(lines))
    return texts[0], texts[1]


def clearance(run: RunFolder) -> None:
    """Refuse to start processes unless an allowing decision stands in the folder and its digest in the ledger.

    Raises:
        Refused: there is no decision, it was changed, it is not the last one recorded, or it denies.
    """
    try:
        decision = json.loads(run.decision.read_text(encoding="utf-8"))
        digest = sha256(canonical({name: value for name, value in decision.items() if name != "digest"}))
        allowed = decision["verdict"] in ("allow", "allow_with_conditions") and decision["digest"] == digest
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        digest, allowed = "", False
    recorded = [e["data"]["decision_sha256"] for e in read_events(run.ledger) if e["event"] == "gate_decided"]
    if not allowed or not recorded or recorded[-1] != digest:
        raise Refused(
            ar="لا يبدأ أي شيء بلا قرار مسجَّل من البوابة: القرار مفقود أو غُيّر أو ليس آخر ما سُجّل. أعد الإطلاق ليصدر قرار جديد.",
            en="Nothing starts without a recorded decision of the gate: it is missing, was changed, or is not the last one "
            "recorded. Launch again for a new decision.",
        )


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "os": f"{platform.system()} {platform.release()}",
    }


def _processor() -> str:
    """Model name of the processor, as replay needs it; `platform.processor()` is empty on many Linux systems."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
