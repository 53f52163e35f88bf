"""Who may open a session: two JSON messages prove knowledge of the join secret before a pair opens.

    worker  -> hello  {protocol, run_id, worker_id, slot, host, nonce, mac}
    learner -> answer {nonce, mac}  or  {refused, mac}

Both MACs are HMAC-SHA256 (RFC 2104) under the join secret over everything said so far, compared in constant
time. The slot is in the MAC, so a recorded hello cannot be used again elsewhere; its owner's keys would be
needed to go on in any case, because the session keys come from both nonces. A refusal for a wrong secret
cannot be signed in a way the worker could check: an attacker on the path can make a worker give up (as it
could by cutting the line), never make it talk to a false learner.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from dataclasses import dataclass

from grpo_lib.errors import WrongInput
from grpo_lib.transport import PROTOCOL
from grpo_lib.transport.frames import SessionKeys, derive_keys

NONCE_BYTES = 32
MIN_SECRET_BYTES = 16
MAX_HELLO_BYTES = 4096
_WORKER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEX_64 = re.compile(r"[0-9a-f]{64}")  # a nonce or a MAC
_FIELDS = {
    "protocol": str,
    "run_id": str,
    "worker_id": str,
    "slot": int,
    "host": str,
    "nonce": str,
    "mac": str,
}


class HandshakeError(Exception):
    """The message cannot be accepted; `reason` is a key of `transport.REASONS`, `worker_id` a mere claim."""

    def __init__(self, reason: str, worker_id: str = "unknown") -> None:
        super().__init__(reason)
        self.reason = reason
        self.worker_id = worker_id


@dataclass(frozen=True)
class Hello:
    """A hello whose MAC was right."""

    worker_id: str
    slot: int
    host: str  # address that the worker's end listens on
    nonce: bytes
    mac: str


def check_secret(secret: bytes) -> bytes:
    """Refuse a secret that could be guessed from a recorded hello."""
    if len(secret) < MIN_SECRET_BYTES:
        raise WrongInput(
            ar=f"سرّ الانضمام أقصر من {MIN_SECRET_BYTES} بايتًا. ولّده عشوائيًا، ولا تختره بنفسك.",
            en=f"The join secret is shorter than {MIN_SECRET_BYTES} bytes. Generate it, do not choose it.",
        )
    return secret


def check_worker_id(worker_id: str) -> str:
    """A worker id ends up in file names and reports, so only plain characters."""
    if not _WORKER_ID.fullmatch(worker_id):
        raise WrongInput(
            ar="معرّف العامل: أحرف لاتينية وأرقام ونقطة وشرطة، حتى 64 محرفًا.",
            en="A worker id has Latin letters, digits, dots and dashes, at most 64 characters.",
        )
    return worker_id


def _mac(secret: bytes, purpose: str, *parts: str) -> str:
    return hmac.digest(secret, json.dumps(["grpo-lib-transport", purpose, *parts]).encode(), "sha256").hex()


def _is_hex(*texts: str) -> bool:
    return all(_HEX_64.fullmatch(text) for text in texts)


def _canonical(fields: dict) -> str:
    return json.dumps({k: v for k, v in fields.items() if k != "mac"}, sort_keys=True)


def make_hello(secret: bytes, run_id: str, worker_id: str, slot: int, host: str) -> tuple[bytes, Hello]:
    """Return the bytes to write and what is needed to check the answer."""
    fields = {"protocol": PROTOCOL, "run_id": run_id, "worker_id": worker_id, "slot": slot, "host": host}
    fields["nonce"] = secrets.token_hex(NONCE_BYTES)
    fields["mac"] = _mac(secret, "hello", _canonical(fields))
    return json.dumps(fields).encode(), Hello(
        worker_id, slot, host, bytes.fromhex(fields["nonce"]), fields["mac"]
    )


def check_hello(raw: bytes, secret: bytes, run_id: str, slot: int) -> Hello:
    """Parse and verify; the MAC comes before every judgement on the content. Raises HandshakeError."""
    try:
        fields = json.loads(raw) if len(raw) <= MAX_HELLO_BYTES else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or any(type(fields.get(k)) is not t for k, t in _FIELDS.items()):
        raise HandshakeError("malformed hello")
    if not _WORKER_ID.fullmatch(fields["worker_id"]) or not _is_hex(fields["nonce"], fields["mac"]):
        raise HandshakeError("malformed hello")
    worker_id = fields["worker_id"]
    mac = _mac(secret, "hello", _canonical(fields))
    if not hmac.compare_digest(mac, fields["mac"]):
        raise HandshakeError("join secret", worker_id)
    if fields["protocol"] != PROTOCOL:
        raise HandshakeError("protocol", worker_id)
    if fields["run_id"] != run_id:
        raise HandshakeError("run", worker_id)
    if fields["slot"] != slot:
        raise HandshakeError("malformed hello", worker_id)
    return Hello(worker_id, slot, fields["host"], bytes.fromhex(fields["nonce"]), mac)


def make_answer(secret: bytes, run_id: str, hello: Hello) -> tuple[bytes, SessionKeys]:
    """Accept: return the bytes to write and the session's keys."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    answer = {"nonce": nonce.hex(), "mac": _mac(secret, "answer", hello.mac, nonce.hex())}
    return json.dumps(answer).encode(), derive_keys(secret, hello.nonce, nonce, run_id, hello.worker_id)


def make_refusal(secret: bytes, reason: str, hello_mac: str = "") -> bytes:
    """Refuse: signed when the hello's MAC was right, otherwise as good as unsigned (see above)."""
    return json.dumps({"refused": reason, "mac": _mac(secret, "refused", hello_mac, reason)}).encode()


def check_answer(raw: bytes, secret: bytes, run_id: str, hello: Hello) -> SessionKeys:
    """The worker's side: verify that the learner knows the secret too. Raises HandshakeError."""
    try:
        answer = json.loads(raw) if len(raw) <= MAX_HELLO_BYTES else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not all(type(v) is str for v in answer.values()):
        raise HandshakeError("malformed hello")
    if "refused" in answer:
        raise HandshakeError(answer["refused"][:64])
    nonce, mac = answer.get("nonce", ""), answer.get("mac", "")
    if not _is_hex(nonce, mac) or not hmac.compare_digest(_mac(secret, "answer", hello.mac, nonce), mac):
        raise HandshakeError("join secret")
    return derive_keys(secret, hello.nonce, bytes.fromhex(nonce), run_id, hello.worker_id)
