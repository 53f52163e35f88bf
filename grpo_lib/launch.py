"""From settings to a finished run: checks, gate, processes, and one record of how it ended.

The launching process does not import torch; it stays light beside the processes that do the work.
"""

from __future__ import annotations

from collections.abc import Callable

from grpo_lib import adapter_state, keys, preflight, vault
from grpo_lib.errors import EXIT_COMPLETE, STATUS, GrpoError, Interrupted, WrongInput, isolate
from grpo_lib.jobs.local import LocalJob
from grpo_lib.ledger import Ledger
from grpo_lib.notary import Notary
from grpo_lib.observe import observed
from grpo_lib.opening import clearance, open_run
from grpo_lib.runfolder import RunFolder, write_json
from grpo_lib.settings import RunSettings, read

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
    "governance_dir",
    "signing_key",
}


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
        signer = keys.load_or_create(settings.signing_key)
        vault.check_resumable(run)
        # Where the folder lies is nobody's evidence, and its path may name users and machines.
        write_json(run.settings, settings.model_dump(exclude={"runs_dir"}))
        ledger = Ledger(run.ledger, run.run_id, "launcher")
        notary = Notary(run, signer)
        outcome: GrpoError | None = None
        try:
            open_run(run, settings, ledger)
            with observed(run, ledger):
                job = LocalJob(run, settings, ledger, listener, vault.key_for_launch(run))
                try:
                    clearance(run)
                    job.launch()
                    job.watch(tick)
                finally:
                    job.close()
            adapter_state.write(run)
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
            ledger.append(
                "run_ended",
                status=STATUS.get(code, "failed"),
                exit_code=code,
                ledger_seconds=round(ledger.seconds, 4),
                signing_seconds=round(notary.seconds, 4),
            )
            notary.close()
    return run


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
