"""Sealing: one message becomes one frame that only the peer of this session can open, once, and in order.

    header (24 bytes, clear)                            ciphertext (`length` bytes)
    magic "GRPF" | version 1 | 3 zero | length u64 | seq u64 | AES-256-GCM(kind u8 | payload) | tag (16)

The sequence number is the nonce (NIST SP 800-38D, 8.2.1: deterministic construction; unique since each key
serves one direction of one session and the number only grows) and the header is associated data, so no byte
of a frame can change unnoticed.

Keys: HKDF-SHA256 (RFC 5869) from the run's join secret, salted with both
hello nonces. There is no forward secrecy: who records the link and later learns the secret can read it; a
join secret therefore serves one run.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from grpo_lib.transport import PROTOCOL, Kind, TransportError, reason_text

MAGIC = b"GRPF"
VERSION = 1
HEADER = struct.Struct(">4sB3xQQ")  # magic, version, ciphertext length, sequence number
TAG_BYTES = 16
OVERHEAD_BYTES = HEADER.size + 1 + TAG_BYTES
KINDS = frozenset(Kind)


class FrameError(TransportError):
    """A frame that must not be used; `reason` is a key of `transport.REASONS`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        ar, en = reason_text(reason)
        super().__init__(ar=ar, en=en)


@dataclass(frozen=True)
class SessionKeys:
    """One key per direction, so that equal numbers never meet under one key; one for the rendezvous."""

    to_learner: bytes
    to_worker: bytes
    rendezvous: bytes


def derive_keys(
    secret: bytes, nonce_worker: bytes, nonce_learner: bytes, run_id: str, worker_id: str
) -> SessionKeys:
    """HKDF-SHA256 per purpose; the context is JSON, so that no two contexts run into one another."""

    def key(purpose: str) -> bytes:
        context = json.dumps([PROTOCOL, run_id, worker_id, purpose]).encode()
        return HKDF(SHA256(), length=32, salt=nonce_worker + nonce_learner, info=context).derive(secret)

    return SessionKeys(key("to learner"), key("to worker"), key("rendezvous"))


def _nonce(sequence: int) -> bytes:
    return sequence.to_bytes(12, "big")


class Sealer:
    """Seals the messages of one direction. Not thread-safe: one sending thread owns it."""

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)
        self.sequence = 0  # of the next frame

    def seal(self, kind: Kind, payload: bytes) -> bytearray:
        """Return the whole frame, `OVERHEAD_BYTES` longer than the payload."""
        frame = bytearray(OVERHEAD_BYTES + len(payload))
        HEADER.pack_into(frame, 0, MAGIC, VERSION, len(frame) - HEADER.size, self.sequence)
        plain = b"".join((bytes((kind,)), payload))
        body = memoryview(frame)[HEADER.size :]
        self._aead.encrypt_into(_nonce(self.sequence), plain, bytes(frame[: HEADER.size]), body)
        self.sequence += 1
        return frame


class Opener:
    """Opens the frames of one direction, strictly in order. Not thread-safe: one receiving thread owns it."""

    def __init__(self, key: bytes, max_frame_bytes: int) -> None:
        self._aead = AESGCM(key)
        self._max_frame_bytes = max_frame_bytes
        self.expected = 0  # sequence number of the next frame

    def frame_length(self, start: bytes | bytearray | memoryview) -> int:
        """Length in bytes of the frame that begins with `start`, checked before anything is allocated."""
        if len(start) < HEADER.size:
            raise FrameError("truncated")
        magic, version, length, _ = HEADER.unpack_from(start)
        if magic != MAGIC or version != VERSION:
            raise FrameError("foreign")
        if HEADER.size + length > self._max_frame_bytes:
            raise FrameError("oversized")
        if length < 1 + TAG_BYTES:
            raise FrameError("truncated")
        return HEADER.size + length

    def open(self, frame: bytes | bytearray | memoryview) -> tuple[Kind, int, bytes]:
        """Return (kind, sequence number, payload) of one whole frame.

        A frame that does not authenticate leaves the expected number as it was: an outsider's frame cannot
        use up the place of the true one. "gap" is raised for an authentic frame only, and proves that one is
        missing.
        """
        if self.frame_length(frame) != len(frame):
            raise FrameError("truncated")
        header = bytes(frame[: HEADER.size])
        sequence = HEADER.unpack(header)[3]
        if sequence < self.expected:
            raise FrameError("replayed")
        try:
            plain = self._aead.decrypt(_nonce(sequence), memoryview(frame)[HEADER.size :], header)
        except InvalidTag:
            raise FrameError("not authentic") from None
        if sequence > self.expected:
            raise FrameError("gap")
        self.expected += 1
        if plain[0] not in KINDS:
            raise FrameError("unexpected")
        return Kind(plain[0]), sequence, plain[1:]
