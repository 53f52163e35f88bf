"""What comes in from workers: may it be trained on, and if so, as which groups?

A batch must answer a lease of its sender, come from this run's base model, and name a policy version together with the
digest that was published under it. So a worker that samples with the wrong, an old or no adapter cannot go unnoticed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from grpo_lib.rollouts import RolloutBatch
from grpo_lib.trl_compat import RolloutSample


@dataclass(frozen=True)
class Lease:
    """Prompts that one worker was given to sample."""

    worker_id: str
    prompts: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """All completions of one prompt under one policy version, as TRL takes them.

    `payload` is the batch it came in, as the worker sent it, and `place` its place there: what a replay needs.
    """

    prompt: int
    version: int
    samples: list[RolloutSample]
    payload: bytes
    place: int


class Intake:
    """Checks batches and turns them into groups.

    Args:
        group_size: completions per prompt.
        base_sha256: digest of the learner's base model.
        vocabulary: token ids must be below this.
        reward_weights: one per reward function.
    """

    def __init__(self, group_size: int, base_sha256: str, vocabulary: int, reward_weights: tuple[float, ...]):
        self._group_size = group_size
        self._base_sha256 = base_sha256
        self._vocabulary = vocabulary
        self._reward_weights = np.array(reward_weights, dtype=np.float32)
        self.published: dict[int, str] = {}  # version -> digest of the adapter

    def objection(self, worker_id: str, batch: RolloutBatch, lease: Lease | None) -> str | None:
        """Why a batch that parses may not be trained on, or None."""
        header = batch.header
        if header.worker_id != worker_id or lease is None or lease.worker_id != worker_id:
            return "no such lease"
        if header.prompts != lease.prompts:
            return "other prompts than leased"
        if header.base_sha256 != self._base_sha256:
            return "another base model"
        if self.published.get(header.policy_version) != header.policy_sha256:
            return "policy digest does not belong to its version"
        if batch.group_size != self._group_size:
            return "another group size"
        if len(header.reward_names) != len(self._reward_weights):
            return "another set of rewards"
        if batch.input_ids.min() < 0 or batch.input_ids.max() >= self._vocabulary:
            return "a token outside the vocabulary"
        return None

    def groups(self, batch: RolloutBatch, payload: bytes) -> list[Group]:
        """One group per prompt, in the order of the batch that `payload` holds."""
        size, now = batch.group_size, time.time()
        samples, names = batch.samples(), batch.header.reward_names
        totals = (batch.rewards @ self._reward_weights).reshape(-1, size)
        groups = []
        for place, prompt in enumerate(batch.header.prompts):
            spread = float(totals[place].std())
            rows = []
            for row in samples[place * size : (place + 1) * size]:
                rewards = dict(
                    zip((f"rewards/{name}" for name in names), row["rewards"].tolist(), strict=True)
                )
                rows.append(
                    RolloutSample(
                        prompt=[],
                        completion=[],
                        input_ids=row["input_ids"],
                        completion_mask=row["completion_mask"],
                        old_log_probs=row["old_log_probs"],
                        advantage=row["advantage"],
                        model_version=batch.header.policy_version,
                        group_id=prompt,
                        metrics={
                            **rewards,
                            "reward": float(row["rewards"] @ self._reward_weights),
                            "reward_std": spread,
                            "completions/mean_length": float(row["completion_mask"].sum()),
                        },
                        enqueued_at=now,
                    )
                )
            groups.append(Group(prompt, batch.header.policy_version, rows, payload, place))
        return groups
