"""The learner's endpoint over sealed sessions, whatever the wire: admission, newest-wins, order of events.

A transport adds how peers find each other and how bytes move (`session.Wire`): see `gloo`.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from grpo_lib.transport import Arrived, Dropped, Event, Joined, Kind, Left, Lost, OpenedGroup, Refused
from grpo_lib.transport.frames import Opener, Sealer, SessionKeys
from grpo_lib.transport.session import (
    GOODBYE_S,
    VERSION_BYTES,
    Counters,
    Session,
    Wire,
    check_size,
)

_EVENTS_KEPT = 10_000  # refusals and drops beyond this many unread events are counted, not queued

Admit = Callable[[str, dict], str | None]


@dataclass(eq=False)
class _Peer:
    worker_id: str
    slot: int
    state: str = "new"  # -> joined -> left; or -> refused. Changes in its receiving thread only
    session: Session = field(init=False)


class SessionLearner:
    """The learner's endpoint; a subclass calls `_open` for every worker whose handshake was right."""

    def __init__(
        self, *, heartbeat_s: float, deadline_s: float, max_frame_bytes: int, welcome: dict, admit: Admit
    ) -> None:
        self._heartbeat_s, self._deadline_s, self._max_frame_bytes = heartbeat_s, deadline_s, max_frame_bytes
        self._welcome = json.dumps(welcome).encode()
        self._admit = admit
        self._events: queue.Queue[tuple[Event, _Peer | None, int]] = queue.Queue()
        self._lock = threading.Lock()  # guards what follows; never held while a session is closed
        self._live: set[_Peer] = set()
        self._joined: dict[str, _Peer] = {}
        self._policy: bytes | None = None
        self._finished = False
        self._counters: list[Counters] = []
        self.opened_groups: tuple[OpenedGroup, ...] = ()
        self._seen: dict[str, _Peer] = {}  # the state that `receive` has told its caller so far

    # ---- for the training loop ------------------------------------------------------------------

    def publish(self, version: int, payload: bytes) -> None:
        """See `transport.LearnerEndpoint`."""
        check_size(payload, self._max_frame_bytes)
        policy = version.to_bytes(VERSION_BYTES, "big") + payload
        with self._lock:
            self._policy = policy
            for peer in self._joined.values():
                peer.session.post(Kind.POLICY, policy)

    def grant(self, worker_id: str, payload: bytes) -> bool:
        """See `transport.LearnerEndpoint`."""
        check_size(payload, self._max_frame_bytes)
        peer = self._seen.get(worker_id)
        if peer is None or peer.state != "joined" or peer.session.ended is not None:
            return False
        peer.session.post(Kind.LEASE, payload)
        return True

    def receive(self, timeout: float) -> Event | None:
        """See `transport.LearnerEndpoint`. For one consuming thread."""
        try:
            event, peer, sequence = self._events.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return None
        if isinstance(event, Arrived):
            peer.session.acknowledge(sequence)  # only now may the worker send another one
        elif isinstance(event, Joined):
            self._seen[event.worker_id] = peer
        elif isinstance(event, Lost | Left) and self._seen.get(event.worker_id) is peer:
            del self._seen[event.worker_id]
        return event

    def workers(self) -> tuple[str, ...]:
        """See `transport.LearnerEndpoint`."""
        return tuple(sorted(self._seen))

    def stats(self) -> dict:
        """Sum over all sessions so far, and the number that are open."""
        with self._lock:
            return {
                **Counters.total(self._counters),
                "sessions": len(self._counters),
                "open": len(self._live),
            }

    def finish(self) -> None:
        """See `transport.LearnerEndpoint`."""
        with self._lock:
            self._finished = True
            sessions = [peer.session for peer in self._joined.values()]
            for session in sessions:
                session.post(Kind.END)
        deadline = time.monotonic() + min(GOODBYE_S, self._deadline_s)
        for session in sessions:
            session.wait_for(lambda s=session: s.pending(Kind.END) == 0, deadline - time.monotonic())

    def close(self) -> None:
        """See `transport.LearnerEndpoint`."""
        with self._lock:
            live = list(self._live)
        for peer in live:
            peer.session.close()

    # ---- for the rendezvous and the sessions ----------------------------------------------------

    def _put(self, event: Event, peer: _Peer | None = None, sequence: int = 0) -> None:
        if isinstance(event, Refused | Dropped) and self._events.qsize() > _EVENTS_KEPT:
            return  # somebody floods us: the counters go on, memory does not
        self._events.put((event, peer, sequence))

    def _open(self, worker_id: str, slot: int, wire: Wire, keys: SessionKeys, group: OpenedGroup) -> None:
        """Start the session of a worker that has proved that it knows the join secret."""
        peer = _Peer(worker_id, slot)
        peer.session = Session(
            wire,
            Sealer(keys.to_worker),
            Opener(keys.to_learner, self._max_frame_bytes),
            heartbeat_s=self._heartbeat_s,
            deadline_s=self._deadline_s,
            on_frame=lambda *frame: self._on_frame(peer, *frame),
            on_dropped=lambda reason: self._put(Dropped(worker_id, reason)),
            on_end=lambda reason: self._on_end(peer, reason),
            name=f"{worker_id}-{slot}",
        )
        with self._lock:
            self._live.add(peer)
            self._counters.append(peer.session.counters)
            self.opened_groups += (group,)
        peer.session.start()

    def _on_frame(self, peer: _Peer, kind: Kind, sequence: int, payload: bytes) -> None:
        if kind is Kind.JOIN and peer.state == "new":
            self._on_join(peer, payload)
        elif kind is Kind.BATCH and peer.state == "joined":
            self._put(Arrived(peer.worker_id, payload), peer, sequence)
        elif kind is Kind.GOODBYE and peer.state == "joined":
            peer.state = "left"
            self._forget(peer)
            peer.session.acknowledge(sequence)  # the worker then closes the line
            self._put(Left(peer.worker_id), peer)
        else:
            peer.session.drop("unexpected")

    def _on_join(self, peer: _Peer, payload: bytes) -> None:
        reason, info = None, None
        try:
            info = json.loads(payload)
        except (ValueError, RecursionError):
            reason = "malformed hello"
        if self._finished:
            reason = "finished"
        if reason is None:
            try:
                reason = self._admit(peer.worker_id, info)
            except (
                Exception
            ) as error:  # a defect in the check must not let anybody in, nor leave the worker waiting
                reason = f"admission error: {type(error).__name__}"
        if reason is not None:
            peer.state = "refused"
            peer.session.post(Kind.REFUSED, reason.encode())
            self._put(Refused(peer.worker_id, reason))
            return
        peer.session.post(Kind.WELCOME, self._welcome)
        with self._lock:
            old = self._joined.get(peer.worker_id)
            self._joined[peer.worker_id] = peer
            if self._policy is not None:
                peer.session.post(Kind.POLICY, self._policy)
            if self._finished:  # since we looked
                peer.session.post(Kind.END)
        if old is not None:
            old.session.close("replaced")
        peer.state = "joined"
        self._put(Joined(peer.worker_id, peer.slot, info), peer)

    def _on_end(self, peer: _Peer, reason: str) -> None:
        self._forget(peer)
        with self._lock:
            self._live.discard(peer)
        if peer.state == "joined":
            self._put(Lost(peer.worker_id, reason), peer)
        elif peer.state == "new":
            self._put(Refused(peer.worker_id, f"pair failed: {reason}"))

    def _forget(self, peer: _Peer) -> None:
        with self._lock:
            if self._joined.get(peer.worker_id) is peer:
                del self._joined[peer.worker_id]
