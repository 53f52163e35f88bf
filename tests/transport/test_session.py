"""Sessions over a wire in memory that can be cut, slowed and tampered with; no torch, no sockets."""

import queue
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_lib.transport import Kind, MessageTooLarge
from grpo_lib.transport.frames import HEADER, Opener, Sealer
from grpo_lib.transport.session import PIECE_BYTES, Session, WireError, check_size

KEY_A, KEY_B = b"a" * 32, b"b" * 32
LIMIT = 4 * PIECE_BYTES
_CUT = object()


class MemoryWire:
    """One end of two queues of pieces. `gate` holds back what this end sends."""

    def __init__(self, inbox: queue.Queue, outbox: queue.Queue) -> None:
        self.inbox, self.outbox = inbox, outbox
        self.gate = threading.Event()
        self.gate.set()
        self.sent: list[bytes] = []

    def send(self, piece, timeout):
        if not self.gate.wait(timeout):
            raise WireError("silent")
        self.sent.append(bytes(piece))
        self.outbox.put(bytes(piece))

    def receive_into(self, room, timeout):
        try:
            piece = self.inbox.get(timeout=timeout)
        except queue.Empty:
            raise WireError("silent") from None
        if piece is _CUT:
            raise WireError("connection closed")
        room[: len(piece)] = piece

    def close(self):
        self.inbox.put(_CUT)
        self.outbox.put(_CUT)


class End:
    """A session and what it reported."""

    def __init__(self, wire: MemoryWire, send_key: bytes, receive_key: bytes, deadline_s: float) -> None:
        self.wire = wire
        self.frames: queue.Queue = queue.Queue()
        self.dropped: list[str] = []
        self.ends: list[str] = []
        self.session = Session(
            wire,
            Sealer(send_key),
            Opener(receive_key, LIMIT),
            heartbeat_s=deadline_s / 8,
            deadline_s=deadline_s,
            on_frame=lambda *frame: self.frames.put(frame),
            on_dropped=self.dropped.append,
            on_end=self.ends.append,
            name="test",
        )


@pytest.fixture
def ends():
    made = []

    def make(deadline_s: float = 5.0, start: bool = True) -> tuple[End, End]:
        one, two = queue.Queue(), queue.Queue()
        pair = (
            End(MemoryWire(one, two), KEY_A, KEY_B, deadline_s),
            End(MemoryWire(two, one), KEY_B, KEY_A, deadline_s),
        )
        made.extend(pair)
        for end in pair if start else ():
            end.session.start()
        return pair

    yield make
    for end in made:
        end.wire.gate.set()
        end.session.close()


def until(condition, timeout=5.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)


@pytest.mark.parametrize("size", [0, 500, PIECE_BYTES - 41, PIECE_BYTES - 40, 3 * PIECE_BYTES + 5])
def test_frames_of_every_shape_arrive_in_order(ends, size):
    a, b = ends()
    payloads = [bytes([n]) * size for n in range(3)]
    for payload in payloads:
        a.session.post(Kind.BATCH, payload)
    got = [b.frames.get(timeout=5) for _ in payloads]
    assert [(kind, payload) for kind, _, payload in got] == [(Kind.BATCH, payload) for payload in payloads]
    sent = a.session.counters.bytes_sent
    until(lambda: b.session.counters.bytes_received >= sent)
    assert sent <= 3 * (max(512, size + 41)) + 512 * a.session.counters.frames_sent


def test_both_directions_at_once(ends):
    a, b = ends()
    for number in range(50):
        a.session.post(Kind.LEASE, bytes([number]))
        b.session.post(Kind.BATCH, bytes([number]))
    for end in (a, b):
        assert [end.frames.get(timeout=5)[2] for _ in range(50)] == [bytes([n]) for n in range(50)]


def test_acknowledgement_returns_credit(ends):
    a, b = ends()
    a.session.post(Kind.BATCH, b"1")
    a.session.post(Kind.BATCH, b"2")
    _, first, _ = b.frames.get(timeout=5)
    b.frames.get(timeout=5)
    assert a.session.pending(Kind.BATCH) == 2
    assert not a.session.wait_for(lambda: a.session.pending(Kind.BATCH) < 2, timeout=0.1)
    b.session.acknowledge(first)
    assert a.session.wait_for(lambda: a.session.pending(Kind.BATCH) < 2, timeout=5)
    b.session.acknowledge(first)  # twice, and one that never was: nothing happens
    b.session.acknowledge(10**6)
    time.sleep(0.1)
    assert a.session.pending(Kind.BATCH) == 1
    assert a.session.ended is None


def test_newest_policy_wins_and_end_drops_leases(ends):
    a, b = ends()
    a.wire.gate.clear()
    time.sleep(0.05)
    for version in range(100):
        a.session.post(Kind.POLICY, bytes([version]))
        a.session.post(Kind.LEASE, bytes([version]))
    a.session.post(Kind.END)
    a.wire.gate.set()
    got = []
    while not got or got[-1][0] is not Kind.END:
        kind, sequence, payload = b.frames.get(timeout=5)
        got.append((kind, payload))
        b.session.acknowledge(sequence)
    policies = [payload[0] for kind, payload in got if kind is Kind.POLICY]
    leases = [payload for kind, payload in got if kind is Kind.LEASE]
    assert policies[-1] == 99
    assert len(policies) <= 2  # the one that was under way, and the newest
    assert len(leases) <= 1


def test_only_one_policy_is_under_way(ends):
    a, b = ends()
    a.session.post(Kind.POLICY, b"1")
    _, sequence, payload = b.frames.get(timeout=5)
    assert payload == b"1"
    for version in b"2345":
        a.session.post(Kind.POLICY, bytes([version]))
    with pytest.raises(queue.Empty):
        b.frames.get(timeout=0.2)
    b.session.acknowledge(sequence)
    assert b.frames.get(timeout=5)[2] == b"5"


def test_an_idle_session_outlives_its_deadline_many_times(ends):
    a, b = ends(deadline_s=0.8)
    time.sleep(3.2)
    assert a.session.ended is None
    assert b.session.ended is None
    assert a.session.counters.frames_sent <= 3.2 / 0.1 + 2  # heartbeats, not a busy loop


def test_silence_ends_the_session_once(ends):
    a, b = ends(deadline_s=0.4)
    b.wire.gate.clear()
    until(lambda: a.ends == ["silent"], timeout=3)
    time.sleep(0.5)
    assert a.ends == ["silent"]
    assert len(b.ends) == 1


def test_a_cut_line_ends_both(ends):
    a, b = ends()
    a.wire.close()
    until(lambda: a.ends == b.ends == ["connection closed"])


def test_noise_is_no_sign_of_life(ends):
    a, b = ends(deadline_s=0.4, start=False)
    b.session.start()  # a never speaks; somebody else does
    started = time.monotonic()
    while not b.ends and time.monotonic() - started < 5:
        a.wire.outbox.put(b"\0" * 512)
        time.sleep(0.02)
    assert b.ends == ["silent"]
    assert b.session.counters.dropped["foreign"] == len(b.dropped) > 3


def raw_frame(sealer: Sealer, payload: bytes = b"x") -> bytes:
    return bytes(sealer.seal(Kind.BATCH, payload)).ljust(512, b"\0")


@pytest.fixture
def listener(ends):
    """A session that listens, and a sealer with its peer's key: the test is the peer."""
    a, b = ends(start=False)
    b.session.start()
    return b, a.wire.outbox, Sealer(KEY_A)


def test_bad_frames_are_dropped_and_good_ones_still_arrive(listener):
    end, line, sealer = listener
    good = [raw_frame(sealer, bytes([n])) for n in range(3)]
    altered = bytearray(good[1])
    altered[30] ^= 1
    foreign = raw_frame(Sealer(KEY_B))
    for piece in (good[0], good[0], bytes(altered), foreign, b"\xff" * 512, good[1], good[0], good[2]):
        line.put(piece)
    assert [end.frames.get(timeout=5)[2] for _ in range(3)] == [b"\0", b"\1", b"\2"]
    assert end.dropped == ["replayed", "not authentic", "replayed", "foreign", "replayed"]
    assert end.session.ended is None


def test_a_missing_frame_ends_the_session(listener):
    end, line, sealer = listener
    raw_frame(sealer)  # lost on the way
    line.put(raw_frame(sealer))
    until(lambda: end.ends == ["gap"])
    assert end.frames.empty()


def test_an_oversized_claim_ends_the_session_and_allocates_nothing(listener):
    end, line, _ = listener
    line.put(HEADER.pack(b"GRPF", 1, 1 << 60, 0))
    until(lambda: end.ends == ["oversized"])


def test_a_frame_that_stops_half_way_ends_in_silence(ends):
    a, b = ends(deadline_s=0.4, start=False)
    b.session.start()
    a.wire.outbox.put(bytes(Sealer(KEY_A).seal(Kind.BATCH, bytes(2 * PIECE_BYTES)))[:PIECE_BYTES])
    until(lambda: b.ends == ["silent"], timeout=3)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=600), edit=st.booleans())
def test_fuzz_no_piece_breaks_a_session(listener, noise, edit):
    """One session, hundreds of bad pieces, after each of which a true frame is still delivered."""
    end, line, sealer = listener
    good = raw_frame(sealer, b"good")
    if edit:  # the true header, so that the noise reaches the cipher
        noise = good[:16] + noise[16:24].ljust(8, b"\0") + noise[24:]
    if noise[:41] != good[:41] and noise[:5] != b"GRPF\x01" or edit:
        line.put(noise.ljust(512, b"\0"))
    line.put(good)
    assert end.frames.get(timeout=5)[2] == b"good"
    assert end.session.ended is None


def test_nothing_is_delivered_after_the_end(ends):
    a, b = ends()
    order = []
    b.session._on_frame = lambda *frame: (time.sleep(0.05), order.append("frame"))
    b.session._on_end = lambda reason: order.append("end")
    for _ in range(20):
        a.session.post(Kind.BATCH, b"x")
    time.sleep(0.12)
    b.session.close()
    assert order[-1] == "end"
    assert order.count("end") == 1


def test_size_is_checked_in_the_callers_thread():
    check_size(b"x" * 100, 100 + 41 + 8)
    with pytest.raises(MessageTooLarge) as caught:
        check_size(b"x" * 101, 100 + 41 + 8)
    assert "101" in caught.value.ar
    assert "101" in caught.value.en
