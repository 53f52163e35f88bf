"""Sealing: whatever happens to a frame, it opens unchanged, once and in order, or raises FrameError."""

import hashlib
import hmac
import json
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_lib.transport import PROTOCOL, REASONS, Kind
from grpo_lib.transport.frames import HEADER, OVERHEAD_BYTES, FrameError, Opener, Sealer, derive_keys

LIMIT = 1 << 21
SECRET = bytes(range(32))
KEYS = derive_keys(SECRET, b"w" * 32, b"l" * 32, "run", "worker-0")


def pair() -> tuple[Sealer, Opener]:
    return Sealer(KEYS.to_learner), Opener(KEYS.to_learner, LIMIT)


def reason_of(opener: Opener, frame: bytes) -> str:
    with pytest.raises(FrameError) as caught:
        opener.open(frame)
    return caught.value.reason


@pytest.mark.parametrize("size", [0, 1, 487, 488, 100_000, LIMIT - OVERHEAD_BYTES])
def test_round_trip(size):
    sealer, opener = pair()
    for number in range(3):
        payload = bytes([number]) * size
        frame = sealer.seal(Kind.BATCH, payload)
        assert len(frame) == opener.frame_length(frame[: HEADER.size]) == size + OVERHEAD_BYTES
        assert opener.open(frame) == (Kind.BATCH, number, payload)


def test_layout_is_the_documented_one():
    """A second reader of the docstring, with its own code, opens the frame."""
    sealer, _ = pair()
    sealer.seal(Kind.LEASE, b"first")
    frame = bytes(sealer.seal(Kind.LEASE, b"second"))
    header, body = frame[:24], frame[24:]
    assert header == b"GRPF" + b"\x01\0\0\0" + len(body).to_bytes(8, "big") + (1).to_bytes(8, "big")
    plain = AESGCM(KEYS.to_learner).decrypt((1).to_bytes(12, "big"), body, header)
    assert plain == bytes([Kind.LEASE]) + b"second"


def test_keys_follow_rfc_5869():
    prk = hmac.digest(b"w" * 32 + b"l" * 32, SECRET, "sha256")
    info = json.dumps([PROTOCOL, "run", "worker-0", "to worker"]).encode()
    assert KEYS.to_worker == hmac.digest(prk, info + b"\x01", hashlib.sha256)


def test_every_input_of_the_keys_matters():
    given_ = (SECRET, b"w" * 32, b"l" * 32, "run", "worker-0")
    others = (SECRET[::-1], b"x" * 32, b"x" * 32, "nur", "worker-1")
    made = [KEYS] + [derive_keys(*given_[:i], others[i], *given_[i + 1 :]) for i in range(len(given_))]
    keys = [key for each in made for key in (each.to_learner, each.to_worker, each.rendezvous)]
    assert len(set(keys)) == len(keys)


# Byte offsets: one for each region of the frame.
REGIONS = {"magic": 0, "version": 4, "zero": 6, "length": 15, "length high": 8, "sequence": 23}
REGIONS |= {"kind": 24, "payload": 30, "tag": -1}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("bit", [0, 7])
def test_one_flipped_bit_is_noticed_and_the_true_frame_still_opens(region, bit):
    sealer, opener = pair()
    frame = bytes(sealer.seal(Kind.POLICY, b"a payload of some length"))
    bad = bytearray(frame)
    bad[REGIONS[region]] ^= 1 << bit
    assert reason_of(opener, bad) in REASONS
    assert opener.open(frame) == (Kind.POLICY, 0, b"a payload of some length")


def test_replay_reorder_gap():
    sealer, opener = pair()
    first, second, third = (bytes(sealer.seal(Kind.BATCH, bytes([n]))) for n in range(3))
    assert reason_of(opener, second) == "gap"
    opener.open(first)
    assert reason_of(opener, first) == "replayed"
    assert reason_of(opener, third) == "gap"
    opener.open(second)
    opener.open(third)
    assert reason_of(opener, first) == "replayed"


@pytest.mark.parametrize("cut", range(24 + 1 + 4 + 16))
def test_truncation(cut):
    sealer, opener = pair()
    frame = sealer.seal(Kind.BATCH, b"four")
    assert reason_of(opener, frame[:cut]) == "truncated"


@pytest.mark.parametrize("key", [KEYS.to_worker, KEYS.rendezvous, bytes(32)])
def test_another_key_does_not_open(key):
    sealer, _ = pair()
    assert reason_of(Opener(key, LIMIT), sealer.seal(Kind.BATCH, b"x")) == "not authentic"


def test_a_claimed_size_is_refused_from_the_header_alone():
    _, opener = pair()
    with pytest.raises(FrameError) as caught:
        opener.frame_length(HEADER.pack(b"GRPF", 1, 2**63, 0))
    assert caught.value.reason == "oversized"


def test_an_unknown_kind_is_dropped_and_takes_its_place_in_the_order():
    sealer, opener = pair()
    frame = sealer.seal(200, b"from a later version")  # type: ignore[arg-type]
    assert reason_of(opener, frame) == "unexpected"
    assert opener.open(sealer.seal(Kind.BATCH, b"next"))[1] == 1


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_fuzz_only_the_typed_error_escapes(data):
    sealer, opener = pair()
    frame = bytes(sealer.seal(Kind.BATCH, b"payload" * 5))
    noise = data.draw(
        st.one_of(
            st.binary(max_size=200),
            st.binary(max_size=100).map(lambda tail: frame[:24] + tail),
            st.tuples(st.integers(0, len(frame)), st.binary(max_size=8)).map(
                lambda edit: frame[: edit[0]] + edit[1] + frame[edit[0] + len(edit[1]) :]
            ),
            st.binary(min_size=16, max_size=16).map(lambda numbers: frame[:8] + numbers + frame[24:]),
        )
    )
    if noise != frame:
        assert reason_of(opener, noise) in REASONS
    assert opener.open(frame)[2] == b"payload" * 5


def test_the_error_is_bilingual():
    _, opener = pair()
    with pytest.raises(FrameError) as caught:
        opener.open(b"")
    assert caught.value.ar == REASONS["truncated"][0]
    assert caught.value.en == REASONS["truncated"][1]


def test_no_module_but_gloo_needs_torch():
    names = ("frames", "handshake", "session", "learner_endpoint", "worker_endpoint")
    code = "import sys\n" + "".join(f"import grpo_lib.transport.{name}\n" for name in names)
    subprocess.run([sys.executable, "-c", code + "assert 'torch' not in sys.modules"], check=True, timeout=60)
