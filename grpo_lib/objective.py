"""GRPO in plain torch, equation by equation (DeepSeekMath, arXiv 2402.03300, eqs. 1-4 of its section 4.1).

Departures from that paper, each an option here and a fixed choice in the trainer that this suite runs:
1. No KL term to a reference model: TRL's `AsyncGRPOTrainer` has none (beta = 0).
2. The old log-probabilities are those of the *worker* that sampled, so one ratio holds both the staleness of the
   policy and the numerical difference between sampler and learner.
3. The clip range may differ above and below (DAPO, arXiv 2503.14476).
4. The loss is averaged over the tokens of the batch (`bnpo`), not over completions first (`grpo`).

Tests compare every function with TRL's own numbers.
"""

from __future__ import annotations

from typing import Literal

import torch

Aggregation = Literal["grpo", "bnpo", "dr_grpo", "dapo"]


def group_advantages(rewards: torch.Tensor, *, ddof: int = 0, eps: float = 1e-8) -> torch.Tensor:
    """Group-relative advantage, A = (r - mean(r)) / (std(r) + eps), per group.

    Args:
        rewards: (N, G) rewards of N groups of G completions.
        ddof: 0 divides the variance by G (TRL's `AsyncGRPOTrainer`), 1 by G - 1 (TRL's `GRPOTrainer`).
        eps: 1e-8 in `AsyncGRPOTrainer`, 1e-4 in `GRPOTrainer`.

    Returns:
        (N, G) advantages. A group whose rewards are all equal gets zeros: it teaches nothing.
    """
    # In float32 eight times 1.2 do not average to 1.2, and eps is smaller than that error: a group of equal rewards would
    # get advantages of about ten.
    exact = rewards.double()
    centred = exact - exact.mean(dim=1, keepdim=True)
    return (centred / (exact.std(dim=1, keepdim=True, correction=ddof) + eps)).to(rewards.dtype)


def clipped_loss(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
) -> torch.Tensor:
    """Clipped surrogate loss of each token: -min(ratio A, clip(ratio, 1 - eps, 1 + eps_high) A).

    Args:
        log_probs: log-probabilities under the policy being trained, any shape.
        old_log_probs: the same tokens under the policy that sampled them, same shape.
        advantages: broadcastable to that shape.
        epsilon: lower clip range; also the upper one when `epsilon_high` is None.
    """
    ratio = torch.exp(log_probs - old_log_probs)
    clipped = ratio.clamp(1 - epsilon, 1 + (epsilon if epsilon_high is None else epsilon_high))
    return -torch.min(ratio * advantages, clipped * advantages)


def aggregate(
    per_token: torch.Tensor, mask: torch.Tensor, kind: Aggregation = "bnpo", *, max_length: int | None = None
) -> torch.Tensor:
    """One number from per-token losses (B, T) under a completion mask (B, T).

    `grpo`: mean over tokens of each completion, then over completions. `bnpo`: mean over all tokens of this batch.
    `dapo`: the same over all tokens of the whole optimizer step, which equals `bnpo` when the step is one batch.
    `dr_grpo`: sum divided by B times `max_length`, a constant, so that long answers are not favoured.
    """
    masked = per_token * mask
    if kind == "grpo":
        return (masked.sum(1) / mask.sum(1).clamp(min=1)).mean()
    if kind in ("bnpo", "dapo"):
        return masked.sum() / mask.sum().clamp(min=1)
    if max_length is None:
        raise ValueError("dr_grpo divides by a constant: max_length is needed")
    return masked.sum() / (per_token.shape[0] * max_length)


def kl_k3(log_probs: torch.Tensor, other_log_probs: torch.Tensor) -> torch.Tensor:
    """Per-token estimate of KL(policy || other) from tokens of the policy: exp(d) - d - 1 with d = other - policy.

    Never negative and unbiased (J. Schulman, "Approximating KL divergence", estimator k3).
    """
    difference = other_log_probs - log_probs
    return torch.expm1(difference) - difference
