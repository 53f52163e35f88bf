"""What every transport test needs: ends that are closed in any case, and patience with a deadline.

A new transport adds a factory to `TRANSPORTS`; `test_endpoints.py` then holds it to the same contract.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

from mpi4py import MPI

from grpo_lib.transport import Event, LearnerEndpoint, WorkerEndpoint
from grpo_lib.transport.files import FilesLearner, FilesWorker
from grpo_lib.transport.gloo import GlooLearner, GlooWorker
from grpo_lib.transport.mpi import MpiLearner, MpiWorker

SECRET = b"a secret of the test, not of a run"
HEARTBEAT_S, DEADLINE_S = 0.5, 3.0
PORTS = range(29600, 29700)


class Gloo:
    """Makes both ends of one run over Gloo."""

    medium = ("gloo", "loopback")  # backend and reach, as the ledger records them

    def learner(self, **changes) -> LearnerEndpoint:
        given = dict(run_id="run", secret=SECRET, bind="127.0.0.1", ports=PORTS, welcome={"steps": 60})
        given |= dict(heartbeat_s=HEARTBEAT_S, deadline_s=DEADLINE_S, admit=lambda worker_id, info: None)
        return GlooLearner(**(given | changes))

    def worker(self, learner: LearnerEndpoint, worker_id: str, **changes) -> WorkerEndpoint:
        given = dict(run_id="run", secret=SECRET, address=learner.address, worker_id=worker_id)
        given |= dict(heartbeat_s=HEARTBEAT_S, deadline_s=DEADLINE_S)
        return GlooWorker(**(given | changes))


class Files:
    """Makes both ends of one run over a shared folder."""

    medium = ("files", "folder")

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="grpo-link-")

    def learner(self, **changes) -> LearnerEndpoint:
        given = dict(run_id="run", secret=SECRET, folder=self._folder.name, welcome={"steps": 60})
        given |= dict(heartbeat_s=HEARTBEAT_S, deadline_s=DEADLINE_S, admit=lambda worker_id, info: None)
        return FilesLearner(**(given | changes))

    def worker(self, learner: LearnerEndpoint, worker_id: str, **changes) -> WorkerEndpoint:
        given = dict(run_id="run", secret=SECRET, folder=learner.address, worker_id=worker_id)
        given |= dict(heartbeat_s=HEARTBEAT_S, deadline_s=DEADLINE_S)
        return FilesWorker(**(given | changes))


class Mpi:
    """Makes both ends of one run over MPI: both are rank 0 of a communicator of one, and talk to themselves."""

    medium = ("mpi", "ranks")

    def __init__(self) -> None:
        self._comm = MPI.COMM_SELF.Dup()  # messages of another test stay in another communicator

    def learner(self, **changes) -> LearnerEndpoint:
        given = dict(run_id="run", secret=SECRET, comm=self._comm, welcome={"steps": 60})
        given |= dict(heartbeat_s=HEARTBEAT_S, deadline_s=DEADLINE_S, admit=lambda worker_id, info: None)
        return MpiLearner(**(given | changes))

    def worker(self, learner: LearnerEndpoint, worker_id: str, **changes) -> WorkerEndpoint:
        given = dict(run_id="run", secret=SECRET, comm=self._comm, worker_id=worker_id)
        given |= dict(heartbeat_s=HEARTBEAT_S, deadline_s=DEADLINE_S)
        return MpiWorker(**(given | changes))


TRANSPORTS = {"gloo": Gloo, "files": Files, "mpi": Mpi}


class Link:
    """A transport under test; remembers what it made."""

    def __init__(self, transport) -> None:
        self._transport = transport
        self.medium = transport.medium
        self._made: list = []

    def learner(self, **changes) -> LearnerEndpoint:
        self._made.append(self._transport.learner(**changes))
        return self._made[-1]

    def worker(self, learner: LearnerEndpoint, worker_id: str, **changes) -> WorkerEndpoint:
        self._made.append(self._transport.worker(learner, worker_id, **changes))
        return self._made[-1]

    def joined(self, learner: LearnerEndpoint, worker_id: str, **changes) -> WorkerEndpoint:
        """A worker whose joining the learner has already seen."""
        worker = self.worker(learner, worker_id, **changes)
        worker.join({})
        event_of(learner, lambda event: type(event).__name__ == "Joined" and event.worker_id == worker_id)
        return worker

    def close(self) -> None:
        for end in reversed(self._made):
            end.close()


def events_until(
    learner: LearnerEndpoint, wanted: Callable[[Event], bool], timeout: float = 15.0
) -> list[Event]:
    """Receive until an event satisfies `wanted`; all events so far, the wanted one last."""
    deadline = time.monotonic() + timeout
    seen: list[Event] = []
    while time.monotonic() < deadline:
        event = learner.receive(0.1)
        if event is not None:
            seen.append(event)
            if wanted(event):
                return seen
    raise AssertionError(f"not within {timeout} s; seen: {seen}")


def event_of(learner: LearnerEndpoint, wanted: Callable[[Event], bool], timeout: float = 15.0) -> Event:
    """The first event that satisfies `wanted`."""
    return events_until(learner, wanted, timeout)[-1]
