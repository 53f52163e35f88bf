"""A witness: another key, another process, better another person, who cosigns what the operator signed.

    python -m grpo_lib.witness runs/RUN_ID --key auditor [--operator FINGERPRINT] [--once]

It remembers, in a folder of its own, the last head it cosigned. A new head gets its signature only when the operator's
signature holds, the root is that of the lines that are there, and those lines begin with the ones it remembers. So an
operator who rewrites the ledger and signs again cannot get a second version cosigned, and the first is in two hands.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature

from grpo_lib import keys, treeheads
from grpo_lib.errors import GrpoError, StoppedByHealth, WrongInput, isolate
from grpo_lib.ledger import read_events
from grpo_lib.runfolder import RunFolder, write_atomic, write_json

_POLL_S = 1.0


class Rewritten(StoppedByHealth):
    """The ledger is not an extension of what the witness has seen."""

    def __init__(self, size: int, why_ar: str, why_en: str):
        super().__init__(
            ar=f"لا يشهد الشاهد على هذا السجل عند {isolate(size)} سطرًا: {why_ar}. احفظ المجلد كما هو وأبلغ من يدقق.",
            en=f"The witness does not cosign this ledger at {size} lines: {why_en}. Keep the folder as it is and tell the auditor.",
        )


class Witness:
    """Cosigns the tree heads of one run.

    Args:
        run: the run folder that the operator writes.
        signer: the witness's own key.
        state: folder of the witness, out of the operator's reach.
        operator: fingerprint of the operator's key, from outside; None takes the key of the first head and remembers it.
    """

    def __init__(self, run: RunFolder, signer: keys.Signer, state: Path, operator: str | None = None):
        self._run, self._signer = run, signer
        self._path = state / f"{run.run_id}.json"
        self._seen: dict[str, Any] = self._remembered()
        self._operator = operator or self._seen.get("operator_sha256")
        if state.absolute().is_relative_to(run.root):
            raise WrongInput(
                ar="مجلد حالة الشاهد داخل مجلد التشغيل، أي في متناول المشغّل. اختر مكانًا آخر.",
                en="The witness's state lies inside the run folder, within the operator's reach. Choose another place.",
            )

    def look(self) -> int | None:
        """Cosign the newest head if it is new; returns its size, or None when there was nothing to cosign.

        Raises:
            Rewritten: what is there contradicts what was cosigned before, or does not hold.
        """
        heads = [path for path in sorted(self._run.tree_heads.glob("*.note")) if "witness" not in path.name]
        if not heads:
            return None
        text, signatures = treeheads.parse(heads[-1].read_bytes())
        origin, size_text, root_text = text.decode("utf-8").splitlines()
        size, root = int(size_text), base64.b64decode(root_text, validate=True)
        if size == self._seen.get("size") and root.hex() == self._seen.get("root"):
            return None
        lines = treeheads.whole_lines(self._run.ledger)
        if origin != f"grpo-lib/{self._run.run_id}":
            raise Rewritten(size, "رأس الشجرة لتشغيل آخر", "the tree head is of another run")
        self._check_signature(size, text, signatures)
        if size < self._seen.get("size", 0):
            raise Rewritten(size, "السجل أقصر مما شوهد من قبل", "the ledger is shorter than it was")
        if len(lines) < size or treeheads.merkle_root(lines[:size]) != root:
            raise Rewritten(size, "الجذر ليس جذر الأسطر الموجودة", "the root is not that of the lines")
        if self._seen and treeheads.merkle_root(lines[: self._seen["size"]]).hex() != self._seen["root"]:
            raise Rewritten(
                size, "تغيرت أسطر شهد عليها من قبل", "lines that were cosigned before have changed"
            )
        moment = int(time.time())
        line = treeheads.cosignature_line(self._signer, text, moment)
        note = heads[-1].read_bytes() + line
        self._seen = {"size": size, "root": root.hex(), "time": moment, "operator_sha256": self._operator}
        write_json(self._path, self._seen)
        write_atomic(self._path.with_suffix(".note"), note)
        write_atomic(self._run.tree_heads / f"{size:09d}.witness.note", note)
        write_atomic(self._run.tree_heads / "witness.pub.pem", self._signer.public_pem)
        return size

    def _check_signature(self, size: int, text: bytes, signatures: list[tuple[str, bytes]]) -> None:
        key = keys.read_public(self._run.tree_heads / treeheads.PUBLIC_KEY)
        self._operator = self._operator or keys.fingerprint(key)
        if keys.fingerprint(key) != self._operator:
            raise Rewritten(
                size, "المفتاح ليس مفتاح المشغّل المعروف", "the key is not the operator's known one"
            )
        if keys.fingerprint(key) == self._signer.fingerprint:
            raise WrongInput(
                ar="مفتاح الشاهد هو مفتاح المشغّل نفسه، فلا معنى لشهادته. أنشئ مفتاحًا آخر.",
                en="The witness's key is the operator's own, so its word adds nothing. Create another key.",
            )
        name, raw = signatures[0]
        expected = treeheads.key_hash(name, treeheads.ED25519, key.public_bytes_raw())
        try:
            if raw[:4] != expected:
                raise InvalidSignature
            key.verify(raw[4:], text)
        except InvalidSignature:
            raise Rewritten(size, "توقيع المشغّل لا يصح", "the operator's signature does not hold") from None

    def _remembered(self) -> dict[str, Any]:
        try:
            return json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            raise WrongInput(
                ar=f"ذاكرة الشاهد {isolate(self._path.name)} تالفة. لا تحذفها؛ استعدها من نسخة.",
                en=f"The witness's memory {self._path.name} is damaged. Do not delete it; restore it from a copy.",
            ) from None


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m grpo_lib.witness",
        description="يشهد على سجل تشغيل بمفتاح آخر. Cosigns the ledger of a run with another key.",
    )
    parser.add_argument("run_dir", type=Path, help="مجلد التشغيل / the run folder")
    parser.add_argument("--key", default="witness", help="مفتاح الشاهد / the witness's key")
    parser.add_argument("--state", type=Path, help="ذاكرة الشاهد / where the witness remembers")
    parser.add_argument(
        "--operator", help="بصمة مفتاح المشغّل من خارج المجلد / the operator's fingerprint, from outside"
    )
    parser.add_argument("--once", action="store_true", help="مرة واحدة ثم انته / look once and end")
    options = parser.parse_args(arguments)
    try:
        run = RunFolder(options.run_dir)
        state = options.state or keys.folder().parent / "witness"
        operator = "".join((options.operator or "").split()).lower() or None
        witness = Witness(run, keys.load_or_create(options.key), state, operator)
        _watch(witness, run, options.once)
    except GrpoError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        pass
    return 0


def _watch(witness: Witness, run: RunFolder, once: bool) -> None:
    while True:
        ended = any(event.get("event") == "run_ended" for event in read_events(run.ledger)[-8:])
        size = witness.look()
        if size is not None:
            print(f"شهد الشاهد على {isolate(size)} سطرًا | cosigned {size} lines", flush=True)
        if once or (ended and size is None):
            return
        time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(main())
