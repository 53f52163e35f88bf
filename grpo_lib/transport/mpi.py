"""Transport `mpi`: the learner is rank 0 of a communicator, workers are the other ranks.

The handshake, the sealing and the session are those of every other transport. What differs: MPI knows no time-outs, so
every request is started and then tested until its deadline; and it knows no connections, so an empty message says that
this end is closed. Each session has tags of its own, so nothing of an earlier session is taken for this one's.

Measured with Open MPI 5.0.11: a rank that was killed raises on its own links only when the job was started with
`--with-ft ulfm`; `mpiexec` then ends with 0 whatever happened, so a run is judged by its manifest.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time

from mpi4py import MPI

from grpo_lib.transport import JoinRefused, LearnerUnreachable, OpenedGroup, Refused
from grpo_lib.transport.frames import HEADER, SessionKeys
from grpo_lib.transport.handshake import (
    MAX_MESSAGE_BYTES,
    HandshakeError,
    check_answer,
    check_hello,
    check_secret,
    check_worker_id,
    make_answer,
    make_hello,
    make_refusal,
)
from grpo_lib.transport.learner_endpoint import Admit, SessionLearner
from grpo_lib.transport.session import MAX_FRAME_BYTES, WireError
from grpo_lib.transport.worker_endpoint import SessionWorker

LEARNER_RANK = 0
_KNOCK, _ANSWER, _FIRST_TAG = 1, 2, 16
# Tests follow each other closely at first and then ever more slowly, so that a link at rest costs next to nothing.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0001, 0.003
_KNOCK_POLL_S = 0.02

# Buffers of requests that nobody will complete: MPI may still write into them, so they must outlive the request.
_abandoned: list[tuple[MPI.Request, object]] = []


class MpiWire:
    """Two tags between two ranks as a `session.Wire`."""

    def __init__(self, comm: MPI.Intracomm, peer: int, outgoing: int, incoming: int) -> None:
        self._comm, self._peer, self._outgoing, self._incoming = comm, peer, outgoing, incoming
        self._closed = threading.Event()

    def send(self, piece: memoryview, timeout: float) -> None:
        self._complete(
            lambda: self._comm.Isend([piece, MPI.BYTE], self._peer, self._outgoing), piece, timeout
        )

    def receive_into(self, room: memoryview, timeout: float) -> None:
        status = self._complete(
            lambda: self._comm.Irecv([room, MPI.BYTE], self._peer, self._incoming), room, timeout
        )
        count = status.Get_count(MPI.BYTE)
        if count == 0:
            raise WireError("connection closed")
        if count < HEADER.size:  # too short to be a frame: must not be taken for the one before it
            room[count : HEADER.size] = bytes(HEADER.size - count)

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(MPI.Exception):
            _abandoned.append((self._comm.Isend([b"", MPI.BYTE], self._peer, self._outgoing), b""))

    def _complete(self, start, buffer: object, timeout: float) -> MPI.Status:
        if self._closed.is_set():
            raise WireError("connection closed")
        status, request = MPI.Status(), None
        try:
            request = start()
            deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE_S
            while not request.Test(status):
                if time.monotonic() > deadline:
                    raise WireError("silent")
                if self._closed.wait(pause):
                    raise WireError("connection closed")
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            return status
        except MPI.Exception as error:  # the peer's process is gone (ULFM), or more came than the room holds
            raise WireError("connection closed") from error
        except WireError:
            with contextlib.suppress(MPI.Exception):
                request.Cancel()
            _abandoned.append((request, buffer))
            raise


class MpiLearner(SessionLearner):
    """The learner's endpoint over MPI; for rank 0. Others: see `gloo.GlooLearner`.

    Args:
        comm: The communicator; the whole job by default.
    """

    def __init__(
        self,
        *,
        run_id: str,
        secret: bytes,
        comm: MPI.Intracomm = MPI.COMM_WORLD,
        heartbeat_s: float,
        deadline_s: float,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        welcome: dict,
        admit: Admit,
    ) -> None:
        super().__init__(
            heartbeat_s=heartbeat_s,
            deadline_s=deadline_s,
            max_frame_bytes=max_frame_bytes,
            welcome=welcome,
            admit=admit,
        )
        self._run_id, self._secret, self._comm = run_id, check_secret(secret), comm
        self.address = f"mpi:{comm.Get_rank()}"
        self._slots = itertools.count(1)
        self._nonces: set[str] = set()
        self._closing = threading.Event()
        self._acceptor = threading.Thread(target=self._accept_loop, name="mpi-accept", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """See `transport.LearnerEndpoint`."""
        self._closing.set()
        self._acceptor.join()
        super().close()

    def _accept_loop(self) -> None:
        """Look at each rank by itself: once a rank has failed, a look at any source fails too."""
        status = MPI.Status()
        while not self._closing.wait(_KNOCK_POLL_S):
            for rank in range(self._comm.Get_size()):
                with contextlib.suppress(MPI.Exception):
                    if self._comm.Iprobe(source=rank, tag=_KNOCK, status=status):
                        raw = bytearray(status.Get_count(MPI.BYTE))
                        self._comm.Recv([raw, MPI.BYTE], source=rank, tag=_KNOCK)
                        self._answer(rank, bytes(raw[:MAX_MESSAGE_BYTES]))

    def _answer(self, rank: int, raw: bytes) -> None:
        try:
            hello = check_hello(raw, self._secret, self._run_id)
        except HandshakeError as error:
            if error.hello is not None:
                self._say(rank, make_refusal(self._secret, error.reason, error.hello))
            self._put(Refused(error.hello.worker_id if error.hello else "unknown", error.reason))
            return
        if hello.nonce in self._nonces:
            self._put(Refused(hello.worker_id, "replayed hello"))
            return
        self._nonces.add(hello.nonce)
        slot = next(self._slots)
        answer, keys = make_answer(self._secret, self._run_id, hello, slot)
        self._say(rank, answer)
        down, up = _tags(slot)
        opened = OpenedGroup(slot, "mpi", ("learner", hello.worker_id), "ranks")
        self._open(hello.worker_id, slot, MpiWire(self._comm, rank, down, up), keys, opened)

    def _say(self, rank: int, answer: bytes) -> None:
        _abandoned.append((self._comm.Isend([answer, MPI.BYTE], rank, _ANSWER), answer))


class MpiWorker(SessionWorker):
    """The worker's endpoint over MPI; nothing happens before `join`. See `MpiLearner`."""

    def __init__(
        self,
        *,
        run_id: str,
        secret: bytes,
        worker_id: str,
        comm: MPI.Intracomm = MPI.COMM_WORLD,
        heartbeat_s: float,
        deadline_s: float,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_unacknowledged: int = 2,
        submit_deadline_s: float = 600.0,
    ) -> None:
        super().__init__(
            address=f"mpi:{LEARNER_RANK}",
            heartbeat_s=heartbeat_s,
            deadline_s=deadline_s,
            max_frame_bytes=max_frame_bytes,
            max_unacknowledged=max_unacknowledged,
            submit_deadline_s=submit_deadline_s,
        )
        self._run_id, self._secret, self._worker_id = run_id, check_secret(secret), check_worker_id(worker_id)
        self._comm = comm

    def _connect(self) -> tuple[MpiWire, SessionKeys, str]:
        started = time.monotonic()
        raw, hello = make_hello(self._secret, self._run_id, self._worker_id, "rank")
        room = bytearray(MAX_MESSAGE_BYTES)
        try:
            knock = self._comm.Isend([raw, MPI.BYTE], LEARNER_RANK, _KNOCK)
            answer, status = self._comm.Irecv([room, MPI.BYTE], LEARNER_RANK, _ANSWER), MPI.Status()
            _abandoned.append((knock, raw))
            while not answer.Test(status):
                waited = time.monotonic() - started
                if waited > self._deadline_s:
                    answer.Cancel()
                    _abandoned.append((answer, room))
                    raise LearnerUnreachable(self.address, waited, "the request was not answered")
                time.sleep(_LONGEST_PAUSE_S)
            said = bytes(room[: status.Get_count(MPI.BYTE)])
            keys, slot = check_answer(said, self._secret, self._run_id, hello)
        except HandshakeError as error:
            raise JoinRefused(self.address, error.reason) from None
        except MPI.Exception as error:
            raise LearnerUnreachable(self.address, time.monotonic() - started, str(error)) from error
        down, up = _tags(slot)
        return MpiWire(self._comm, LEARNER_RANK, up, down), keys, f"{self._worker_id}-{os.getpid()}-{slot}"


def _tags(slot: int) -> tuple[int, int]:
    """Tags of one session: from the learner down, from the worker up."""
    return _FIRST_TAG + 2 * slot, _FIRST_TAG + 2 * slot + 1
