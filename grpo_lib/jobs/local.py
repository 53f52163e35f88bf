"""Back-end `local`: learner and workers as processes of this machine.

Each process has its own log file, gets the join secret through its environment, and holds a pipe to its launcher as
a lifeline: when the launcher dies, however it dies, its processes end too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from grpo_lib import keys, offline
from grpo_lib.errors import EXIT_COMPLETE, EXIT_INTERRUPTED, FOR_EXIT_CODE, Interrupted
from grpo_lib.ledger import Ledger
from grpo_lib.process import NO_LONGER_NEEDED, SECRET_VARIABLE, join_secret
from grpo_lib.runfolder import RunFolder
from grpo_lib.settings import RunSettings
from grpo_lib.vault import KEY_VARIABLE, RunKey

_POLL_S = 0.2
# A learner that is asked to end finishes its step and writes a checkpoint.
_GRACE_S = 60.0


@dataclass
class _Child:
    role: str
    worker_id: str
    process: subprocess.Popen
    restarts: int = 0


class LocalJob:
    """The processes of one run on this machine.

    Args:
        run: the run folder; settings.json must be there.
        listener: the socket that the learner takes over.
        key: under which the learner keeps rollouts; workers do not get it.
    """

    def __init__(
        self, run: RunFolder, settings: RunSettings, ledger: Ledger, listener: socket.socket, key: RunKey
    ):
        self.run = run
        self.settings = settings
        self.ledger = ledger
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._key = key
        # Given from outside where workers on other machines are to join; else nobody else needs to know it.
        self._secret = join_secret().decode() if SECRET_VARIABLE in os.environ else secrets.token_hex(32)
        self._children: list[_Child] = []

    def launch(self) -> None:
        """Start all processes."""
        self.run.transport.unlink(missing_ok=True)
        self._children.append(self._start("learner", "", 0))
        self._listener.close()  # the learner holds it now; while both did, its death would leave workers waiting
        for number in range(self.settings.workers):
            self._children.append(self._start("worker", f"worker-{number}", 0))

    def watch(self, tick: Callable[[], None]) -> None:
        """Wait for the learner, starting fallen workers again; `tick` is called several times a second.

        Raises:
            GrpoError: of the kind that the learner's exit code stands for.
        """
        learner = self._children[0]
        released = False
        while learner.process.poll() is None:
            tick()
            if not released and self.run.transport.is_file():
                # Training is over and the learner evaluates: a worker that was started late would knock in vain.
                for child in self._children[1:]:
                    self._release(child)
                released = True
            for child in [c for c in self._children[1:] if c.process.poll() is not None]:
                self._ended(child)
                self._children.remove(child)
                fell = child.process.returncode != EXIT_COMPLETE and not released
                if fell and child.restarts < self.settings.max_worker_restarts:
                    self._children.append(self._start("worker", child.worker_id, child.restarts + 1))
            time.sleep(_POLL_S)
        tick()
        self._children.remove(learner)
        self._ended(learner)
        code = learner.process.returncode
        if code == EXIT_COMPLETE:
            return
        tail = self._log("learner").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-12:]
        raise FOR_EXIT_CODE.get(code, Interrupted)(
            ar=f"انتهى المتعلِّم برمز {code}. آخر سجله:\n" + "\n".join(tail),
            en=f"The learner ended with code {code}. The run id {self.run.run_id} can be resumed; its log: logs/learner.log",
        )

    def close(self) -> None:
        """End whatever still runs: the learner first and gently, so that it can write its checkpoint."""
        for child in sorted(self._children, key=lambda child: child.role != "learner"):
            if child.role == "learner":
                child.process.terminate()  # it needs the workers for the step it is in
            else:
                self._release(child)
            try:
                child.process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            self._ended(child)
        self._children.clear()

    @staticmethod
    def _release(worker: _Child) -> None:
        with contextlib.suppress(OSError):  # it has gone by itself
            worker.process.stdin.write(NO_LONGER_NEEDED)
            worker.process.stdin.flush()

    def _start(self, role: str, worker_id: str, restarts: int) -> _Child:
        settings = self.settings
        if role == "learner":
            handed_on = (self._listener.fileno(),)
            command = ["grpo_lib.learner", "--run-dir", str(self.run.root), "--port", str(self.port)]
            command += ["--listen-fd", str(handed_on[0])]
            threads = settings.learner_threads
        else:
            handed_on = ()
            threads = settings.worker_threads
            command = [
                "grpo_lib.worker",
                "--run-id",
                settings.run_id,
                "--address",
                f"{settings.bind}:{self.port}",
            ]
            command += ["--worker-id", worker_id, "--model", settings.model, "--bind", settings.bind]
            command += ["--threads", str(threads)]
            command += ["--heartbeat-s", str(settings.heartbeat_s), "--deadline-s", str(settings.deadline_s)]
        # The passphrase opens keys that no learner or worker needs.
        kept_back = (keys.PASSPHRASE_VARIABLE, KEY_VARIABLE)
        environment = {
            **{name: value for name, value in os.environ.items() if name not in kept_back},
            SECRET_VARIABLE: self._secret,
            "OMP_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONUNBUFFERED": "1",
            **offline.environment(settings.model, settings.bind),
        }
        if role == "learner":
            environment[KEY_VARIABLE] = self._key.secret.hex()
        self.run.logs.mkdir(parents=True, exist_ok=True)
        with self._log(worker_id or role).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command, "--lifeline"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=handed_on,
            )
        self.ledger.append(
            "process_started", role=role, worker_id=worker_id, pid=process.pid, threads=threads
        )
        return _Child(role, worker_id, process, restarts)

    def _log(self, name: str):
        return self.run.logs / f"{name}.log"

    def _ended(self, child: _Child) -> None:
        with contextlib.suppress(OSError):
            child.process.stdin.close()
        code = child.process.returncode
        self.ledger.append(
            "process_ended",
            role=child.role,
            worker_id=child.worker_id,
            pid=child.process.pid,
            exit_code=code if code >= 0 else EXIT_INTERRUPTED,
            signal=signal.Signals(-code).name if code < 0 else "",
        )
