"""From settings to a finished run: checks, gate, processes, and one record of how it ended.

The launching process does not import torch; it stays light beside the processes that do the work.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable
from typing import Any

import psutil

from grpo_lib import __version__, checkpoints, preflight, residency
from grpo_lib.errors import EXIT_COMPLETE, STATUS, GrpoError, Interrupted, Refused, WrongInput, isolate
from grpo_lib.jobs.local import LocalJob
from grpo_lib.ledger import Ledger
from grpo_lib.runfolder import RunFolder, file_sha256, write_json
from grpo_lib.settings import RunSettings, read
from grpo_lib.tasks import load_task

# These may differ when a run is resumed: they change how fast it goes and who is told, not what is computed.
_MAY_CHANGE = {
    "runs_dir",
    "workers",
    "bind",
    "port_first",
    "port_last",
    "heartbeat_s",
    "deadline_s",
    "max_worker_restarts",
    "retention_until",
}
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


def train(settings: RunSettings, tick: Callable[[], None] = lambda: None) -> RunFolder:
    """Run or resume training to its end.

    Args:
        settings: from `settings.load`.
        tick: called several times a second while the processes work; for progress displays.

    Raises:
        GrpoError: the run did not complete; the ledger's last `run_ended` says the same.
    """
    run = RunFolder(settings.run_dir)
    with preflight.check(settings) as listener, run.locked():
        _same_run(run, settings)
        if run.evaluation.is_file():
            return run  # complete already: resuming it is a no-op, and its record stays as it is
        write_json(run.settings, settings.model_dump())
        ledger = Ledger(run.ledger, run.run_id, "launcher")
        outcome: GrpoError | None = None
        try:
            _open(run, settings, ledger)
            job = LocalJob(run, settings, ledger, listener)
            try:
                job.launch()
                job.watch(tick)
            finally:
                job.close()
        except GrpoError as error:
            outcome = error
            raise
        except KeyboardInterrupt:
            outcome = Interrupted(
                ar=f"أوقف المستخدم التشغيل؛ استأنفه بالمعرّف {isolate(run.run_id)}.",
                en=f"Stopped by the user; resume with run id {run.run_id}.",
            )
            raise outcome from None
        finally:
            code = outcome.exit_code if outcome else EXIT_COMPLETE if run.evaluation.is_file() else 1
            ledger.append("run_ended", status=STATUS.get(code, "failed"), exit_code=code)
    return run


def _open(run: RunFolder, settings: RunSettings, ledger: Ledger) -> None:
    """Record what starts, on what, with which data, and ask the gate.

    Raises:
        Refused: the gate denied the run; decision and refusal are recorded.
    """
    resume = checkpoints.newest_sound(run)
    ledger.append(
        "run_started",
        settings_sha256=file_sha256(run.settings),
        code_version=__version__,
        versions={
            "python": platform.python_version(),
            **{n: importlib.metadata.version(n) for n in _VERSIONS},
        },
        machine=_machine(),
        resumed_from=resume.step if resume else None,
    )
    write_json(run.data_manifest, load_task(settings.task, settings.seed).describe())
    ledger.append("data_declared", data_manifest_sha256=file_sha256(run.data_manifest))
    decision = residency.decide(settings)
    write_json(run.decision, decision)
    ledger.append("gate_decided", verdict=decision["verdict"], decision_sha256=decision["digest"])
    if decision["verdict"] != "allow":
        raise Refused(
            ar="رفضت بوابة الإقامة هذا التشغيل:\n"
            + "\n".join(f"  • {r['rule']}: {r['ar']}" for r in decision["reasons"]),
            en="The residency gate refused this run:\n"
            + "\n".join(f"  • {r['rule']}: {r['en']}" for r in decision["reasons"]),
        )


def _same_run(run: RunFolder, settings: RunSettings) -> None:
    """A run id names one set of settings; resuming with others would make two runs of one."""
    if not run.settings.is_file():
        return
    stored = read(run.settings)
    changed = [
        name
        for name in RunSettings.model_fields
        if name not in _MAY_CHANGE and getattr(stored, name) != getattr(settings, name)
    ]
    if changed:
        ar = "\n".join(
            f"  • {isolate(f'{n}: {getattr(stored, n)!r} → {getattr(settings, n)!r}')}" for n in changed
        )
        en = "\n".join(f"  • {n}: {getattr(stored, n)!r} → {getattr(settings, n)!r}" for n in changed)
        raise WrongInput(
            ar=f"التشغيل {isolate(run.run_id)} موجود بإعدادات أخرى. استخدم الإعدادات نفسها أو run_id جديدًا:\n{ar}",
            en=f"Run {run.run_id} exists with other settings. Use the same ones, or a new run_id:\n{en}",
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
