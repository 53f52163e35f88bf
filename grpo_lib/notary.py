"""Signs the ledger while a run goes on: a thread of the launcher, which holds the key; learner and workers never do.

A head is due after each event that others rely on. The thread reads only what was appended since its last look, so its
cost does not grow with the ledger; `seconds` adds up what signing took.
"""

from __future__ import annotations

import json
import threading
import time

from grpo_lib import treeheads
from grpo_lib.keys import Signer
from grpo_lib.runfolder import RunFolder

DUE = {
    "gate_decided",
    "checkpoint_saved",
    "training_finished",
    "evaluated",
    "run_ended",
    "report_built",
    "statement_signed",
    "purged",
    "release_decided",
    "class_lowered",
}
_POLL_S = 1.0


class Notary:
    """Watches one run's ledger until it is closed.

    Args:
        run: the run folder.
        signer: the operator's key.
    """

    def __init__(self, run: RunFolder, signer: Signer):
        self._run, self._signer = run, signer
        self._tree, self._offset, self._signed = treeheads.Tree(), 0, 0
        self._lock, self._closed = threading.Lock(), threading.Event()
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._watch, name="notary", daemon=True)
        self._thread.start()

    def sign_now(self) -> None:
        """Sign every whole line that is there."""
        self._look(always=True)

    def close(self) -> None:
        """Sign once more and end."""
        self._closed.set()
        self._thread.join()
        self.sign_now()

    def __enter__(self) -> Notary:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        while not self._closed.wait(_POLL_S):
            self._look(always=False)

    def _look(self, always: bool) -> None:
        with self._lock:
            begun = time.perf_counter()
            due = always
            for line in self._new_lines():
                self._tree.add(line)
                due = due or _event(line) in DUE
            if due and self._tree.size > self._signed:
                treeheads.write_head(self._run, self._signer, self._tree.size, self._tree.root())
                self._signed = self._tree.size
            self.seconds += time.perf_counter() - begun

    def _new_lines(self) -> list[bytes]:
        try:
            with self._run.ledger.open("rb") as handle:
                handle.seek(self._offset)
                raw = handle.read()
        except FileNotFoundError:
            return []
        whole = raw[: raw.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.split(b"\n")[:-1]


def _event(line: bytes) -> str | None:
    try:
        return json.loads(line).get("event")
    except (ValueError, AttributeError):  # torn by a crash; the next writer says so
        return None
