"""The vault: the key of a run, kept outside the run folder, and files sealed under it.

The run key (32 random bytes) is a file of the keys folder, mode 0600, wrapped by AES-256-GCM under a key that scrypt
(RFC 7914) makes of `GRPO_KEY_PASSPHRASE` where that is set. It reaches the learner in the environment variable
`GRPO_RUN_KEY` alone; root and other processes of the same user can read it there while the learner lives.

Sealing is AES-256-GCM (NIST SP 800-38D) with a random nonce under a key derived by HKDF (RFC 5869). Run id, record
number, size and the key's name are authenticated, so that a file of another run or in another's place does not open.
What goes into the ledger about sealed data is HMAC-SHA-256 under a second derived key: whoever holds a plain digest
of a short row can guess the row.
"""

from __future__ import annotations

import hmac
import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from grpo_lib import keys
from grpo_lib.errors import WrongInput, isolate
from grpo_lib.ledger import read_events, utc_now
from grpo_lib.runfolder import RunFolder, canonical

KEY_VARIABLE = "GRPO_RUN_KEY"
_KEY_SCHEMA = "grpo-lib/run-key/1"
_SEAL_SCHEMA = "grpo-lib/sealed/1"
_KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 12, 16
# About 0.3 s and 128 MiB for each guess at a passphrase.
_SCRYPT = {"n": 1 << 17, "r": 8, "p": 1}


# ------------------------------------------------------------------------------------------------- the run key


@dataclass(frozen=True)
class RunKey:
    """The secret of one run. Its name tells keys apart and gives nothing of the secret away."""

    run_id: str
    secret: bytes = field(repr=False)

    def _derive(self, purpose: str) -> bytes:
        info = f"grpo-lib/{purpose}/1|{self.run_id}".encode()
        return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=info).derive(self.secret)

    @cached_property
    def name(self) -> str:
        return self._derive("name")[:8].hex()

    @cached_property
    def cipher(self) -> AESGCM:
        return AESGCM(self._derive("seal"))

    @cached_property
    def _digest_key(self) -> bytes:
        return self._derive("digest")

    def digest(self, data: bytes) -> str:
        """Keyed digest of what may not be guessed: HMAC-SHA-256, 64 hexadecimal digits."""
        return hmac.digest(self._digest_key, data, "sha256").hex()


def key_path(run_id: str) -> Path:
    """Where the key of a run is kept."""
    return keys.folder() / "runs" / f"{run_id}.key"


def create_key(run_id: str) -> RunKey:
    """A fresh key, stored in the keys folder before it is used.

    Raises:
        WrongInput: the run has a key. It is never replaced: what is sealed under it could not be read any more.
    """
    if key_path(run_id).exists():
        raise WrongInput(
            ar=f"للتشغيل {isolate(run_id)} مفتاح، ولا يُستبدل. استعمله أو اختر {isolate('run_id')} جديدًا.",
            en=f"Run {run_id} has a key, and it is not replaced. Use it, or choose a new run_id.",
        )
    secret, passphrase = os.urandom(_KEY_BYTES), keys.passphrase()
    stored: dict[str, Any] = {"schema": _KEY_SCHEMA, "run_id": run_id, "created": utc_now(), "wrap": None}
    if passphrase is None:
        stored["key"] = secret.hex()
    else:
        salt, nonce = os.urandom(16), os.urandom(_NONCE_BYTES)
        stored["wrap"] = {"kdf": "scrypt", **_SCRYPT, "salt": salt.hex(), "nonce": nonce.hex()}
        wrapping = AESGCM(Scrypt(salt=salt, length=_KEY_BYTES, **_SCRYPT).derive(passphrase))
        stored["key"] = wrapping.encrypt(nonce, secret, run_id.encode()).hex()
    keys.write_private(key_path(run_id), json.dumps(stored, indent=1).encode() + b"\n")
    return RunKey(run_id, secret)


def load_key(run_id: str) -> RunKey:
    """The stored key of a run.

    Raises:
        WrongInput: there is none, it is damaged, or the passphrase is missing or wrong.
    """
    path = key_path(run_id)
    try:
        stored = json.loads(path.read_bytes())
        sealed, wrap = bytes.fromhex(stored["key"]), stored["wrap"]
        if stored["schema"] != _KEY_SCHEMA or stored["run_id"] != run_id:
            raise ValueError(stored["schema"])
        secret = sealed if wrap is None else _unwrapped(run_id, sealed, wrap)
        if len(secret) != _KEY_BYTES:
            raise ValueError(len(secret))
    except FileNotFoundError:
        raise WrongInput(
            ar=f"لا يوجد مفتاح للتشغيل {isolate(run_id)} في مجلد المفاتيح. إن كان قد أُتلف فبياناته المختومة لا تُقرأ بعد الآن؛ "
            f"وإلا فاضبط {isolate('GRPO_KEYS_DIR')} على المجلد الصحيح.",
            en=f"There is no key of run {run_id} in the keys folder. If it was destroyed, the sealed data cannot be read "
            "any more; else set GRPO_KEYS_DIR to the right folder.",
        ) from None
    except (ValueError, KeyError, TypeError):
        raise WrongInput(
            ar=f"ملف المفتاح {isolate(path.name)} تالف أو لتشغيل آخر. استعده من نسخة احتياطية.",
            en=f"The key file {path.name} is damaged or belongs to another run. Restore it from a backup.",
        ) from None
    return RunKey(run_id, secret)


def _unwrapped(run_id: str, sealed: bytes, wrap: dict[str, Any]) -> bytes:
    passphrase = keys.passphrase()
    cost = {name: wrap[name] for name in _SCRYPT}
    if passphrase is None:
        raise WrongInput(
            ar=f"مفتاح التشغيل {isolate(run_id)} محمي بعبارة مرور. اضبط متغير البيئة {isolate(keys.PASSPHRASE_VARIABLE)}.",
            en=f"The key of run {run_id} is wrapped with a passphrase. Set {keys.PASSPHRASE_VARIABLE}.",
        )
    wrapping = AESGCM(Scrypt(salt=bytes.fromhex(wrap["salt"]), length=_KEY_BYTES, **cost).derive(passphrase))
    try:
        return wrapping.decrypt(bytes.fromhex(wrap["nonce"]), sealed, run_id.encode())
    except InvalidTag:
        raise WrongInput(
            ar=f"عبارة المرور لا تفتح مفتاح التشغيل {isolate(run_id)}. صحّح {isolate(keys.PASSPHRASE_VARIABLE)}، "
            "أو استعد ملف المفتاح إن كان قد تغيّر.",
            en=f"The passphrase does not open the key of run {run_id}. Correct {keys.PASSPHRASE_VARIABLE}, or restore "
            "the key file if it has been changed.",
        ) from None


def destroy_key(run_id: str) -> bool:
    """Remove the key file, and drafts of it that a crash left; True if there was a key. What is sealed stays so."""
    path = key_path(run_id)
    found = path.exists()
    for one in [path, *path.parent.glob(f".{path.name}.*")]:
        one.unlink(missing_ok=True)
    return found


def check_resumable(run: RunFolder) -> None:
    """Refuse a run that was purged: that is final.

    Raises:
        WrongInput: its data and its key are gone.
    """
    if any(event.get("event") in ("purge_started", "purged") for event in read_events(run.ledger)):
        raise WrongInput(
            ar=f"أُتلفت بيانات التشغيل {isolate(run.run_id)} ومفتاحه، فلا يُستأنف. اختر {isolate('run_id')} جديدًا.",
            en=f"The data and the key of run {run.run_id} were purged; it cannot be resumed. Choose a new run_id.",
        )


def key_for_launch(run: RunFolder) -> RunKey:
    """The run's key, made on its first launch.

    Raises:
        WrongInput: records are sealed already but their key is gone, so that a new key would leave them unreadable for
            good; or the run was purged.
    """
    check_resumable(run)
    sealed_already = any(run.rollouts.glob("*.sealed"))
    return load_key(run.run_id) if sealed_already or key_path(run.run_id).exists() else create_key(run.run_id)


def key_from_environment(run_id: str) -> RunKey:
    """The key that the launcher handed to this process; taken out of the environment, so that no child inherits it.

    Raises:
        WrongInput: the variable is missing or holds no key.
    """
    try:
        secret = bytes.fromhex(os.environ.pop(KEY_VARIABLE, ""))
    except ValueError:
        secret = b""
    if len(secret) != _KEY_BYTES:
        raise WrongInput(
            ar=f"متغير البيئة {isolate(KEY_VARIABLE)} مفقود أو ليس مفتاحًا من 64 رقمًا ست عشريًا. يضعه مُطلِق التشغيل.",
            en=f"The environment variable {KEY_VARIABLE} is missing or is no key of 64 hexadecimal digits. "
            "The launcher of the run sets it.",
        )
    return RunKey(run_id, secret)


# ---------------------------------------------------------------------------------------------------- sealing


def seal(key: RunKey, number: int, data: bytes) -> bytes:
    """`data` sealed as record `number`: one readable header line, then the ciphertext with its tag."""
    nonce = os.urandom(_NONCE_BYTES)
    header = canonical(
        {"schema": _SEAL_SCHEMA, "record": number, "bytes": len(data), "key": key.name, "nonce": nonce.hex()}
    )
    return header + b"\n" + key.cipher.encrypt(nonce, data, _bound(key, number, header))


def unseal(key: RunKey, number: int, blob: bytes, name: str) -> bytes:
    """What `seal` sealed as record `number`; `name` is the file's, for the message.

    Raises:
        WrongInput: another key, a file in another's place, a cut file, or a changed one.
    """
    head, _, sealed = blob.partition(b"\n")
    try:
        header = json.loads(head)
        nonce = bytes.fromhex(header["nonce"])
        known = header["schema"] == _SEAL_SCHEMA and len(nonce) == _NONCE_BYTES
        maker, record, size = header["key"], header["record"], header["bytes"]
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise broken(name, "ليس ملفًا مختومًا من هذه الحزمة", "is not a file that this suite sealed")
    if maker != key.name:
        raise broken(
            name,
            f"مختوم بمفتاح آخر ({isolate(maker)}) والمعطى {isolate(key.name)}",
            f"is sealed with another key ({maker}); the one given is {key.name}",
        )
    if record != number:
        raise broken(
            name,
            f"وُضع مكان غيره: رقمه المختوم {isolate(record)}",
            f"stands in another's place: sealed as {record}",
        )
    if not isinstance(size, int) or len(sealed) != size + _TAG_BYTES:
        raise broken(
            name,
            f"مبتور: {isolate(len(sealed) - _TAG_BYTES)} من {isolate(size)} بايت",
            f"is cut: {len(sealed) - _TAG_BYTES} of {size} bytes",
        )
    try:
        return key.cipher.decrypt(nonce, sealed, _bound(key, number, head))
    except InvalidTag:
        raise broken(name, "تغيّر بعد ختمه", "was changed after it was sealed") from None


def _bound(key: RunKey, number: int, header: bytes) -> bytes:
    return f"{key.run_id}|{number}|".encode() + header


def broken(name: str, ar: str, en: str) -> WrongInput:
    return WrongInput(
        ar=f"الملف {isolate(name)} {ar}. استعده من نسخة احتياطية أو أعط المفتاح الصحيح.",
        en=f"{name} {en}. Restore it from a backup, or give the right key.",
    )
