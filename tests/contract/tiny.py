"""Tiny random models and rollouts for the contract tests."""

from __future__ import annotations

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 60


def llama(seed: int = 0, **changes) -> LlamaForCausalLM:
    """Two layers, four query heads on two key-value heads, float32, in evaluation mode."""
    torch.manual_seed(seed)
    given = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    given |= dict(
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2
    )
    given |= dict(bos_token_id=2, eos_token_id=1, pad_token_id=0)
    return LlamaForCausalLM(LlamaConfig(**given | changes)).eval()


def rollouts(seed: int, groups: int = 3, size: int = 4, vocabulary: int = VOCABULARY) -> list[dict]:
    """Samples as TRL's `RolloutQueueDataset` yields them: groups share a prompt, completions fork at random places.

    One sample of each group repeats another, and groups share a begin-of-text token, so that the trie has shared
    prompts, forks in the middle and two samples on one leaf.
    """
    random = np.random.default_rng(seed)
    samples = []
    for group in range(groups):
        prompt = [2, *random.integers(3, vocabulary, random.integers(2, 9))]
        trunk = random.integers(3, vocabulary, 12)
        completions = []
        for _ in range(max(1, size - 1)):
            fork, length = random.integers(0, 6), random.integers(1, 12)
            completions.append([*trunk[:fork], *random.integers(3, vocabulary, length)])
        completions += completions[:1] * (size - len(completions))
        for completion in completions:
            mask = np.array([0] * len(prompt) + [1] * len(completion))
            samples.append(
                {
                    "input_ids": np.array([*prompt, *completion]),
                    "completion_mask": mask,
                    "old_log_probs": np.where(mask, -4 * random.random(len(mask)), 0).astype(np.float32),
                    "advantage": float(random.standard_normal()),
                    "group_id": group,
                    "metrics": {"reward": float(random.random())},
                }
            )
    return samples


def dense_log_probs(model, input_ids: np.ndarray, temperature: float = 1.0) -> torch.Tensor:
    """(T - 1,) log-probability of each token but the first, by a forward of this sample alone."""
    ids = torch.as_tensor(input_ids)
    logits = model(input_ids=ids[None]).logits[0, :-1].float() / temperature
    return torch.log_softmax(logits, -1).gather(-1, ids[1:, None])[:, 0]
