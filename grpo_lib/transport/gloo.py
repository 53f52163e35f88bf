"""Gloo: one TCPStore where workers knock, then one two-member ProcessGroupGloo for each of them.

Why pairs: a collective over all members hangs as soon as one of them dies; a pair dies alone. The store is
open to whoever reaches its port. It carries only hellos (`handshake`), public values and Gloo's addresses:
who meddles with it can keep workers out, not read or forge anything. (What Gloo can and cannot do:
`gloo_pair`.)
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from datetime import timedelta

import torch.distributed as dist

from grpo_lib.errors import WrongInput, isolate
from grpo_lib.transport import JoinRefused, LearnerUnreachable, OpenedGroup, Refused
from grpo_lib.transport.frames import SessionKeys
from grpo_lib.transport.gloo_pair import GlooWire, address_class, listen, make_device, open_pair, store_client
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
from grpo_lib.transport.session import MAX_FRAME_BYTES
from grpo_lib.transport.worker_endpoint import SessionWorker

log = logging.getLogger(__name__)

_POLL_S = 0.05  # how often the learner looks for a knock, and a worker for its answer
_OPEN_S = 15.0  # at most, for both members of a pair to meet
_PENDING_SLOTS = 256  # taken slots without a hello; older ones are given up
_SLOTS_KEY = "slots"


class GlooLearner(SessionLearner):
    """The learner's endpoint over Gloo. Listens as soon as it exists.

    Args:
        run_id: Workers of another run are refused.
        secret: The run's join secret, at least 16 random bytes.
        bind: Address of one interface (no wildcard) for the store and for Gloo.
        ports: Candidates for the store's port; the first free one is taken.
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
        ports: range,
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
        listener = listen(bind, ports)
        self._host, self._port = listener.getsockname()[:2]
        self.address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        self._store = dist.TCPStore(
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
        self._store = None  # frees the port

    # ---- rendezvous -----------------------------------------------------------------------------

    def _accept_loop(self) -> None:
        """Look at every taken slot for a hello. Short calls only: a bad knock must not hold up others."""
        pending: dict[int, float] = {}  # slot -> when we give it up
        next_slot = 1
        while not self._closing.wait(_POLL_S):
            now = time.monotonic()
            taken = self._store.add(_SLOTS_KEY, 0)
            next_slot = max(next_slot, taken + 1 - _PENDING_SLOTS)
            while next_slot <= taken:
                pending[next_slot] = now + self._deadline_s
                next_slot += 1
            for slot, give_up in list(pending.items()):
                if self._store.check([f"hello/{slot}"]):
                    del pending[slot]
                    self._answer(slot)
                elif now > give_up or len(pending) > _PENDING_SLOTS:
                    del pending[slot]
            self._openers = [opener for opener in self._openers if opener.is_alive()]

    def _answer(self, slot: int) -> None:
        raw = self._store.get(f"hello/{slot}")
        self._store.delete_key(f"hello/{slot}")
        try:
            hello = check_hello(raw, self._secret, self._run_id, slot)
        except HandshakeError as error:
            self._store.set(f"answer/{slot}", make_refusal(self._secret, error.reason))
            self._put(Refused(error.worker_id, error.reason))
            return
        answer, keys = make_answer(self._secret, self._run_id, hello)
        opener = threading.Thread(
            target=self._open_group, args=(hello, keys), name=f"gloo-open-{slot}", daemon=True
        )
        self._openers.append(opener)
        opener.start()
        self._store.set(f"answer/{slot}", answer)

    def _open_group(self, hello: Hello, keys: SessionKeys) -> None:
        timeout = min(_OPEN_S, self._deadline_s)
        try:  # an own connection to the store, because waiting on one blocks every other use of it
            store = store_client(self._host, self._port, timeout)
            group = open_pair(store, hello.slot, 0, self._device, timeout)
        except RuntimeError as error:
            log.warning("pair with %s not opened: %s", hello.worker_id, error)
            self._put(Refused(hello.worker_id, "pair failed: not connected"))
            return
        opened = OpenedGroup(
            hello.slot, group.name(), ("learner", hello.worker_id), address_class(self._host, hello.host)
        )
        self._open(hello.worker_id, hello.slot, GlooWire(group), keys, opened)


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
            return LearnerUnreachable(self.address, time.monotonic() - started, str(why).split("\n")[0])

        host = self._knock(deadline, unreachable)
        try:
            store = store_client(self._host, self._port, left())
            slot = store.add(_SLOTS_KEY, 1)
            raw, hello = make_hello(self._secret, self._run_id, self._worker_id, slot, host)
            store.set(f"hello/{slot}", raw)
            while not store.check([f"answer/{slot}"]):
                if time.monotonic() > deadline:
                    raise unreachable("the request was not answered")
                time.sleep(_POLL_S / 5)
            answer = store.get(f"answer/{slot}")
            keys = check_answer(answer, self._secret, self._run_id, hello)
            group = open_pair(store, slot, 1, make_device(host), min(left(), _OPEN_S))
        except HandshakeError as error:
            raise JoinRefused(self.address, error.reason) from None
        except RuntimeError as error:
            raise unreachable(error) from error
        store.delete_key(f"answer/{slot}")
        return GlooWire(group), keys, f"{self._worker_id}-{os.getpid()}-{slot}"

    def _knock(self, deadline: float, unreachable) -> str:
        """Wait for the learner's port (it may open after us); returns our own address on that path."""
        while True:
            try:
                with socket.create_connection((self._host, self._port), timeout=1.0) as probe:
                    return self._bind or probe.getsockname()[0]
            except OSError as error:
                if time.monotonic() > deadline:
                    raise unreachable(error) from None
                time.sleep(4 * _POLL_S)
