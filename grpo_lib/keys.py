"""Signing keys: Ed25519 (RFC 8032), kept outside every run folder: `python -m grpo_lib.keys create|list|show|rotate|trust`.

A key is a PKCS #8 file of mode 0600 in `$GRPO_KEYS_DIR` (default `~/.config/grpo-lib/keys`), encrypted where
`GRPO_KEY_PASSPHRASE` is set. Its fingerprint is SHA-256 of the DER public key, the same that
`openssl pkey -pubin -in KEY.pub.pem -outform DER | sha256sum` prints; people compare it by telephone. The first run
makes the key `operator` by itself, as SSH does with host keys: a signature binds a run to a key, and only a fingerprint
that came another way binds the key to somebody.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from grpo_lib.errors import GrpoError, WrongInput, isolate
from grpo_lib.ledger import utc_now
from grpo_lib.runfolder import canonical, sha256, write_atomic, write_json

FOLDER_VARIABLE = "GRPO_KEYS_DIR"
PASSPHRASE_VARIABLE = "GRPO_KEY_PASSPHRASE"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Signer:
    """A key that can sign. `public_raw` is its 32 bytes, `fingerprint` 64 hexadecimal digits."""

    name: str
    key: Ed25519PrivateKey = field(repr=False)

    def sign(self, data: bytes) -> bytes:
        """The 64 bytes of an Ed25519 signature."""
        return self.key.sign(data)

    @property
    def public_pem(self) -> bytes:
        return pem_of(self.key.public_key())

    @property
    def public_raw(self) -> bytes:
        return self.key.public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key.public_key())


def folder() -> Path:
    """Where keys are kept.

    Raises:
        WrongInput: the folder lies inside a run folder, which is handed on.
    """
    path = Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".config" / "grpo-lib" / "keys").absolute()
    if any((above / "ledger" / "events.jsonl").exists() for above in (path, *path.parents)):
        raise WrongInput(
            ar=f"مجلد المفاتيح داخل مجلد تشغيل، ومجلد التشغيل يُسلَّم لغيرك. اضبط {isolate(FOLDER_VARIABLE)} على مكان آخر.",
            en=f"The keys folder lies inside a run folder, and run folders are handed on. Set {FOLDER_VARIABLE} to another place.",
        )
    return path


def passphrase() -> bytes | None:
    """What keys are encrypted with, from the environment; None where it is not set."""
    return os.environ.get(PASSPHRASE_VARIABLE, "").encode() or None


def write_private(path: Path, data: bytes) -> None:
    """Write a secret: its folder 0700, the file 0600 from its first byte on, then renamed into place."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def pem_of(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 of the DER SubjectPublicKeyInfo."""
    return sha256(
        key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def grouped(digest: str) -> str:
    """A fingerprint in groups of four, to be read out."""
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))


def create(name: str) -> Signer:
    """A new key. An existing one is never replaced.

    Raises:
        WrongInput: the name is not plain, or there is such a key.
    """
    path = _path(name)
    if path.exists():
        raise WrongInput(
            ar=f"المفتاح {isolate(name)} موجود ولا يُستبدل. استعمل {isolate('rotate')} أو اسمًا آخر.",
            en=f"There is a key {name}, and it is not replaced. Use rotate, or another name.",
        )
    signer = Signer(name, Ed25519PrivateKey.generate())
    _store(path, signer)
    return signer


def load(name: str) -> Signer:
    """An existing key.

    Raises:
        WrongInput: there is none, the passphrase does not open it, or it is no Ed25519 key.
    """
    path = _path(name)
    if not path.is_file():
        raise WrongInput(
            ar=f"لا يوجد مفتاح باسم {isolate(name)}. أنشئه بالأمر {isolate(f'python -m grpo_lib.keys create {name}')}.",
            en=f"There is no key named {name}. Make it with: python -m grpo_lib.keys create {name}",
        )
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), passphrase())
    except (ValueError, TypeError, OSError, UnsupportedAlgorithm) as error:
        raise WrongInput(
            ar=f"لا يُفتح المفتاح {isolate(name)} ({isolate(type(error).__name__)}). صحّح {isolate(PASSPHRASE_VARIABLE)}: "
            "المفتاح المحمي يحتاج عبارته، وغير المحمي لا يقبل عبارة.",
            en=f"The key {name} does not open ({type(error).__name__}). Correct {PASSPHRASE_VARIABLE}: a protected key "
            "needs its passphrase, and one that is not protected takes none.",
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise WrongInput(
            ar=f"المفتاح {isolate(name)} ليس من نوع {isolate('Ed25519')}. أنشئ مفتاحًا باسم آخر.",
            en=f"The key {name} is not an Ed25519 key. Create one under another name.",
        )
    return Signer(name, key)


def load_or_create(name: str) -> Signer:
    """An existing key, or a new one whose fingerprint is said on the terminal."""
    if _path(name).exists():
        return load(name)
    signer = create(name)
    protected = passphrase() is not None
    print(
        f"أُنشئ مفتاح التوقيع {isolate(name)} {'محميًا بعبارة مرور' if protected else 'بلا عبارة مرور'}. بصمته، فدوّنها خارج هذا الجهاز:\n"
        f"Made the signing key {name}, {'protected by a passphrase' if protected else 'without a passphrase'}. "
        f"Its fingerprint; write it down away from this machine:\n  {grouped(signer.fingerprint)}",
        file=sys.stderr,
        flush=True,
    )
    return signer


def rotate(name: str) -> tuple[Signer, Path]:
    """Replace a key: the old one signs a statement that names the new one, and is kept under its fingerprint."""
    old = load(name)
    path = _path(name)
    new = Signer(name, Ed25519PrivateKey.generate())
    body = {
        "schema": "grpo-lib/key-rotation/1",
        "name": name,
        "old_sha256": old.fingerprint,
        "new_sha256": new.fingerprint,
        "new_public_pem": new.public_pem.decode(),
        "time": utc_now(),
    }
    statement = path.with_name(f"{name}.{old.fingerprint[:8]}.rotation.json")
    write_json(statement, body | {"signature": base64.b64encode(old.sign(canonical(body))).decode()})
    for suffix in (".pem", ".pub.pem"):
        os.replace(path.with_name(name + suffix), path.with_name(f"{name}.{old.fingerprint[:8]}{suffix}"))
    _store(path, new)
    return new, statement


def trust(file: Path, name: str, governance: Path) -> str:
    """Put a public key among those whose signatures count; returns its fingerprint."""
    _path(name)
    key = read_public(file)
    write_atomic(governance / "trusted" / f"{name}.pub.pem", pem_of(key))
    return fingerprint(key)


def trusted(governance: Path) -> dict[str, Ed25519PublicKey]:
    """Fingerprint -> key of everybody whose signatures count; files that are no keys are left out."""
    found = {}
    for path in sorted((governance / "trusted").glob("*.pub.pem")):
        try:
            key = read_public(path)
        except WrongInput:
            continue
        found[fingerprint(key)] = key
    return found


def read_public(path: Path) -> Ed25519PublicKey:
    """A public key in PEM.

    Raises:
        WrongInput: there is no such file, or it holds no Ed25519 public key.
    """
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
        if isinstance(key, Ed25519PublicKey):
            return key
        problem = type(key).__name__
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        problem = type(error).__name__
    raise WrongInput(
        ar=f"{isolate(path.name)} ليس مفتاحًا عامًا من نوع {isolate('Ed25519')} ({isolate(problem)}). اطلب ملف {isolate('.pub.pem')} من صاحبه.",
        en=f"{path.name} is no Ed25519 public key ({problem}). Ask its owner for the .pub.pem file.",
    )


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise WrongInput(
            ar=f"اسم المفتاح {isolate(name)} غير مقبول: حروف لاتينية صغيرة وأرقام و{isolate('- _ .')} فقط.",
            en=f"The key name {name!r} is not plain: lower-case Latin letters, digits, '-', '_' and '.' only.",
        )
    return folder() / f"{name}.pem"


def _store(path: Path, signer: Signer) -> None:
    words = passphrase()
    cipher = serialization.BestAvailableEncryption(words) if words else serialization.NoEncryption()
    private = signer.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, cipher)
    write_private(path, private)
    write_atomic(path.with_name(f"{signer.name}.pub.pem"), signer.public_pem)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m grpo_lib.keys", description="مفاتيح التوقيع. Signing keys."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    texts = {"create": "مفتاح جديد / a new key", "show": "بصمة مفتاح / a key's fingerprint"}
    texts |= {"rotate": "استبدال مفتاح / replace a key"}
    for command, text in texts.items():
        commands.add_parser(command, help=text).add_argument("name", nargs="?", default="operator")
    commands.add_parser("list", help="كل المفاتيح / all keys")
    one = commands.add_parser("trust", help="اعتمد مفتاح شخص / let a person's signatures count")
    one.add_argument("file", type=Path, help="ملف المفتاح العام / public key file")
    one.add_argument("--as", dest="name", required=True, help="اسم صاحبه / whose it is")
    one.add_argument("--governance-dir", type=Path, default=Path("governance"))
    options = parser.parse_args(arguments)
    try:
        _run(options)
    except GrpoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _run(options: Any) -> None:
    match options.command:
        case "create":
            print(grouped(create(options.name).fingerprint))
        case "show":
            signer = load(options.name)
            print(signer.public_pem.decode() + grouped(signer.fingerprint))
        case "rotate":
            signer, statement = rotate(options.name)
            print(f"{grouped(signer.fingerprint)}\n{statement.name}")
        case "trust":
            print(grouped(trust(options.file, options.name, options.governance_dir)))
        case "list":
            for path in sorted(folder().glob("*.pub.pem")):
                print(f"{path.name.removesuffix('.pub.pem')}\t{grouped(fingerprint(read_public(path)))}")


if __name__ == "__main__":
    sys.exit(main())
