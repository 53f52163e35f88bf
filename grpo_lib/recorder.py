"""What the learner writes down while it trains: metrics per step, time spans, and the ledger's step records."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from transformers import TrainerCallback

from grpo_lib.errors import StoppedByHealth
from grpo_lib.feed import RolloutFeed
from grpo_lib.ledger import Ledger
from grpo_lib.process import StopRequest
from grpo_lib.runfolder import RunFolder, append_line
from grpo_lib.step_records import Sealer

# metrics.jsonl name -> name in TRL's log.
_FROM_TRL = {
    "reward": "reward",
    "reward_std": "reward_std",
    "completions/mean_length": "completions/mean_length",
    "lag_mean": "sample/staleness_mean",
    "lag_max": "sample/staleness_max",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "kl": "kl",
    "ratio": "ratio",
    "clip_fraction": "clip_ratio/region_mean",
    "step_s": "perf/step_s",
    "fwd_bwd_s": "perf/fwd_bwd_s",
    "wait_s": "perf/rollout_wait_s",
    "sync_s": "perf/weight_sync_s",
}


class Timeline:
    """Appends spans to timeline.jsonl; threads share it."""

    def __init__(self, folder: RunFolder):
        self._path = folder.timeline
        self._lock = threading.Lock()

    def __call__(self, actor: str, kind: str, start: float, end: float, version: int) -> None:
        with self._lock:
            append_line(
                self._path, {"actor": actor, "kind": kind, "start": start, "end": end, "version": version}
            )


class StepRecorder(TrainerCallback):
    """Writes each optimizer step to metrics and ledger, and stops on request or when the numbers are no numbers."""

    def __init__(
        self,
        folder: RunFolder,
        ledger: Ledger,
        feed: RolloutFeed,
        timeline: Timeline,
        stop: StopRequest,
        sealer: Sealer,
    ):
        self._folder = folder
        self._ledger = ledger
        self._feed = feed
        self._timeline = timeline
        self._stop = stop
        self._sealer = sealer
        self._begun = 0.0
        self.versions: list[int] = []  # version published after each step, newest last
        self.adapter_bytes = 0
        self.first_step_at: float | None = None

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        self._begun = time.time()
        if self.first_step_at is None:
            self.first_step_at = self._begun

    def on_step_end(self, args, state, control, **kwargs) -> None:
        version = self.versions[-1] if self.versions else 0
        self._timeline("learner", "step", self._begun, time.time(), version)
        if self._stop:
            # The checkpoint that this makes is where the run resumes.
            control.should_save = True
            control.should_training_stop = True

    def on_log(self, args, state, control, logs: dict[str, Any] | None = None, **kwargs) -> None:
        if not logs or "loss" not in logs:
            return  # the trainer's closing summary
        step = self._feed.step_done()
        row = {name: logs.get(key) for name, key in _FROM_TRL.items()}
        rewards = {key: value for key, value in logs.items() if key.startswith("rewards/")}
        append_line(
            self._folder.metrics,
            {
                "step": state.global_step,
                "time": time.time(),
                "version": self.versions[-1],
                **row,
                **rewards,
                "adapter_bytes": self.adapter_bytes,
                **{key: step[key] for key in ("samples", "queue_groups", "workers", "stale_dropped")},
            },
        )
        self._ledger.append(
            "step",
            step=state.global_step,
            version=self.versions[-1],
            prompts=step["prompts"],
            samples=step["samples"],
            rewards_sha256=step["rewards_sha256"],
            rollouts=self._sealer.step(state.global_step, step["groups"]),
            reward_mean=row["reward"],
            lag_mean=row["lag_mean"],
            lag_max=row["lag_max"],
            loss=_finite(row["loss"]),
            grad_norm=_finite(row["grad_norm"]),
        )
        if _finite(row["loss"]) is None or _finite(row["grad_norm"]) is None:
            raise StoppedByHealth(
                ar=f"الخسارة أو معيار التدرج ليسا عددًا في الخطوة {state.global_step}. اخفض learning_rate.",
                en=f"Loss or gradient norm is not a number at step {state.global_step}. Lower learning_rate.",
            )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
