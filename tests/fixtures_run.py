"""A synthetic run folder for tests of evidence and reports. Every figure in it is invented; no training produced it.

Times, digests and numbers are fixed, so that a report built from two such folders has the same bytes.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from grpo_lib.runfolder import canonical, sha256

RUN_ID = "run-20261201-080000-test"
STARTED = datetime(2026, 12, 1, 8, 0, 0, tzinfo=UTC)
BASE = sha256(b"synthetic base model")
STEPS = 60

SETTINGS: dict[str, Any] = {
    "run_id": RUN_ID,
    "runs_dir": "/home/someone/runs",
    "organisation": "وزارة الاختبار، القسم 7",
    "responsible": "رئيس وحدة البيانات",
    "purpose": "تجربة مسار التدريب قبل استعماله",
    "data_class": "synthetic",
    "personal_data": "none",
    "country": "SA",
    "retention_until": "2027-06-30",
    "model": "teaching",
    "task": "arithmetic",
    "seed": 0,
    "steps": STEPS,
    "prompts_per_step": 16,
    "num_generations": 8,
    "learning_rate": 0.001,
    "max_staleness": 2,
    "workers": 2,
    "transport": "gloo",
    "backend": "local",
    "bind": "127.0.0.1",
    "device": "auto",
}


class Chain:
    """Writes ledger lines the way `grpo_lib.ledger` does, at given times."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.clock = STARTED

    def add(self, event: str, actor: str = "learner", seconds: float = 1.0, **data: Any) -> None:
        self.clock += timedelta(seconds=seconds)
        record = {
            "seq": len(self.lines),
            "time": self.clock.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "run_id": RUN_ID,
            "event": event,
            "actor": actor,
            "data": data,
            "prev": sha256(self.lines[-1]) if self.lines else "0" * 64,
        }
        self.lines.append(canonical(record))

    def torn(self) -> None:
        """Half a line, as a crash leaves it, closed by the next writer."""
        self.lines.append(b'{"actor":"learner","data":{"step":31,"rew')
        self.add("resumed", actor="launcher", torn_line=True)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in self.lines))


def _write_json(path: Path, value: Any) -> str:
    raw = (json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return sha256(raw)


def _interval(mean: float, half: float = 0.02) -> dict[str, float]:
    return {
        "mean": round(mean, 4),
        "low": round(max(0.0, mean - half), 4),
        "high": round(min(1.0, mean + half), 4),
    }


def _accuracy(step: int) -> float:
    return 0.42 + 0.53 / (1 + math.exp(-(step - 25) / 6))


def _evaluation() -> dict[str, Any]:
    return {
        "task": "arithmetic",
        "heldout_size": 480,
        "questions": 400,
        "samples_per_question": 8,
        "temperature": 1.0,
        "seed": 0,
        "interval": "bootstrap over questions, 95 %, 2000 resamples",
        "base": {
            "greedy": _interval(0.3825, 0.047),
            "sampled": _interval(0.4221),
            "pass_at_8": _interval(0.9675, 0.016),
            "reasoning_share": 0.412,
        },
        "trained": {
            "greedy": _interval(0.9725, 0.015),
            "sampled": _interval(0.9463, 0.011),
            "pass_at_8": _interval(0.995, 0.005),
            "reasoning_share": 0.991,
        },
        "curve": [
            {
                "version": step,
                "step": step,
                "seconds": 2.9 * step,
                "sampled": _interval(_accuracy(step), 0.03),
            }
            for step in range(0, STEPS + 1, 10)
        ],
        "overlap": {"share": 0.71, "generate_s": 150.0, "step_s": 130.0, "training_s": 176.0},
    }


def _timeline() -> list[dict[str, Any]]:
    rows, start = [], STARTED.timestamp() + 12
    for step in range(STEPS):
        at = start + 2.9 * step
        rows += [
            {"actor": "learner", "kind": "wait", "start": at, "end": at + 0.5, "version": step},
            {"actor": "learner", "kind": "step", "start": at + 0.5, "end": at + 2.6, "version": step},
            {"actor": "learner", "kind": "publish", "start": at + 2.6, "end": at + 2.85, "version": step + 1},
        ]
        for worker in range(2):
            if worker == 1 and 30 <= step < 34:
                continue  # the killed worker is away for four steps
            begin = at + 0.35 * worker
            rows += [
                {
                    "actor": f"worker-{worker}",
                    "kind": "generate",
                    "start": begin,
                    "end": begin + 2.2,
                    "version": step,
                },
                {
                    "actor": f"worker-{worker}",
                    "kind": "score",
                    "start": begin + 2.2,
                    "end": begin + 2.3,
                    "version": step,
                },
            ]
    return rows


def write_run(root: Path, **changed: Any) -> Path:
    """A complete synthetic run at `root/RUN_ID`, with one killed worker, one torn line and some drops.

    Args:
        changed: Settings to replace; None removes a setting.
    """
    run_dir = root / RUN_ID
    settings = {key: value for key, value in (SETTINGS | changed).items() if value is not None}
    chain = Chain()
    settings_digest = _write_json(run_dir / "settings.json", settings)
    decision = {
        "verdict": "allow",
        "reasons": [
            {
                "rule": "own-class-synthetic",
                "ar": "بيانات اصطناعية بلا بيانات شخصية، ولا تغادر هذا الجهاز",
                "en": "Synthetic data without personal data, and it does not leave this machine",
            }
        ],
        "conditions": [],
        "place": {
            "backend": "local",
            "declared_country": settings.get("country", ""),
            "observed": "this machine",
        },
        "data": {"class": "synthetic", "personal_data": "none", "task": "arithmetic"},
        "decided_at": "2026-12-01T08:00:01Z",
    }
    decision["digest"] = sha256(canonical(decision))
    _write_json(run_dir / "decision.json", decision)
    manifest_digest = _write_json(
        run_dir / "data_manifest.json",
        {"task": "arithmetic", "class": "synthetic", "personal_data": "none", "training_questions": 3920,
         "heldout_questions": 480, "reward_functions": ["correct", "format"], "sha256": sha256(b"synthetic corpus")},
    )  # fmt: skip
    evaluation_digest = _write_json(run_dir / "evaluation.json", _evaluation())

    chain.add(
        "run_started", "launcher", settings_sha256=settings_digest, code_version="0.1.0", resumed_from=None,
        versions={"python": "3.11.9", "torch": "2.13.0+cpu", "transformers": "5.23.0", "trl": "1.16.0"},
        machine={"processor": "Intel Xeon", "cores": 2, "memory_gib": 23.0, "os": "Linux 6.1", "device": "cpu"},
    )  # fmt: skip
    chain.add("gate_decided", "launcher", verdict="allow", decision_sha256=decision["digest"])
    chain.add("data_declared", "launcher", data_manifest_sha256=manifest_digest)
    chain.add("process_started", "launcher", role="learner", worker_id=None, pid=4101, threads=1)
    chain.add("base_loaded", base_sha256=BASE, parameters=1_048_576, model="teaching")
    for worker in range(2):
        name = f"worker-{worker}"
        chain.add("process_started", "launcher", role="worker", worker_id=name, pid=4102 + worker, threads=1)
        chain.add("process_group_opened", backend="gloo", members=["learner", name], address_class="loopback")
        chain.add("worker_joined", worker_id=name, base_sha256=BASE, slot=worker)
    chain.add("worker_refused", worker_id="worker-9", reason="wrong join secret")
    metrics = []
    for step in range(1, STEPS + 1):
        lag = round(0.6 + 0.4 * math.sin(step / 3), 3)
        if step == 31:
            chain.add(
                "worker_lost", worker_id="worker-1", reason="connection closed by peer", leases_returned=2
            )
            chain.add(
                "process_ended",
                "launcher",
                role="worker",
                worker_id="worker-1",
                pid=4103,
                exit_code=5,
                signal="SIGKILL",
            )
            chain.torn()
            chain.add(
                "process_group_opened",
                backend="gloo",
                members=["learner", "worker-1"],
                address_class="loopback",
            )
            chain.add("worker_joined", worker_id="worker-1", base_sha256=BASE, slot=1)
        if step in (12, 40):
            chain.add("stale_dropped", groups=3, lag=3)
        if step in (20, 21, 22):
            chain.add("message_dropped", worker_id="worker-0", reason="bad authentication tag")
        reward = round(_accuracy(step) * 1.1, 4)
        chain.add(
            "step", seconds=2.9, step=step, version=step, prompts=[16 * step - 16, 16 * step - 1], samples=128,
            rewards_sha256=sha256(b"rewards %d" % step), reward_mean=reward, lag_mean=lag, lag_max=2 if step > 3 else 0,
            loss=0.01, grad_norm=0.2,
        )  # fmt: skip
        digest = sha256(b"adapter %d" % step)
        chain.add("adapter_published", seconds=0.1, version=step, sha256=digest, bytes=412_345, step=step)
        metrics.append(
            {"step": step, "version": step, "reward": reward, "lag_mean": lag, "lag_max": 2, "step_s": 2.1}
        )
    adapter = run_dir / f"adapters/v{STEPS:06d}/adapter_model.safetensors"
    adapter.parent.mkdir(parents=True)
    adapter.write_bytes(b"adapter %d" % STEPS)
    checkpoint = run_dir / f"checkpoints/checkpoint-{STEPS}/optimizer.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"optimizer state")
    chain.add("checkpoint_saved", step=STEPS, files={"optimizer.pt": sha256(b"optimizer state")})
    chain.add(
        "training_finished", steps=STEPS, version=STEPS, adapter_sha256=sha256(b"adapter 60"), seconds=176.0
    )
    for worker in range(2):
        chain.add("worker_left", worker_id=f"worker-{worker}")
        chain.add(
            "process_ended",
            "launcher",
            role="worker",
            worker_id=f"worker-{worker}",
            pid=1,
            exit_code=0,
            signal="",
        )
    chain.add("evaluated", evaluation_sha256=evaluation_digest)
    chain.add("run_ended", "launcher", status="complete", exit_code=0)
    chain.write(run_dir / "ledger" / "events.jsonl")
    for name, rows in (("metrics.jsonl", metrics), ("timeline.jsonl", _timeline())):
        (run_dir / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return run_dir
