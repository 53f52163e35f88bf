"""The worker's endpoint over sealed sessions, whatever the wire: join and rejoin, credit, three outcomes."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from grpo_lib.transport import CreditTimeout, EndOfRun, JoinRefused, Kind, LearnerLost, LearnerUnreachable
from grpo_lib.transport.frames import Opener, Sealer, SessionKeys
from grpo_lib.transport.session import (
    GOODBYE_S,
    VERSION_BYTES,
    Counters,
    Session,
    Wire,
    check_size,
)


@dataclass(eq=False)
class _View:
    """What one session has brought; guarded by the session's `changed`. A rejoin starts with a new one."""

    session: Session = field(init=False)
    welcome: dict | None = None
    refused: str | None = None
    end: bool = False
    version: int = -1
    policy: bytes = b""
    leases: deque[bytes] = field(default_factory=deque)


class SessionWorker:
    """The worker's endpoint; a subclass implements `_connect`.

    Args (of every transport):
        max_unacknowledged: Batches that may wait for the learner at once.
        submit_deadline_s: How long `submit` waits for credit from a learner that is alive; generous, since
            evaluations and checkpoints take time. A dead learner is noticed after `deadline_s` in any case.
    """

    def __init__(
        self,
        *,
        address: str,
        heartbeat_s: float,
        deadline_s: float,
        max_frame_bytes: int,
        max_unacknowledged: int,
        submit_deadline_s: float,
    ) -> None:
        self.address = address
        self._heartbeat_s, self._deadline_s, self._max_frame_bytes = heartbeat_s, deadline_s, max_frame_bytes
        self._max_unacknowledged, self._submit_deadline_s = max_unacknowledged, submit_deadline_s
        self._view: _View | None = None
        self._counters: list[Counters] = []

    def _connect(self) -> tuple[Wire, SessionKeys, str]:
        """Find the learner and prove ourselves; returns (wire, keys, session name)."""
        raise NotImplementedError

    def join(self, info: dict) -> dict:
        """See `transport.WorkerEndpoint`. A second call leaves the old session and opens a new one."""
        if self._view is not None:
            self._view.session.close()
        started = time.monotonic()
        wire, keys, name = self._connect()
        view = _View()
        view.session = Session(
            wire,
            Sealer(keys.to_learner),
            Opener(keys.to_worker, self._max_frame_bytes),
            heartbeat_s=self._heartbeat_s,
            deadline_s=self._deadline_s,
            on_frame=lambda *frame: self._on_frame(view, *frame),
            on_dropped=lambda reason: None,  # counted; the learner's ledger is the place for incidents
            on_end=lambda reason: None,
            name=name,
        )
        self._view = view
        self._counters.append(view.session.counters)
        view.session.start()
        view.session.post(Kind.JOIN, json.dumps(info).encode())
        view.session.wait_for(lambda: view.welcome is not None or view.refused is not None, self._deadline_s)
        if view.welcome is not None:
            return view.welcome
        view.session.close()
        if view.refused == "finished":
            raise EndOfRun
        if view.refused is not None:
            raise JoinRefused(self.address, view.refused)
        raise LearnerUnreachable(
            self.address, time.monotonic() - started, f"no welcome: {view.session.ended}"
        )

    def latest_policy(self, newer_than: int, timeout: float) -> tuple[int, bytes] | None:
        """See `transport.WorkerEndpoint`."""
        view = self._wait(lambda view: view.version > newer_than, timeout)
        with view.session.changed:
            return (view.version, view.policy) if view.version > newer_than else None

    def next_lease(self, timeout: float) -> bytes | None:
        """See `transport.WorkerEndpoint`."""
        view = self._wait(lambda view: bool(view.leases), timeout)
        with view.session.changed:
            return view.leases.popleft() if view.leases else None

    def submit(self, payload: bytes) -> None:
        """See `transport.WorkerEndpoint`."""
        check_size(payload, self._max_frame_bytes)
        limit = self._max_unacknowledged
        view = self._wait(lambda view: view.session.pending(Kind.BATCH) < limit, self._submit_deadline_s)
        unacknowledged = view.session.pending(Kind.BATCH)
        if unacknowledged >= limit:
            raise CreditTimeout(self.address, self._submit_deadline_s, unacknowledged)
        view.session.post(Kind.BATCH, payload)

    def stats(self) -> dict:
        """Sum over all sessions so far."""
        return {**Counters.total(self._counters), "sessions": len(self._counters)}

    def close(self) -> None:
        """See `transport.WorkerEndpoint`."""
        if self._view is None:
            return
        session = self._view.session
        if session.ended is None:
            session.post(
                Kind.GOODBYE
            )  # behind the batches, so its acknowledgement means that all have arrived
            session.wait_for(lambda: session.pending(Kind.GOODBYE) == 0, min(GOODBYE_S, self._deadline_s))
        session.close()

    def _wait(self, ready: Callable[[_View], bool], timeout: float) -> _View:
        """Wait for `ready`, the end or the loss of the session; the last two raise, a time-out does not."""
        view = self._view
        if view is None:
            raise RuntimeError("join first")
        view.session.wait_for(lambda: view.end or ready(view), max(timeout, 0.0))
        if view.end:
            raise EndOfRun
        if view.session.ended is not None:
            raise LearnerLost(self.address, view.session.ended)
        return view

    def _on_frame(self, view: _View, kind: Kind, sequence: int, payload: bytes) -> None:
        session = view.session
        with session.changed:
            if kind is Kind.WELCOME:
                view.welcome = json.loads(payload)
            elif kind is Kind.REFUSED:
                view.refused = payload.decode()
            elif kind is Kind.POLICY:
                view.version, view.policy = (
                    int.from_bytes(payload[:VERSION_BYTES], "big"),
                    payload[VERSION_BYTES:],
                )
            elif kind is Kind.LEASE:
                view.leases.append(payload)
            elif kind is Kind.END:
                view.end = True
            else:
                session.drop("unexpected")
            if kind in (Kind.POLICY, Kind.LEASE, Kind.END):
                session.acknowledge(sequence)
            session.changed.notify_all()
