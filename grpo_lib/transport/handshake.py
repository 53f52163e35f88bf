"""Who may open a session: two JSON messages prove knowledge of the join secret before a pair opens.

    worker  -> hello  {protocol, run_id, worker_id, host, nonce, mac}
    learner -> answer {nonce, slot, mac}  or  {refused, mac}

All MACs are HMAC-SHA256 (RFC 2104) under the join secret over everything said so far, compared in constant
time. A recorded hello is of no use: the learner takes each nonce once, and the session keys come from both
nonces. A refusal for a wrong secret cannot be signed in a way that worker could check, so an attacker on the
path can make a worker give up (as it could by cutting the line), never make it talk to a false learner.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from dataclasses import dataclass

from grpo_lib.errors import WrongInput, isolate
from grpo_lib.transport import PROTOCOL
from grpo_lib.transport.frames import SessionKeys, derive_keys

NONCE_BYTES = 32
MIN_SECRET_BYTES = 16
MAX_MESSAGE_BYTES = 4096
_WORKER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEX_64 = re.compile(r"[0-9a-f]{64}")  # a nonce or a MAC
_HELLO_FIELDS = frozenset({"protocol", "run_id", "worker_id", "host", "nonce", "mac"})


@dataclass(frozen=True)
class Hello:
    """What a worker says; a claim until its MAC was found right."""

    worker_id: str
    host: str  # address that the worker's end listens on
    nonce: str  # hex; also names the session's keys in the store
    mac: str


class HandshakeError(Exception):
    """The message cannot be accepted; `reason` is a key of `transport.REASONS`, `hello` what it claimed."""

    def __init__(self, reason: str, hello: Hello | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hello = hello


def check_secret(secret: bytes) -> bytes:
    """Refuse a secret that could be guessed from a recorded hello."""
    if len(secret) < MIN_SECRET_BYTES:
        raise WrongInput(
            ar=f"سرّ الانضمام أقصر من {isolate(MIN_SECRET_BYTES)} بايتًا. ولّده عشوائيًا، ولا تختره بنفسك.",
            en=f"The join secret is shorter than {MIN_SECRET_BYTES} bytes. Generate it, do not choose it.",
        )
    return secret


def check_worker_id(worker_id: str) -> str:
    """A worker id ends up in file names and reports, so only plain characters."""
    if not _WORKER_ID.fullmatch(worker_id):
        raise WrongInput(
            ar=f"معرّف العامل: أحرف لاتينية وأرقام ونقطة وشرطة، حتى {isolate(64)} محرفًا.",
            en="A worker id has Latin letters, digits, dots and dashes, at most 64 characters.",
        )
    return worker_id


def _mac(secret: bytes, purpose: str, *parts: str) -> str:
    return hmac.digest(secret, json.dumps(["grpo-lib-transport", purpose, *parts]).encode(), "sha256").hex()


def _is_mac(claimed: str, expected: str) -> bool:
    return bool(_HEX_64.fullmatch(claimed)) and hmac.compare_digest(claimed, expected)


def _hello_mac(secret: bytes, fields: dict[str, str]) -> str:
    return _mac(secret, "hello", *(fields[name] for name in sorted(_HELLO_FIELDS - {"mac"})))


def _keys(secret: bytes, run_id: str, hello: Hello, nonce: str) -> SessionKeys:
    return derive_keys(secret, bytes.fromhex(hello.nonce), bytes.fromhex(nonce), run_id, hello.worker_id)


def _parse(raw: bytes) -> dict[str, str]:
    """A small JSON object of strings, from somebody we do not know yet."""
    try:
        fields = json.loads(raw) if len(raw) <= MAX_MESSAGE_BYTES else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise HandshakeError("malformed hello")
    return fields


def make_hello(secret: bytes, run_id: str, worker_id: str, host: str) -> tuple[bytes, Hello]:
    """Return the bytes to write and what is needed to check the answer."""
    fields = {"protocol": PROTOCOL, "run_id": run_id, "worker_id": worker_id, "host": host}
    fields["nonce"] = secrets.token_hex(NONCE_BYTES)
    fields["mac"] = _hello_mac(secret, fields)
    return json.dumps(fields).encode(), Hello(worker_id, host, fields["nonce"], fields["mac"])


def check_hello(raw: bytes, secret: bytes, run_id: str) -> Hello:
    """Parse and verify; the MAC comes before every judgement on the content. Raises HandshakeError."""
    fields = _parse(raw)
    if fields.keys() != _HELLO_FIELDS:
        raise HandshakeError("malformed hello")
    if not _WORKER_ID.fullmatch(fields["worker_id"]) or not _HEX_64.fullmatch(fields["nonce"]):
        raise HandshakeError("malformed hello")
    hello = Hello(fields["worker_id"], fields["host"], fields["nonce"], fields["mac"])
    if not _is_mac(hello.mac, _hello_mac(secret, fields)):
        raise HandshakeError("join secret", hello)
    if fields["protocol"] != PROTOCOL:
        raise HandshakeError("protocol", hello)
    if fields["run_id"] != run_id:
        raise HandshakeError("run", hello)
    return hello


def make_answer(secret: bytes, run_id: str, hello: Hello, slot: int) -> tuple[bytes, SessionKeys]:
    """Accept: return the bytes to write and the session's keys."""
    nonce = secrets.token_hex(NONCE_BYTES)
    mac = _mac(secret, "answer", hello.mac, nonce, str(slot))
    answer = json.dumps({"nonce": nonce, "slot": str(slot), "mac": mac}).encode()
    return answer, _keys(secret, run_id, hello, nonce)


def make_refusal(secret: bytes, reason: str, hello: Hello) -> bytes:
    """Refuse. The MAC convinces a worker with the right secret; any other has to take our word."""
    return json.dumps({"refused": reason, "mac": _mac(secret, "refused", hello.mac, reason)}).encode()


def check_answer(raw: bytes, secret: bytes, run_id: str, hello: Hello) -> tuple[SessionKeys, int]:
    """Verify that the learner knows the secret too; returns keys and slot. Raises HandshakeError."""
    answer = _parse(raw)
    mac = answer.get("mac", "")
    if "refused" in answer:
        reason = answer["refused"]
        signed = _is_mac(mac, _mac(secret, "refused", hello.mac, reason))
        raise HandshakeError(reason if signed else "join secret")
    nonce, slot = answer.get("nonce", ""), answer.get("slot", "")
    if not _HEX_64.fullmatch(nonce) or not _is_mac(mac, _mac(secret, "answer", hello.mac, nonce, slot)):
        raise HandshakeError("join secret")
    return _keys(secret, run_id, hello, nonce), int(slot)
