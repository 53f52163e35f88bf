"""Gloo: one TCPStore where workers knock, then one two-member ProcessGroupGloo for each of them.

Why pairs: a collective over all members hangs as soon as one of them dies; a pair dies alone. The store is
open to whoever reaches its port. It carries only hellos and answers (`handshake`) and Gloo's addresses,
sealed: who meddles with it can keep workers out, not read or forge anything. (What Gloo can and cannot do:
`gloo_pair`.)
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

from grpo_lib.errors import WrongInput, isolate
from grpo_lib.transport import JoinRefused, LearnerUnreachable, OpenedGroup, Refused
from grpo_lib.transport.frames import SessionKeys
from grpo_lib.transport.gloo_pair import (
    GlooWire,
    SealedStore,
    address_class,
    make_device,
    open_pair,
    store_client,
)
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
from grpo_lib.transport.listening import listen
from grpo_lib.transport.session import MAX_FRAME_BYTES
from grpo_lib.transport.worker_endpoint import SessionWorker

log = logging.getLogger(__name__)

_POLL_S = 0.05  # how often the learner looks for a knock, and a worker for its answer
_OPEN_S = 15.0  # at most, for both members of a pair to meet
_KNOCKS_PER_ROUND = 64  # a flood of hellos must not keep the loop from noticing `close`
_KNOCKS_KEY = "knocks"


def rendezvous(store: dist.Store, keys: SessionKeys, hello: Hello) -> SealedStore:
    """Where the two members of one session meet: under the worker's nonce, sealed with the session's key."""
    return SealedStore(store, keys.rendezvous, f"pair/{hello.nonce}/")


def first_line(error: Exception) -> str:
    """Torch appends a C++ stack trace to its messages."""
    return str(error).split("\n")[0]


class GlooLearner(SessionLearner):
    """The learner's endpoint over Gloo. Listens as soon as it exists.

    Args:
        run_id: Workers of another run are refused.
        secret: The run's join secret, at least 16 random bytes.
        bind: Address of one interface (no wildcard) for the store and for Gloo.
        ports: Candidates for the store's port; the first free one is taken.
        listener: A socket that listens already, from `listening.listen`; `ports` is then not looked at.
        heartbeat_s: Something is sent to each worker at least this often.
        deadline_s: A worker that was not heard for this long is lost.
        max_frame_bytes: Larger frames are neither sent nor accepted.
        welcome: JSON that every admitted worker receives.
        admit: `(worker_id, info) -> None` to let in, or a reason code; called in a thread of this endpoint.
    """

    def __init__(
        self,
        *,
        run_id: str,
        secret: bytes,
        bind: str,
        ports: range = range(0),
        listener: socket.socket | None = None,
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
        listener = listener or listen(bind, ports)
        self._host, self._port = listener.getsockname()[:2]
        self.address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        self._server = dist.TCPStore(
            self._host,
            self._port,
            None,
            True,
            timedelta(seconds=deadline_s),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        self._device = make_device(self._host)  # shared by all pairs: one listening port and one loop thread
        self._closing = threading.Event()
        self._slots = itertools.count(1)
        self._nonces: set[str] = set()
        self._openers: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept_loop, name="gloo-accept", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """See `transport.LearnerEndpoint`."""
        self._closing.set()
        self._acceptor.join()
        for opener in self._openers:
            opener.join()
        super().close()
        self._server = None  # frees the port

    # ---- rendezvous -----------------------------------------------------------------------------

    def _accept_loop(self) -> None:
        """Answer whoever knocks. Short calls only: a bad knock must not hold up the others."""
        store = None
        while not self._closing.wait(_POLL_S):
            try:
                store = store or self._client()
                for _ in range(min(store.queue_len(_KNOCKS_KEY), _KNOCKS_PER_ROUND)):
                    self._answer(store, store.queue_pop(_KNOCKS_KEY, False))
            except RuntimeError as error:  # strangers can spoil a connection to the store, so take a new one
                log.warning("a look for new workers failed: %s", first_line(error))
                store = None
            self._openers = [opener for opener in self._openers if opener.is_alive()]

    def _client(self) -> dist.TCPStore:
        return store_client(self._host, self._port, min(_OPEN_S, self._deadline_s))

    def _answer(self, store: dist.TCPStore, raw: bytes) -> None:
        try:
            hello = check_hello(raw, self._secret, self._run_id)
        except HandshakeError as error:
            if error.hello is not None:
                refusal = make_refusal(self._secret, error.reason, error.hello)
                store.set(f"answer/{error.hello.nonce}", refusal)
            self._put(Refused(error.hello.worker_id if error.hello else "unknown", error.reason))
            return
        if hello.nonce in self._nonces:  # a recording; its first owner's answer stays as it is
            self._put(Refused(hello.worker_id, "replayed hello"))
            return
        self._nonces.add(hello.nonce)
        slot = next(self._slots)
        answer, keys = make_answer(self._secret, self._run_id, hello, slot)
        store.set(f"answer/{hello.nonce}", answer)
        opener = threading.Thread(target=self._open_group, args=(hello, slot, keys), name=f"gloo-open-{slot}")
        opener.daemon = True
        self._openers.append(opener)
        opener.start()

    def _open_group(self, hello: Hello, slot: int, keys: SessionKeys) -> None:
        timeout = min(_OPEN_S, self._deadline_s)
        try:  # an own connection to the store, because waiting on one blocks every other use of it
            group = open_pair(rendezvous(self._client(), keys, hello), 0, self._device, timeout)
        except RuntimeError as error:
            log.warning("pair with %s not opened: %s", hello.worker_id, first_line(error))
            self._put(Refused(hello.worker_id, "pair failed: not connected"))
            return
        members, reach = ("learner", hello.worker_id), address_class(self._host, hello.host)
        opened = OpenedGroup(slot, group.name(), members, reach)
        self._open(hello.worker_id, slot, GlooWire(group), keys, opened)


class GlooWorker(SessionWorker):
    """The worker's endpoint over Gloo; nothing happens before `join`.

    Args:
        address: The learner's `address`.
        worker_id: Latin letters, digits, dots, dashes. A second session under one id replaces the first.
        bind: Address of this end; None takes the one from which the learner is reached.
    Others: see `GlooLearner` and `SessionWorker`.
    """

    def __init__(
        self,
        *,
        run_id: str,
        secret: bytes,
        address: str,
        worker_id: str,
        heartbeat_s: float,
        deadline_s: float,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        bind: str | None = None,
        max_unacknowledged: int = 2,
        submit_deadline_s: float = 600.0,
    ) -> None:
        super().__init__(
            address=address,
            heartbeat_s=heartbeat_s,
            deadline_s=deadline_s,
            max_frame_bytes=max_frame_bytes,
            max_unacknowledged=max_unacknowledged,
            submit_deadline_s=submit_deadline_s,
        )
        self._run_id, self._secret, self._worker_id = run_id, check_secret(secret), check_worker_id(worker_id)
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise WrongInput(
                ar=f"عنوان المتعلّم {isolate(address)} ليس على صورة {isolate('host:port')}.",
                en=f"The learner's address {address} is not of the form host:port.",
            )
        self._host, self._port, self._bind = host.strip("[]"), int(port), bind

    def _connect(self) -> tuple[GlooWire, SessionKeys, str]:
        started = time.monotonic()
        deadline = started + self._deadline_s

        def left() -> float:
            return max(deadline - time.monotonic(), 0.001)

        def unreachable(why: object) -> LearnerUnreachable:
            return LearnerUnreachable(self.address, time.monotonic() - started, str(why))

        host = self._reach(deadline, unreachable)
        try:
            store = store_client(self._host, self._port, left())
            raw, hello = make_hello(self._secret, self._run_id, self._worker_id, host)
            store.queue_push(_KNOCKS_KEY, raw)
            while not store.check([f"answer/{hello.nonce}"]):
                if time.monotonic() > deadline:
                    raise unreachable("the request was not answered")
                time.sleep(_POLL_S / 5)
            answer = store.get(f"answer/{hello.nonce}")
            keys, slot = check_answer(answer, self._secret, self._run_id, hello)
            group = open_pair(rendezvous(store, keys, hello), 1, make_device(host), min(left(), _OPEN_S))
            store.delete_key(
                f"answer/{hello.nonce}"
            )  # the pair's keys stay: the other member may still read them
        except HandshakeError as error:
            raise JoinRefused(self.address, error.reason) from None
        except RuntimeError as error:
            raise unreachable(first_line(error)) from error
        return GlooWire(group), keys, f"{self._worker_id}-{os.getpid()}-{slot}"

    def _reach(self, deadline: float, unreachable: Callable[[object], LearnerUnreachable]) -> str:
        """Wait for the learner's port (it may open after us); returns our own address on that path."""
        while True:
            try:
                with socket.create_connection((self._host, self._port), timeout=1.0) as probe:
                    return self._bind or probe.getsockname()[0]
            except OSError as error:
                if time.monotonic() > deadline:
                    raise unreachable(error) from None
                time.sleep(4 * _POLL_S)
