"""One sealed session over one wire: a sending and a receiving thread, heartbeats, acknowledgements, one end.

The wire moves pieces of at most `PIECE_BYTES` and may block; it is the only part that differs between Gloo
and MPI. A frame crosses it as one piece or several (small ones padded with zeros, so that they all look
alike). Each piece has its own deadline: a 100 MB adapter on a slow line is progress, not silence. The
receiver always offers a whole piece's room, whatever a header claims: Gloo aborts the process when more
arrives than was offered.

Why two threads: a Gloo wait cannot be polled, and its time-out destroys the pair. So the receiver blocks with
the whole deadline, and the peer's sender makes sure that something arrives well before.
Why acknowledgements: a send succeeds once the bytes lie in a buffer, even if the peer is stopped for good.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from grpo_lib.transport import Kind, MessageTooLarge
from grpo_lib.transport.frames import OVERHEAD_BYTES, FrameError, Opener, Sealer

PIECE_BYTES = 1 << 20  # both ends must agree: whoever changes it raises PROTOCOL
_JOIN_S = 1.0  # a thread not back by then sits in a wait that nothing can wake; it ends with its own deadline
_PADDED_BYTES = 512  # acknowledgements, heartbeats and leases have this size on the wire
MAX_FRAME_BYTES = 256 * 1024 * 1024
VERSION_BYTES = 8  # a policy's version travels before its bytes
GOODBYE_S = 5.0  # how long either side waits for the other to hear END or GOODBYE
_ACKNOWLEDGED = frozenset({Kind.POLICY, Kind.LEASE, Kind.BATCH, Kind.END, Kind.GOODBYE})
_running: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread in a Gloo wait while the interpreter goes down aborts the process ("terminate called")."""
    sessions = list(_running)
    for session in sessions:
        session._end("closed here")
    deadline = time.monotonic() + _JOIN_S
    for session in sessions:
        session.join(deadline - time.monotonic())


class WireError(Exception):
    """The wire is of no more use; `reason` is a key of `transport.REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Wire(Protocol):
    """Moves whole buffers between two members, one call per direction at a time. Raises only WireError."""

    def send(self, piece: memoryview, timeout: float) -> None: ...

    def receive_into(self, room: memoryview, timeout: float) -> None:
        """Receive one piece into the first bytes of `room`; how many is known from the frame's header."""

    def close(self) -> None:
        """Wake both threads that may block in the calls above; safe from any thread, any number of times."""


@dataclass
class Counters:
    """What went over one session. Bytes are those given to the wire: seal, header and padding included."""

    frames_sent: int = 0
    bytes_sent: int = 0
    frames_received: int = 0
    bytes_received: int = 0
    seal_s: float = 0.0
    open_s: float = 0.0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counters) -> None:
        """Sum another session into this one."""
        for name in ("frames_sent", "bytes_sent", "frames_received", "bytes_received", "seal_s", "open_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.dropped.update(dict(other.dropped))  # a copy: its session may be counting just now

    @classmethod
    def total(cls, counters: list[Counters]) -> dict:
        """The sum over several sessions, JSON-ready."""
        total = cls()
        for each in counters:
            total.add(each)
        return total.as_dict()

    def as_dict(self) -> dict:
        """JSON-ready."""
        return {**self.__dict__, "dropped": dict(self.dropped)}


def check_size(payload: bytes, max_frame_bytes: int) -> None:
    """Refuse early, in the caller's thread, what the other side would refuse."""
    limit = max_frame_bytes - OVERHEAD_BYTES - VERSION_BYTES
    if len(payload) > limit:
        raise MessageTooLarge(len(payload), limit)


class Session:
    """A live link to one peer.

    Args:
        wire: An open wire; the session closes it.
        sealer: For what we send.
        opener: For what we receive.
        heartbeat_s: Something is sent at least this often.
        deadline_s: The peer is lost when nothing was heard for this long.
        on_frame: Called in the receiving thread as (kind, sequence, payload), but not for HEARTBEAT and ACK.
        on_dropped: Called in the receiving thread with the reason.
        on_end: Called once, in whichever thread noticed, with the reason; nothing is delivered afterwards.
        name: Of the threads.
    """

    def __init__(
        self,
        wire: Wire,
        sealer: Sealer,
        opener: Opener,
        *,
        heartbeat_s: float,
        deadline_s: float,
        on_frame: Callable[[Kind, int, bytes], None],
        on_dropped: Callable[[str], None],
        on_end: Callable[[str], None],
        name: str,
    ) -> None:
        self.counters = Counters()
        self.ended: str | None = None  # reason, once over
        self._wire, self._sealer, self._opener = wire, sealer, opener
        self._heartbeat_s, self._deadline_s = heartbeat_s, deadline_s
        self._on_frame, self._on_dropped, self._on_end = on_frame, on_dropped, on_end
        self.changed = (
            threading.Condition()
        )  # guards what follows; endpoints keep their own state under it too
        self._delivery = threading.RLock()  # nothing is delivered once on_end was called
        self._urgent: deque[tuple[Kind, bytes]] = deque()  # acknowledgements and admission
        self._policy: bytes | None = None  # newest unsent; older ones are never sent
        self._queue: deque[tuple[Kind, bytes]] = deque()  # leases, batches, END, GOODBYE: in order
        self._in_flight: dict[int, Kind] = {}  # sent, not acknowledged
        self._room = memoryview(bytearray(PIECE_BYTES))
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=f"{name}-{role}", daemon=True)
            for loop, role in ((self._send_loop, "send"), (self._receive_loop, "receive"))
        ]

    def start(self) -> None:
        """Begin to send and receive."""
        _running.add(self)
        for thread in self._threads:
            thread.start()

    # ---- what the endpoints ask for -------------------------------------------------------------

    def post(self, kind: Kind, payload: bytes = b"") -> None:
        """Queue a frame; never blocks. END drops the leases not yet sent, since nobody wants their result."""
        with self.changed:
            if kind is Kind.POLICY:
                self._policy = payload
            elif kind in _ACKNOWLEDGED:
                if kind is Kind.END:
                    self._queue.clear()
                self._queue.append((kind, payload))
            else:
                self._urgent.append((kind, payload))
            self.changed.notify_all()

    def acknowledge(self, sequence: int) -> None:
        """Tell the peer that its frame was taken."""
        self.post(Kind.ACK, sequence.to_bytes(8, "big"))

    def pending(self, kind: Kind) -> int:
        """Frames of this kind that are queued, or sent and not acknowledged."""
        with self.changed:
            return sum(k is kind for k, _ in self._queue) + sum(k is kind for k in self._in_flight.values())

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Wait until the predicate holds or the session has ended; False on time-out."""
        with self.changed:
            return self.changed.wait_for(lambda: self.ended is not None or predicate(), timeout=timeout)

    def drop(self, reason: str) -> None:
        """Count and report a frame that is not used (receiving thread only)."""
        self.counters.dropped[reason] += 1
        self._on_dropped(reason)

    def close(self, reason: str = "closed here") -> None:
        """End now, and see that the threads end."""
        self._end(reason)
        self.join(_JOIN_S)

    def join(self, timeout: float) -> None:
        """Wait for both threads, except for the one that calls."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(timeout=max(deadline - time.monotonic(), 0.0))

    # ---- threads --------------------------------------------------------------------------------

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except WireError as error:
            self._end(error.reason)

    def _end(self, reason: str) -> None:
        with self.changed:
            if self.ended is not None:
                return
            self.ended = reason
            self.changed.notify_all()
        self._wire.close()
        with self._delivery:
            self._on_end(reason)

    def _next(self) -> tuple[Kind, bytes] | None:
        """What to send next (lock held). One policy is under way at a time, so that the newest can win."""
        if self._urgent:
            return self._urgent.popleft()
        if self._policy is not None and Kind.POLICY not in self._in_flight.values():
            payload, self._policy = self._policy, None
            return Kind.POLICY, payload
        return self._queue.popleft() if self._queue else None

    def _send_loop(self) -> None:
        last_sent = time.monotonic()
        while True:
            with self.changed:
                while (message := self._next()) is None and self.ended is None:
                    left = last_sent + self._heartbeat_s - time.monotonic()
                    if left <= 0:
                        break
                    self.changed.wait(timeout=left)
                if self.ended is not None:
                    return
                kind, payload = message or (Kind.HEARTBEAT, b"")
                if kind in _ACKNOWLEDGED:  # noted before it is sent: the acknowledgement may come at once
                    self._in_flight[self._sealer.sequence] = kind
            started = time.perf_counter()
            frame = self._sealer.seal(kind, payload)
            self.counters.seal_s += time.perf_counter() - started
            self._send(frame)
            last_sent = time.monotonic()

    def _send(self, frame: bytearray) -> None:
        view = memoryview(frame.ljust(_PADDED_BYTES, b"\0"))
        for start in range(0, len(view), PIECE_BYTES):
            self._wire.send(view[start : start + PIECE_BYTES], self._deadline_s)
        self.counters.frames_sent += 1
        self.counters.bytes_sent += len(view)

    def _receive_loop(self) -> None:
        last_authentic = time.monotonic()
        while self.ended is None:
            try:
                kind, sequence, payload = self._receive()
            except FrameError as error:
                self.drop(error.reason)
                if error.reason in (
                    "oversized",
                    "gap",
                ):  # where the next frame starts, or what is missing, is unknown
                    self._end(error.reason)
                elif time.monotonic() - last_authentic > self._deadline_s:  # noise is no sign of life
                    self._end("silent")
                continue
            last_authentic = time.monotonic()
            if kind is Kind.ACK:
                with self.changed:
                    self._in_flight.pop(int.from_bytes(payload, "big"), None)
                    self.changed.notify_all()
            elif kind is not Kind.HEARTBEAT:
                with self._delivery:
                    if self.ended is None:
                        self._on_frame(kind, sequence, payload)

    def _receive(self) -> tuple[Kind, int, bytes]:
        self._wire.receive_into(self._room, self._deadline_s)
        length = self._opener.frame_length(self._room)
        frame = bytearray(length)
        frame[:PIECE_BYTES] = self._room[:length]
        for start in range(PIECE_BYTES, length, PIECE_BYTES):
            self._wire.receive_into(self._room, self._deadline_s)
            frame[start : start + PIECE_BYTES] = self._room[: length - start]
        self.counters.frames_received += 1
        self.counters.bytes_received += max(length, _PADDED_BYTES)
        started = time.perf_counter()
        try:
            return self._opener.open(frame)
        finally:
            self.counters.open_s += time.perf_counter() - started
