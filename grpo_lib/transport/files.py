"""Transport `files`: a learner and its workers meet in a shared folder, with no port and no collective.

    knocks/NONCE            worker -> learner: hello          answers/NONCE        learner -> worker: answer
    links/NONCE/up/N        pieces from the worker            links/NONCE/down/N   pieces from the learner

The handshake, the sealing and the session are those of every other transport; only the wire differs. A piece is one
file with the next number: written whole, listed, read, removed. At most `_WINDOW` unread pieces lie in a direction, so
a dead reader does not fill the disk. Who can write into the folder can cut a link, as with any line; what is read there
without the join secret is sealed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable

from grpo_lib.transport import JoinRefused, LearnerUnreachable, OpenedGroup, Refused
from grpo_lib.transport.frames import HEADER, SessionKeys
from grpo_lib.transport.handshake import (
    HandshakeError,
    Hello,
    check_answer,
    check_hello,
    check_secret,
    check_worker_id,
    make_answer,
    make_hello,
    make_refusal,
)
from grpo_lib.transport.learner_endpoint import Admit, SessionLearner
from grpo_lib.transport.session import MAX_FRAME_BYTES, PIECE_BYTES, WireError
from grpo_lib.transport.store import Store, open_store
from grpo_lib.transport.worker_endpoint import SessionWorker

_WINDOW = 64  # unread pieces per direction: 64 MiB at most
_CLOSED = "closed"  # sorts behind every number
_KNOCKS_PER_ROUND = 16
_MAX_POLL_S = 0.05


class FilesWire:
    """Two folders of a store as a `session.Wire`."""

    def __init__(self, store: Store, outgoing: str, incoming: str) -> None:
        self._store, self._outgoing, self._incoming = store, outgoing, incoming
        self._sent = itertools.count()
        self._unread: set[str] = set()
        self._expected = 0
        self._closed = threading.Event()

    def send(self, piece: memoryview, timeout: float) -> None:
        if len(self._unread) >= _WINDOW:
            self._wait(self._room_left, timeout)
        name = f"{next(self._sent):012d}"
        self._do(lambda: self._store.write(f"{self._outgoing}/{name}", bytes(piece)))
        self._unread.add(name)

    def receive_into(self, room: memoryview, timeout: float) -> None:
        name = f"{self._expected:012d}"
        path = f"{self._incoming}/{name}"
        self._wait(lambda: self._listed(name), timeout)
        data = self._do(lambda: self._store.read(path))
        self._do(lambda: self._store.remove(path))
        self._expected += 1
        # What is too short to be a frame must not be taken for the one before it, of which the room still holds bytes.
        data = (data or b"")[:PIECE_BYTES].ljust(HEADER.size, b"\0")
        room[: len(data)] = data

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(OSError):  # the other end then learns it from the silence
            self._store.write(f"{self._outgoing}/{_CLOSED}", b"")

    def _room_left(self) -> bool:
        self._unread &= set(self._do(lambda: self._store.names(self._outgoing)))
        return len(self._unread) < _WINDOW

    def _listed(self, name: str) -> bool:
        names = self._do(lambda: self._store.names(self._incoming))
        if name in names:
            return True
        if _CLOSED in names:  # nothing more will come; what came before was read
            raise WireError("connection closed")
        return False

    def _wait(self, ready: Callable[[], bool], timeout: float) -> None:
        deadline, pause = time.monotonic() + timeout, 0.001
        while not ready():
            if time.monotonic() > deadline:
                raise WireError("silent")
            if self._closed.wait(pause):
                raise WireError("connection closed")
            pause = min(2 * pause, _MAX_POLL_S)

    def _do(self, action: Callable[[], object]) -> object:
        try:
            return action()
        except OSError as error:
            raise WireError("folder") from error


class FilesLearner(SessionLearner):
    """The learner's endpoint over a shared folder. Looks for workers as soon as it exists.

    Args:
        folder: Path or fsspec URL of the folder that all members reach; each run has its own below it.
        store: Instead of `folder`, an open store.
    Others: see `gloo.GlooLearner`.
    """

    def __init__(
        self,
        *,
        run_id: str,
        secret: bytes,
        folder: str,
        store: Store | None = None,
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
        self._run_id, self._secret = run_id, check_secret(secret)
        self._store, self.address = store or open_store(folder), folder
        self._slots = itertools.count(1)
        # Knocks of an earlier session of this run are nobody's any more.
        self._nonces = set(self._store.names(f"{run_id}/knocks"))
        self._closing = threading.Event()
        self._acceptor = threading.Thread(target=self._accept_loop, name="files-accept", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """See `transport.LearnerEndpoint`."""
        self._closing.set()
        self._acceptor.join()
        super().close()

    def _accept_loop(self) -> None:
        while not self._closing.wait(_MAX_POLL_S):
            with contextlib.suppress(OSError):  # tried again at the next look
                new = [n for n in self._store.names(f"{self._run_id}/knocks") if n not in self._nonces]
                for nonce in new[:_KNOCKS_PER_ROUND]:
                    self._answer(nonce)

    def _answer(self, nonce: str) -> None:
        knock = f"{self._run_id}/knocks/{nonce}"
        raw = self._store.read(knock) or b""
        self._nonces.add(nonce)
        self._store.remove(knock)
        answer = f"{self._run_id}/answers/{nonce}"
        try:
            hello = check_hello(raw, self._secret, self._run_id)
            if hello.nonce != nonce:  # a recording under another name
                raise HandshakeError("replayed hello")
        except HandshakeError as error:
            if error.hello is not None:
                self._store.write(answer, make_refusal(self._secret, error.reason, error.hello))
            self._put(Refused(error.hello.worker_id if error.hello else "unknown", error.reason))
            return
        slot = next(self._slots)
        accepted, keys = make_answer(self._secret, self._run_id, hello, slot)
        self._store.write(answer, accepted)
        wire = _wire(self._store, self._run_id, hello, "down", "up")
        opened = OpenedGroup(slot, "files", ("learner", hello.worker_id), "folder")
        self._open(hello.worker_id, slot, wire, keys, opened)


class FilesWorker(SessionWorker):
    """The worker's endpoint over a shared folder; nothing happens before `join`. See `FilesLearner`."""

    def __init__(
        self,
        *,
        run_id: str,
        secret: bytes,
        folder: str,
        worker_id: str,
        store: Store | None = None,
        heartbeat_s: float,
        deadline_s: float,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_unacknowledged: int = 2,
        submit_deadline_s: float = 600.0,
    ) -> None:
        super().__init__(
            address=folder,
            heartbeat_s=heartbeat_s,
            deadline_s=deadline_s,
            max_frame_bytes=max_frame_bytes,
            max_unacknowledged=max_unacknowledged,
            submit_deadline_s=submit_deadline_s,
        )
        self._run_id, self._secret, self._worker_id = run_id, check_secret(secret), check_worker_id(worker_id)
        self._store = store or open_store(folder)

    def _connect(self) -> tuple[FilesWire, SessionKeys, str]:
        started = time.monotonic()
        raw, hello = make_hello(self._secret, self._run_id, self._worker_id, "folder")
        folder, pause = f"{self._run_id}/answers", 0.005
        try:
            self._store.write(f"{self._run_id}/knocks/{hello.nonce}", raw)
            while hello.nonce not in self._store.names(folder):
                waited = time.monotonic() - started
                if waited > self._deadline_s:
                    raise LearnerUnreachable(self.address, waited, "the request was not answered")
                time.sleep(pause)
                pause = min(2 * pause, _MAX_POLL_S)
            answer = self._store.read(f"{folder}/{hello.nonce}") or b""
            self._store.remove(f"{folder}/{hello.nonce}")
            keys, slot = check_answer(answer, self._secret, self._run_id, hello)
        except HandshakeError as error:
            raise JoinRefused(self.address, error.reason) from None
        except OSError as error:
            raise LearnerUnreachable(self.address, time.monotonic() - started, str(error)) from error
        wire = _wire(self._store, self._run_id, hello, "up", "down")
        return wire, keys, f"{self._worker_id}-{os.getpid()}-{slot}"


def _wire(store: Store, run_id: str, hello: Hello, outgoing: str, incoming: str) -> FilesWire:
    link = f"{run_id}/links/{hello.nonce}"
    return FilesWire(store, f"{link}/{outgoing}", f"{link}/{incoming}")
