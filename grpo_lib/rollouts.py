"""The rollout batch: whole groups, as a worker sends them.

Arrays travel as safetensors, the rest as JSON in the safetensors header: no pickle. A batch that does not hold
together (shapes, ranges, unknown fields) raises `ValueError` and is counted and dropped by whoever reads it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import safetensors.numpy

_ARRAYS = {
    "input_ids": np.int32,
    "completion_mask": np.uint8,
    "old_log_probs": np.float32,
    "lengths": np.int32,
    "rewards": np.float32,
    "advantages": np.float32,
}


# What reading bytes that are no batch can raise: the header is JSON of anybody's making.
_NOT_A_BATCH = (
    safetensors.SafetensorError,
    AttributeError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Span:
    """A stretch of time of one kind of work, in Unix seconds."""

    kind: str
    start: float
    end: float


@dataclass(frozen=True)
class Header:
    """What a batch says of itself: whose it is, under which policy, and how long it took."""

    worker_id: str
    lease_id: int
    sequence: int
    policy_version: int
    policy_sha256: str
    base_sha256: str
    prompts: tuple[int, ...]
    reward_names: tuple[str, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class RolloutBatch:
    """Groups of one lease. B = number of groups x group size; tokens of all B samples lie end to end.

    Attributes:
        header: see `Header`; `prompts` are the task indices of the groups, in order.
        input_ids: (T,) prompt and completion tokens.
        completion_mask: (T,) 1 where the token was sampled.
        old_log_probs: (T,) log-probability under the sampling policy, 0 on prompt tokens.
        lengths: (B,) tokens of each sample.
        rewards: (B, F) one column per reward function, unweighted.
        advantages: (B,) group-relative advantage of the weighted sum.
    """

    header: Header
    input_ids: np.ndarray
    completion_mask: np.ndarray
    old_log_probs: np.ndarray
    lengths: np.ndarray
    rewards: np.ndarray
    advantages: np.ndarray

    def to_bytes(self) -> bytes:
        arrays = {
            name: np.ascontiguousarray(getattr(self, name), dtype=kind) for name, kind in _ARRAYS.items()
        }
        return safetensors.numpy.save(arrays, metadata={"header": json.dumps(asdict(self.header))})

    @classmethod
    def from_bytes(cls, payload: bytes) -> RolloutBatch:
        """Parse and check a batch.

        Raises:
            ValueError: it does not hold together; the message says where.
        """
        try:
            arrays = safetensors.numpy.load(payload)
            size = int.from_bytes(payload[:8], "little")
            header = _header(json.loads(json.loads(payload[8 : 8 + size])["__metadata__"]["header"]))
        except _NOT_A_BATCH as error:
            raise ValueError(f"not a rollout batch: {type(error).__name__}: {error}") from None
        if set(arrays) != set(_ARRAYS):
            raise ValueError(f"arrays {sorted(arrays)} instead of {sorted(_ARRAYS)}")
        batch = cls(header=header, **arrays)
        batch._check()
        return batch

    def _check(self) -> None:
        for name, kind in _ARRAYS.items():
            array = getattr(self, name)
            if array.dtype != kind or array.ndim != (2 if name == "rewards" else 1):
                raise ValueError(f"{name} has type {array.dtype} and {array.ndim} dimensions")
        total, samples = len(self.input_ids), len(self.lengths)
        groups = len(self.header.prompts)
        if groups == 0 or samples == 0 or samples % groups:
            raise ValueError(f"{samples} samples do not make {groups} whole groups")
        if self.lengths.min() < 1 or int(self.lengths.sum()) != total:
            raise ValueError("lengths do not add up to the tokens")
        if self.completion_mask.shape != (total,) or self.old_log_probs.shape != (total,):
            raise ValueError("mask or log-probabilities do not match the tokens")
        if self.completion_mask.max() > 1:
            raise ValueError("the mask holds something other than 0 and 1")
        starts = np.cumsum(self.lengths) - self.lengths
        if np.add.reduceat(self.completion_mask, starts, dtype=np.int64).min() == 0:
            raise ValueError("a sample in which nothing was sampled")
        if self.rewards.shape != (samples, len(self.header.reward_names)) or self.advantages.shape != (
            samples,
        ):
            raise ValueError("rewards or advantages do not match the samples")
        for name in ("old_log_probs", "rewards", "advantages"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} holds a value that is not finite")
        if self.old_log_probs.max(initial=0.0) > 1e-4:
            raise ValueError("a log-probability is above zero")

    @property
    def group_size(self) -> int:
        return len(self.lengths) // len(self.header.prompts)

    def samples(self) -> list[dict[str, Any]]:
        """One dict per sample with numpy arrays, in order."""
        ends = np.cumsum(self.lengths)
        return [
            {
                "input_ids": self.input_ids[end - length : end],
                "completion_mask": self.completion_mask[end - length : end],
                "old_log_probs": self.old_log_probs[end - length : end],
                "rewards": self.rewards[row],
                "advantage": float(self.advantages[row]),
            }
            for row, (end, length) in enumerate(zip(ends.tolist(), self.lengths.tolist(), strict=True))
        ]


def _header(raw: dict[str, Any]) -> Header:
    spans = tuple(Span(str(s["kind"]), float(s["start"]), float(s["end"])) for s in raw.pop("spans"))
    if not all(math.isfinite(span.start) and math.isfinite(span.end) for span in spans):
        raise ValueError("a time is not finite")
    return Header(
        worker_id=str(raw.pop("worker_id")),
        lease_id=int(raw.pop("lease_id")),
        sequence=int(raw.pop("sequence")),
        policy_version=int(raw.pop("policy_version")),
        policy_sha256=str(raw.pop("policy_sha256")),
        base_sha256=str(raw.pop("base_sha256")),
        prompts=tuple(int(index) for index in raw.pop("prompts")),
        reward_names=tuple(str(name) for name in raw.pop("reward_names")),
        spans=spans,
        **raw,  # anything left is a field this version does not know: TypeError
    )
