"""Starting, watching and ending the processes of small runs, as a user or a service manager would."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import psutil

from grpo_lib.ledger import read_events
from grpo_lib.runfolder import RunFolder

ROOT = Path(__file__).parents[2]

# The smallest run that still has several steps, checkpoints, snapshots and leases.
SMALL: dict[str, Any] = {
    "steps": 9,
    "prompts_per_step": 4,
    "num_generations": 4,
    "groups_per_lease": 2,
    "eval_questions": 16,
    "eval_samples": 2,
    "checkpoint_every": 3,
    "snapshot_every": 3,
    "heartbeat_s": 1,
    "deadline_s": 30,
    "port_first": 29720,
    "port_last": 29799,
}
_KEYS = tempfile.TemporaryDirectory(prefix="grpo-keys-")
# How long a whole small run may take when other work shares the machine.
PATIENCE_S = 280.0


@dataclass
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class CompleteRun:
    """A run that the wrapper brought to its end, and what was seen from outside."""

    run: RunFolder
    cwd: Path
    env: dict[str, str]
    outcome: Outcome
    user: str  # name of the user whose home directory the run had
    secret: str  # join secret, read from the environment of the learner process
    captured: list[bytes] | None  # bytes of each flow over the run's link; None without the right to capture


def environment(home: Path | None = None) -> dict[str, str]:
    """The environment of a command; with `home`, of a user whose name occurs nowhere else."""
    # The sources are what is tested, wherever the command is run from.
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": matplotlib.get_configdir()}
    env.pop("GRPO_JOIN_SECRET", None)
    # Keys of tests are not the keys of whoever runs them; a user with a home of their own keeps them there.
    env.pop("GRPO_KEYS_DIR", None)
    if home is not None:
        env |= {"HOME": str(home), "USER": home.name, "LOGNAME": home.name}
    else:
        env["GRPO_KEYS_DIR"] = _KEYS.name
        env["GRPO_NO_PDF"] = "1"  # one run with PDFs is enough, and each costs half a minute
    return env


class Command:
    """`python -m MODULE ARGUMENTS` under way in `cwd`; its output goes to files, so that no pipe can fill up."""

    def __init__(self, cwd: Path, *arguments: str, env: dict[str, str] | None = None):
        self._out, self._err = cwd.parent / f"{cwd.name}.out", cwd.parent / f"{cwd.name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = psutil.Popen(
                [sys.executable, "-m", *arguments],
                cwd=cwd,
                env=env or environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def wait(self, timeout: float = PATIENCE_S) -> Outcome:
        code = self.process.wait(timeout)
        return Outcome(code, *(path.read_text(encoding="utf-8") for path in (self._out, self._err)))

    def stop(self) -> None:
        """End it and everything it started, so that a failed test leaves nothing behind."""
        family = [self.process, *descendants(self.process)]
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


@contextmanager
def command(cwd: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Command]:
    """A command that is gone when the block ends."""
    cwd.mkdir(parents=True, exist_ok=True)
    started = Command(cwd, *arguments, env=env)
    try:
        yield started
    finally:
        started.stop()


def wrapper_arguments(**parameters: Any) -> list[str]:
    """Arguments of `python -m` for the production wrapper."""
    return [
        "grpo_lib.run",
        *(word for name, value in parameters.items() for word in ("-p", name, str(value))),
    ]


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Its living children and theirs."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def alive(processes: list[psutil.Process], within_s: float) -> list[psutil.Process]:
    """Those that still run after at most `within_s` seconds."""
    _, left = psutil.wait_procs(processes, timeout=within_s)
    return [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


def module_of(process: psutil.Process) -> str:
    """`grpo_lib.worker` of `python -m grpo_lib.worker ...`; empty for anything else."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    return words[words.index("-m") + 1] if "-m" in words[:-1] else ""


def named(processes: list[psutil.Process], module: str) -> list[psutil.Process]:
    return [process for process in processes if module_of(process) == module]


def events(run: RunFolder, name: str | None = None) -> list[dict[str, Any]]:
    """Ledger events of a run, all or those of one name."""
    return [e for e in read_events(run.ledger) if name is None or e["event"] == name]


def wait_until(condition: Callable[[], Any], running: Command, what: str, timeout: float = PATIENCE_S) -> Any:
    """The first true value of `condition`, looked for often while `running` runs."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        if running.process.poll() is not None:
            outcome = running.wait(0)
            raise AssertionError(f"ended with {outcome.code} before {what}:\n{outcome.out}\n{outcome.err}")
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout:.0f} s: {what}")


def launches(run: RunFolder) -> list[list[dict[str, Any]]]:
    """Ledger events of each launch of the run, in order."""
    parts: list[list[dict[str, Any]]] = []
    for event in events(run):
        if event["event"] == "run_started":
            parts.append([])
        if parts:
            parts[-1].append(event)
    return parts


def wait_for_step(run: RunFolder, launch: int, step: int, running: Command) -> None:
    """Until an optimizer step of at least this number is in the ledger of this launch (from 1) of the run."""

    def reached() -> bool:
        recorded = launches(run)[launch - 1 :]
        return any(e["event"] == "step" and e["data"]["step"] >= step for part in recorded for e in part)

    wait_until(reached, running, f"step {step} of launch {launch}")
