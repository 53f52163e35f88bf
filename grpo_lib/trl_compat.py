"""Everything that patches, subclasses or reaches into TRL 1.16, and nothing else.

| seam | why |
|---|---|
| `packing._flash_attn` | TRL's tree attention asks the Hub for a CUDA kernel; `TreeAttention` below computes the same on any device |
| `get_peak_flops_per_device` | asks CUDA for a device name; utilisation is unknown elsewhere |
| `AsyncGRPOTrainer._sync_weight` | TRL's path for custom transfers merges the adapter into the base; we publish the adapter alone |
| `AsyncGRPOTrainer.get_train_dataloader` | accelerate's dispatcher fetches one batch ahead, so each batch would be one version older than its lag says, and prompts would count as consumed before they are trained on |
| `AsyncGRPOTrainer._save_checkpoint` | the prompts consumed so far belong to a checkpoint; the pickled `training_args.bin`, which nothing reads, and a model card that names local folders do not |

`tests/contract/` fails loudly when one of these changes. TRL 1.18 makes the trainer stable and removes two of them:
see CONTRIBUTING.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
import torch.nn.functional as F
import trl.experimental.async_grpo.async_grpo_trainer as _trainer_module
import trl.experimental.async_grpo.packing as _packing
from torch.utils.data import DataLoader
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

__all__ = ["AdapterAsyncGRPOTrainer", "AsyncGRPOConfig", "RolloutSample", "TreeAttention", "install"]

# Segments are padded within buckets of similar length: on the teaching run four took 73 ms where one took 108 ms and
# one segment at a time 272 ms (forward and backward of 128 samples, 2 threads).
_BUCKETS = 4


class TreeAttention:
    """Variable-length attention over packed segments, by `scaled_dot_product_attention` on padded buckets.

    Stands in for the object that `packing._flash_attn()` returns. Segment i has queries `q[cu_q[i]:cu_q[i+1]]` and sees
    keys `k[cu_k[i]:cu_k[i+1]]`, causally with both ends aligned (query j of n sees the first `m - n + j + 1` of m keys).
    """

    @classmethod
    def flash_attn_varlen_func(
        cls,
        q: torch.Tensor,  # (Nq, H, D)
        k: torch.Tensor,  # (Nk, Hkv, D)
        v: torch.Tensor,  # (Nk, Hkv, D)
        cu_q: torch.Tensor,  # (S + 1,)
        cu_k: torch.Tensor,  # (S + 1,)
        max_q: int,
        max_k: int,
        *,
        softmax_scale: float | None = None,
        causal: bool = True,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
    ) -> torch.Tensor:
        """Returns (Nq, H, D)."""
        if not causal or softcap:
            raise NotImplementedError("tree attention here is causal and has no soft cap")
        window = window_size[0]
        buckets, restore = cls._plan(cu_q, cu_k, window)
        outputs = []
        for q_index, k_index, mask, valid in buckets:
            out = F.scaled_dot_product_attention(
                q[q_index].transpose(1, 2),  # (B, H, Lq, D)
                k[k_index].transpose(1, 2),
                v[k_index].transpose(1, 2),
                attn_mask=mask,
                scale=softmax_scale,
                enable_gqa=q.shape[1] != k.shape[1],
            )
            outputs.append(out.transpose(1, 2)[valid])
        return torch.cat(outputs)[restore]

    @staticmethod
    def _plan(cu_q: torch.Tensor, cu_k: torch.Tensor, window: int):
        # Every layer of a forward gets the same `cu_q` object, so the plan rides on it and dies with it. (A table
        # keyed by address would hand a later batch the plan of a freed one.)
        plans = cu_q.__dict__.setdefault("_tree_plans", {})  # layers may differ in their window
        if window in plans:
            return plans[window]
        device = cu_q.device
        starts_q, starts_k = cu_q[:-1].long().cpu(), cu_k[:-1].long().cpu()
        n, m = cu_q.diff().long().cpu(), cu_k.diff().long().cpu()
        order = torch.argsort(m * (int(n.max()) + 1) + n)
        buckets, places = [], []
        for chosen in order.tensor_split(min(_BUCKETS, len(order))):
            span_q, span_k = torch.arange(int(n[chosen].max())), torch.arange(int(m[chosen].max()))
            valid = span_q < n[chosen, None]  # (B, Lq)
            last = (m - n)[chosen, None] + span_q  # last key each query sees
            seen = span_k <= last[..., None]  # (B, Lq, Lk)
            if window >= 0:
                seen &= span_k >= last[..., None] - window
            # A padded query must see something, or its softmax is NaN and poisons the gradient.
            seen &= valid[..., None]
            seen[..., 0] |= ~valid
            q_index = torch.where(valid, starts_q[chosen, None] + span_q, 0)
            k_index = torch.where(span_k < m[chosen, None], starts_k[chosen, None] + span_k, 0)
            buckets.append([x.to(device) for x in (q_index, k_index, seen[:, None], valid)])
            places.append(q_index[valid])
        plans[window] = buckets, torch.argsort(torch.cat(places)).to(device)
        return plans[window]


def install() -> None:
    """Put the two replacements into TRL's modules. Idempotent."""
    _packing._flash_attn = lambda: TreeAttention
    original = _trainer_module.get_peak_flops_per_device
    if not hasattr(original, "__wrapped__"):

        @wraps(original)
        def peak_flops(accelerator, dtype):
            return original(accelerator, dtype) if accelerator.device.type == "cuda" else None

        _trainer_module.get_peak_flops_per_device = peak_flops


class _NoTransfer:
    """Tells the trainer that weights are moved by someone else, so it neither probes a server nor opens NCCL."""

    def init_weight_transfer(self) -> None: ...

    def destroy(self) -> None: ...


class AdapterAsyncGRPOTrainer(AsyncGRPOTrainer):
    """TRL's trainer, publishing the adapter alone through a callable.

    Args:
        feed: our `RolloutWorkerProtocol`; also asked for its state at each checkpoint.
        publish: called with (PEFT model, optimizer step); returns the version it published.
        on_checkpoint: called with (checkpoint folder, step) once all its files are there.
        kwargs: as for `AsyncGRPOTrainer`.
    """

    def __init__(
        self,
        *args: Any,
        feed: Any,
        publish: Callable[[torch.nn.Module, int], int],
        on_checkpoint: Callable[[Path, int], None],
        **kwargs: Any,
    ):
        install()
        self._publish = publish
        self._on_checkpoint = on_checkpoint
        super().__init__(*args, rollout_worker=feed, weight_transfer=_NoTransfer(), **kwargs)

    def _sync_weight(self) -> None:
        begun = time.perf_counter()
        self.model_version = self._publish(self.accelerator.unwrap_model(self.model), self.state.global_step)
        self.rollout_worker.update_model_version(self.model_version)
        self._metrics["train"]["perf/weight_sync_s"].append(time.perf_counter() - begun)

    def get_train_dataloader(self) -> DataLoader:
        self._rollout_dataset = _trainer_module.RolloutQueueDataset(
            rollout_queue=self.rollout_queue,
            model_version_fn=lambda: self.model_version,
            check_health_fn=self.rollout_worker.check_health,
            stale_after_s=self.args.heartbeat_stale_after_s,
            metrics=self._metrics["train"],
            max_staleness=self.args.max_staleness,
            poll_interval_s=1.0,
        )
        batches = _trainer_module.FixedCountBatcher(
            self._rollout_dataset, 1, self.args.per_device_train_batch_size
        )
        collator = _trainer_module.DataCollatorForRollout(
            self.processing_class.pad_token_id,
            num_processes=1,
            groups_trained=self._trained_groups,
            metrics=self._metrics["train"],
        )
        return DataLoader(batches, batch_size=1, collate_fn=collator, num_workers=0)

    def _save_checkpoint(self, model, trial) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        for name in ("training_args.bin", "README.md"):
            (folder / name).unlink(missing_ok=True)
        self._on_checkpoint(folder, self.state.global_step)
