"""The closing statement of a run: an in-toto Statement (v1) in a DSSE envelope, signed with the operator's key.

Its subjects are the files that a run is judged by, each with its SHA-256: adapters, data manifest, settings, decision,
packs, screen, observed network, reports. Its predicate holds what is no file: size, root and head of the ledger, and
whether the reports are drafts. DSSE signs PAE(type, payload) = "DSSEv1" SP len(type) SP type SP len(payload) SP payload
(https://github.com/secure-systems-lab/dsse); that one line is written here rather than taken from a library, since the
verifier must not need one either.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from grpo_lib import __version__, treeheads
from grpo_lib.keys import Signer
from grpo_lib.ledger import Ledger
from grpo_lib.runfolder import RunFolder, canonical, file_sha256, sha256, write_json

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:grpo-lib:training-run:1"

# What a complete run's ledger holds at least once; a verifier prints the list and says which are missing.
EXPECTED_EVENTS = (
    "run_started",
    "data_declared",
    "pii_screened",
    "gate_decided",
    "process_started",
    "base_loaded",
    "worker_joined",
    "adapter_published",
    "step",
    "checkpoint_saved",
    "training_finished",
    "evaluated",
    "network_observed",
    "run_ended",
)


def subjects(run: RunFolder) -> list[Path]:
    """Files that the statement speaks for, in order."""
    single = (
        run.settings,
        run.statements,
        run.decision,
        run.data_manifest,
        run.screen,
        run.network,
        run.evaluation,
        run.custody,
    )
    found = [path for path in single if path.is_file()]
    for folder, pattern in ((run.packs, "*.yaml"), (run.adapters, "*/*"), (run.reports, "**/*")):
        found += [path for path in sorted(folder.glob(pattern)) if path.is_file()]
    return found


def pae(payload: bytes) -> bytes:
    """DSSE pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def statement(run: RunFolder, draft: bool) -> dict[str, Any]:
    """The in-toto statement about the run folder as it stands."""
    lines = treeheads.whole_lines(run.ledger)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": path.relative_to(run.root).as_posix(), "digest": {"sha256": file_sha256(path)}}
            for path in subjects(run)
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "run_id": run.run_id,
            "code_version": __version__,
            "ledger": {
                "size": len(lines),
                "root": treeheads.merkle_root(lines).hex(),
                "head": sha256(lines[-1]) if lines else None,
            },
            "expected_events": list(EXPECTED_EVENTS),
            "draft": draft,
        },
    }


def write(run: RunFolder, signer: Signer, draft: bool) -> Path:
    """Sign the statement, store it, and record its digest in the ledger."""
    payload = canonical(statement(run, draft))
    signature = {"keyid": signer.fingerprint, "sig": base64.b64encode(signer.sign(pae(payload))).decode()}
    envelope = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [signature],
    }
    write_json(run.statement, envelope)
    Ledger(run.ledger, run.run_id, "report").append(
        "statement_signed", statement_sha256=file_sha256(run.statement), draft=draft
    )
    return run.statement


def payload_of(path: Path) -> dict[str, Any]:
    """The statement inside a stored envelope; its signature is not checked here."""
    return json.loads(base64.b64decode(json.loads(path.read_text(encoding="utf-8"))["payload"]))
