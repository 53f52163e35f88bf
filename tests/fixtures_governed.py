"""A synthetic run folder with the whole governance half: decided by the gate itself, screened, signed, witnessed, purged.

A ministry's restricted personal data, in the country, under two packs: `sa` reviewed, `qa` not. A named person set aside
what `qa` denies; its conditions are not met. Every figure is invented; times and keys are fixed, so the same folder has
the same bytes wherever it is written.
"""

from __future__ import annotations

import json
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fixtures_governance import TODAY, Governance
from fixtures_run import RUN_ID, SETTINGS, write_run

from grpo_lib import gate, packs, pii, treeheads
from grpo_lib.keys import Signer
from grpo_lib.runfolder import RunFolder, canonical, sha256, write_atomic, write_json
from grpo_lib.settings import RunSettings

PACKS = ("sa", "qa")
STATED = {"data_class": "restricted", "personal_data": "some", "controller": "government"}
STATED |= {"jurisdictions": ",".join(PACKS)}
DECIDED_AT = "2026-12-01T08:00:01Z"
WITNESSED = int(datetime.fromisoformat("2026-12-01T08:07:00+00:00").timestamp())
OPERATOR = Signer("operator", Ed25519PrivateKey.from_private_bytes(bytes(range(2, 34))))
AUDITOR = Signer("auditor", Ed25519PrivateKey.from_private_bytes(bytes(range(3, 35))))
REASON = "أمر وزاري رقم 14 لتجربة محدودة"
ROWS = (
    "اكتب إلى someone@example.org في شأن المعاملة 12",
    "هاتف المكتب: ‎+966 50 123 4567",
    "ما ناتج 12 + 30؟",
    "ما ناتج 7 × 6؟",
)


def write_governed(root: Path, **changed: Any) -> Path:
    """The run at `root/RUN_ID`; the organisation's own folder beside it is needed only to decide.

    Args:
        changed: settings to replace; None removes one, so that `statements.json` or nobody states it.
    """
    # Kept until: stated after the launch, unless a test says otherwise.
    run = RunFolder(write_run(root, **STATED | {"retention_until": None} | changed))
    write_json(run.statements, {"retention_until": "2027-06-30"})
    screen = _screen()
    write_json(run.screen, screen)
    manifest = json.loads(run.data_manifest.read_text(encoding="utf-8"))
    write_json(run.data_manifest, manifest | {"class": "restricted", "personal_data": "some"})
    decision = decided(root / "governance", screen, changed)
    write_json(run.decision, decision)
    for name in PACKS:
        write_atomic(run.packs / f"{name}.yaml", packs.load(name).raw)
    write_json(run.network, _network())
    write_json(run.packages, {"packages": [_package("trl", "Apache-2.0"), _package("odd", None)]})
    write_json(run.custody, _custody(run))
    for number in (59, 60):
        write_atomic(run.rollouts / f"{number:06d}.sealed", b"sealed %d" % number)
    exposure = {"mean": 1.61, "low": 1.02, "high": 2.34}
    measured = {"schema": "grpo-lib/memorisation/1", "canaries": 24, "most": 10.0, "without_memory": 1.44}
    write_json(run.root / "memorisation.json", measured | {"policies": {"trained": {"exposure": exposure}}})
    _ledger(run, screen, decision)
    return run.root


def decided(governance_dir: Path, screen: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """The gate's own decision, at a fixed time.

    A form answers for the place; the override leaves conditions behind that no evidence meets.
    """
    folder = Governance(governance_dir)
    folder.complete("sa", "SA")
    given = {**SETTINGS, **STATED, **{name: one for name, one in changed.items() if one is not None}}
    known = {name: one for name, one in given.items() if name in RunSettings.model_fields}
    # Not validated: no task of the suite has such data.
    settings = RunSettings.model_construct(**known | {"governance_dir": str(governance_dir)})
    day = date.fromisoformat(TODAY)
    denied = [
        one["rule"]
        for one in gate.decide(settings, screen=screen, today=day)["reasons"]
        if one["effect"] == "deny"
    ]
    folder.override(denied, run_id=RUN_ID, role="وكيل الوزارة", reason=REASON, until="2027-01-15")
    found = gate.decide(settings, screen=screen, today=day)
    found |= {"decided_at": DECIDED_AT}
    found.pop("digest")
    return {**found, "digest": sha256(canonical(found))}


@cache
def _screened() -> str:
    found = pii.screen(ROWS, total=len(ROWS), data_sha256=sha256(b"synthetic corpus"))
    kinds = [one["kind"] for one in found["findings"]]
    answered = {"kind": kinds[1], "answer": "not_personal", "role": "أمين البيانات", "date": TODAY}
    return json.dumps(found | {"screened_at": DECIDED_AT, "unanswered": kinds[:1], "answered": [answered]})


def _screen() -> dict[str, Any]:
    return json.loads(_screened())


def _network() -> dict[str, Any]:
    seen = {"first": "2026-12-01T08:00:10Z", "last": "2026-12-01T08:06:00Z"}
    near = {
        "address_class": "loopback",
        "address": "127.0.0.1",
        "port_class": "ephemeral",
        "source": "psutil",
    }
    far = {"address_class": "public", "address": "192.0.2.7", "port_class": "443", "source": "audit"}
    endpoints = [
        {**near, "process": "worker", **seen, "count": 118, "attempted_only": False},
        {**far, "process": "notebook", **seen, "count": 2, "attempted_only": True},
    ]
    about = {"schema": "grpo-lib/network/1", "sampled_every_s": 0.25, "longest_gap_s": 0.31, "samples": 1520}
    about |= {"unreadable_processes": 0, "damaged_lines": 0, "cannot_see": ["short", "resolver", "kernel"]}
    return about | {"endpoints": endpoints, "beyond_loopback": 1}


def _package(name: str, licence: str | None) -> dict[str, Any]:
    return {"name": name, "version": "1.2.3", "licence": licence}


def _custody(run: RunFolder) -> dict[str, Any]:
    lowering = {"from": "restricted", "to": "internal", "by": "نورة", "role": "مديرة البيانات"}
    lowering |= {"reason": "لا يحفظ النموذج صفا بعينه", "date": TODAY, "counts": True}
    stands = {"schema": "grpo-lib/custody/1", "run_id": run.run_id, "personal_data": "some"}
    stands |= {"adapter": {"version": "v000060", "sha256": sha256(b"adapter 60")}}
    stands |= {"class": "internal", "inherited_class": "restricted", "state": "held", "lowered": [lowering]}
    return stands


def _ledger(run: RunFolder, screen: dict[str, Any], decision: dict[str, Any]) -> None:
    """Link the ledger of the plain run again with the lines that governance adds; sign and witness it."""
    lines: list[bytes] = []

    def add(event: dict[str, Any]) -> None:
        link = {"seq": len(lines), "prev": sha256(lines[-1]) if lines else "0" * 64}
        lines.append(canonical(event | link))

    def more(after: dict[str, Any], name: str, actor: str, **data: Any) -> None:
        add({**after, "event": name, "actor": actor, "data": data})

    for raw in run.ledger.read_bytes().splitlines():
        try:
            event = json.loads(raw)
        except ValueError:
            lines.append(raw)  # the line torn by a crash stays what it is
            continue
        data = event["data"]
        match event["event"]:
            case "run_started":
                data["packages_sha256"] = _digest(run.packages)
            case "gate_decided":
                continue  # comes after the screen
            case "data_declared":
                add(event | {"data": {"data_manifest_sha256": _digest(run.data_manifest)}})
                counts = {one["kind"]: one["rows"] for one in screen["findings"]}
                more(event, "pii_screened", "launcher", pii_sha256=_digest(run.screen), findings=counts,
                     unanswered=screen["unanswered"])  # fmt: skip
                more(event, "gate_decided", "launcher", verdict=decision["verdict"],
                     decision_sha256=decision["digest"])  # fmt: skip
                continue
            case "checkpoint_saved":
                more(event, "checkpoint_refused", "learner", step=40, reason="digest differs")
            case "run_ended":
                more(event, "rollouts_sealed", "learner", count=2, hmac=sha256(b"keyed"))
                digest = _digest(run.network)
                more(event, "network_observed", "launcher", network_sha256=digest, beyond_loopback=1)
        add(event)
    treeheads.sign_head(run, OPERATOR, lines)
    _witness(run, len(lines))
    end = json.loads(lines[-1])
    more(end, "stated", "report", fields=["retention_until"], statements_sha256=_digest(run.statements))
    more(
        end,
        "class_lowered",
        "custody",
        **{"from": "restricted", "to": "internal", "by_role": "مديرة البيانات"},
    )
    more(end, "release_decided", "custody", action="hand_over", to="huggingface", verdict="deny",
         **{"class": "internal", "adapter_sha256": sha256(b"adapter 60")})  # fmt: skip
    gone = [{"folder": "checkpoints", "files": 7, "bytes": 3_145_728}]
    more(end, "purged", "purge", by_role="مدير التقنية", reason="انتهت الحاجة إليها", what=gone,
         key_destroyed=False, at="2026-12-01T08:20:00Z")  # fmt: skip
    write_atomic(run.ledger, b"".join(line + b"\n" for line in lines))
    treeheads.sign_head(run, OPERATOR)


def _witness(run: RunFolder, size: int) -> None:
    """What `grpo_lib.witness` writes, at a fixed time."""
    note = (run.tree_heads / f"{size:09d}.note").read_bytes()
    text, _ = treeheads.parse(note)
    line = treeheads.cosignature_line(AUDITOR, text, WITNESSED)
    write_atomic(run.tree_heads / f"{size:09d}.witness.note", note + line)


def _digest(path: Path) -> str:
    return sha256(path.read_bytes())
