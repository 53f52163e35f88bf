"""Signed tree heads: one short text says how many lines the ledger had, and signs the root over all of them.

The text is a C2SP signed note (https://c2sp.org/signed-note) whose body is a checkpoint (https://c2sp.org/tlog-checkpoint):

    grpo-lib/RUN_ID
    <number of lines>
    <base64 of the RFC 6962 root over the lines, each without its line feed>

    — <key name> <base64 of 4 bytes of key hash, then the Ed25519 signature over the body>

A witness adds a line of its own (https://c2sp.org/tlog-cosignature, cosignature/v1), which carries a time. Whoever
holds a head can tell whether the lines it covers were changed, and whether any were cut. Lines after the last head are
covered by the chain alone.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grpo_lib import keys
from grpo_lib.errors import WrongInput
from grpo_lib.runfolder import RunFolder, write_atomic

ED25519, COSIGNATURE = 0x01, 0x04
PUBLIC_KEY = "operator.pub.pem"


def leaf(line: bytes) -> bytes:
    """RFC 6962, 2.1: SHA-256(0x00 || line)."""
    return hashlib.sha256(b"\x00" + line).digest()


def node(left: bytes, right: bytes) -> bytes:
    """RFC 6962, 2.1: SHA-256(0x01 || left || right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """The RFC 6962 tree of lines so far, as the roots of its full subtrees: adding and asking cost log(n)."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[tuple[int, bytes]] = []  # (height, root), the tallest first

    def add(self, line: bytes) -> None:
        height, root = 0, leaf(line)
        while self._peaks and self._peaks[-1][0] == height:
            root = node(self._peaks.pop()[1], root)
            height += 1
        self._peaks.append((height, root))
        self.size += 1

    def root(self) -> bytes:
        if not self._peaks:
            return hashlib.sha256(b"").digest()
        root = self._peaks[-1][1]
        for _, left in reversed(self._peaks[:-1]):
            root = node(left, root)
        return root


def merkle_root(lines: list[bytes]) -> bytes:
    """RFC 6962 root over lines."""
    tree = Tree()
    for line in lines:
        tree.add(line)
    return tree.root()


def whole_lines(path: Path) -> list[bytes]:
    """Lines of the ledger that end with a line feed; one torn by a crash is not signed until it was closed."""
    raw = path.read_bytes() if path.is_file() else b""
    return raw[: raw.rfind(b"\n") + 1].split(b"\n")[:-1]


def body(run_id: str, size: int, root: bytes) -> bytes:
    """What is signed."""
    return f"grpo-lib/{run_id}\n{size}\n{base64.b64encode(root).decode()}\n".encode()


def key_hash(name: str, kind: int, public_raw: bytes) -> bytes:
    """C2SP signed note: the first 4 bytes of SHA-256(name || 0x0A || kind || public key)."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public_raw).digest()[:4]


def signature_line(signer: keys.Signer, text: bytes) -> bytes:
    raw = key_hash(signer.name, ED25519, signer.public_raw) + signer.sign(text)
    return f"— {signer.name} {base64.b64encode(raw).decode()}\n".encode()


def cosigned_text(text: bytes, time: int) -> bytes:
    """What a witness signs: cosignature/v1 over its time in Unix seconds and the body."""
    return f"cosignature/v1\ntime {time}\n".encode() + text


def cosignature_line(signer: keys.Signer, text: bytes, time: int) -> bytes:
    signature = signer.sign(cosigned_text(text, time))
    raw = key_hash(signer.name, COSIGNATURE, signer.public_raw) + struct.pack(">Q", time) + signature
    return f"— {signer.name} {base64.b64encode(raw).decode()}\n".encode()


def sign_head(run: RunFolder, signer: keys.Signer, lines: list[bytes] | None = None) -> Path | None:
    """Sign the ledger as it stands; None when it has no line. A head of this size that stands already is kept."""
    lines = whole_lines(run.ledger) if lines is None else lines
    return write_head(run, signer, len(lines), merkle_root(lines)) if lines else None


def write_head(run: RunFolder, signer: keys.Signer, size: int, root: bytes) -> Path:
    public = run.tree_heads / PUBLIC_KEY
    if not public.is_file() or public.read_bytes() != signer.public_pem:
        write_atomic(public, signer.public_pem)
    path = run.tree_heads / f"{size:09d}.note"
    if not path.is_file():
        text = body(run.run_id, size, root)
        write_atomic(path, text + b"\n" + signature_line(signer, text))
    return path


@dataclass(frozen=True)
class Head:
    """A tree head as it was read; nothing about it has been checked."""

    path: Path
    size: int
    root: str
    signer: str
    witness: str | None = None
    witnessed_at: str | None = None


def parse(raw: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    """(body, [(key name, key hash and signature)]) of a note.

    Raises:
        ValueError: it is no signed note.
    """
    text, gap, tail = raw.partition(b"\n\n")
    if not gap:
        raise ValueError("no signatures")
    found = []
    for line in tail.decode("utf-8").splitlines():
        mark, name, encoded = line.split(" ")
        if mark != "—":
            raise ValueError("a line that is no signature")
        found.append((name, base64.b64decode(encoded, validate=True)))
    return text + b"\n", found


def read(run: RunFolder) -> list[Head]:
    """Every tree head in order of size, with the newest witness where one cosigned it. Unreadable ones are left out."""
    heads: dict[int, Head] = {}
    for path in sorted(run.tree_heads.glob("*.note")):
        try:
            text, signatures = parse(path.read_bytes())
            _, size, root = text.decode("utf-8").splitlines()
            entry: dict[str, Any] = {"path": path, "size": int(size), "signer": signatures[0][0]}
            entry["root"] = base64.b64decode(root, validate=True).hex()
            times = [(name, struct.unpack(">Q", raw[4:12])[0]) for name, raw in signatures if len(raw) == 76]
        except (OSError, ValueError, IndexError, struct.error):
            continue
        if times:
            name, time = times[-1]
            moment = datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")
            entry |= {"witness": name, "witnessed_at": moment}
        if times or entry["size"] not in heads:
            heads[entry["size"]] = Head(**entry)
    return [heads[size] for size in sorted(heads)]


def stored_fingerprint(run: RunFolder) -> str | None:
    """Fingerprint of the public key that lies beside the heads; it proves nothing by itself."""
    try:
        return keys.fingerprint(keys.read_public(run.tree_heads / PUBLIC_KEY))
    except WrongInput:
        return None
