"""Sampling with behaviour log-probabilities.

Compared with `transformers.generate`: each prompt is prefilled once per group, finished rows leave the batch, and the
draw is an inverse-CDF look-up on given uniform numbers. The last point makes a rollout a pure function of policy,
prompt and key: the numbers come from a counter-based generator keyed by run seed and prompt index, so they do not depend
on which worker samples, or on what else is in its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from grpo_lib.kv_cache import roomy_cache

# Rows are dropped from the batch once this share of them has ended; each drop copies the cache.
_COMPACT_BELOW = 0.8


@dataclass(frozen=True)
class Completion:
    """One sampled completion: token ids with the end token, and the log-probability of each under the policy."""

    ids: list[int]
    log_probs: list[float]


def uniforms(seed: int, index: int, copies: int, length: int) -> np.ndarray:
    """(copies, length) uniform numbers in [0, 1) that belong to prompt `index` of a run with `seed`."""
    generator = np.random.Generator(np.random.Philox(key=[seed, index]))
    return generator.random((copies, length), dtype=np.float32)


@torch.inference_mode()
def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    copies: int,
    max_new_tokens: int,
    eos: Sequence[int],
    pad: int,
    temperature: float = 1.0,
    draws: np.ndarray | None = None,
) -> list[Completion]:
    """Sample `copies` completions of each prompt.

    Args:
        prompts: N lists of token ids.
        copies: completions per prompt, G.
        eos: token ids that end a completion.
        draws: (N * G, max_new_tokens) uniform numbers, rows of one prompt together; None is greedy decoding.

    Returns:
        N * G completions, those of one prompt together. Log-probabilities are of the distribution that was sampled
        from, at `temperature`, over the whole vocabulary (no top-p or top-k, which would bias the ratio).
    """
    device = model.device
    width = max(len(prompt) for prompt in prompts)
    ids = torch.full((len(prompts), width), pad)
    mask = torch.zeros((len(prompts), width), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    cache = roomy_cache(model.config)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=positions.to(device),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits[:, -1]
    cache.batch_repeat_interleave(copies)
    logits = logits.repeat_interleave(copies, 0)
    mask = mask.repeat_interleave(copies, 0).to(device)
    position = (positions[:, -1:] + 1).repeat_interleave(copies, 0).to(device)
    uniform = None if draws is None else torch.from_numpy(np.ascontiguousarray(draws)).to(device)
    ends = torch.tensor(list(eos), device=device)

    total = len(prompts) * copies
    rows = torch.arange(total, device=device)  # live row -> its place in the output
    tokens = torch.full((total, max_new_tokens), -1, device=device)
    log_probs = torch.zeros((total, max_new_tokens), device=device)
    for step in range(max_new_tokens):
        distribution = torch.log_softmax(logits.float() / temperature, dim=-1)  # (live, V)
        if uniform is None:
            token = distribution.argmax(-1)
        else:
            cumulative = distribution.exp().cumsum(-1)
            # `right=True` finds the first entry above the draw, so a token of probability zero is never taken.
            target = uniform[rows, step, None] * cumulative[:, -1:]
            token = torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
        tokens[rows, step] = token
        log_probs[rows, step] = distribution.gather(-1, token[:, None])[:, 0]
        going = ~torch.isin(token, ends)
        left = int(going.sum())
        if left == 0 or step + 1 == max_new_tokens:
            break
        # Ended rows that stay go on writing; what they write past their end is cut off below.
        if left < _COMPACT_BELOW * len(rows):
            keep = going.nonzero()[:, 0]
            cache.batch_select_indices(keep)
            rows, token, mask, position = rows[keep], token[keep], mask[keep], position[keep]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        logits = model(
            input_ids=token[:, None],
            attention_mask=mask,
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        position = position + 1

    ended = torch.isin(tokens, ends)
    lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, (tokens >= 0).sum(1)).tolist()
    return [
        Completion(ids[:length], values[:length])
        for ids, values, length in zip(tokens.tolist(), log_probs.tolist(), lengths, strict=True)
    ]
