"""Held-out evaluation: greedy, sampled at the training temperature, and pass@k, each with its interval.

Sampled accuracy is the measure for curves and comparisons. Greedy accuracy flips within one step, when reasoning
becomes the likelier first token, so it cannot rank anything. pass@k before training shows what sampling could already
reach: what lies below it is amplification, not a new skill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from grpo_lib.policy import MergedPolicy, decode, encode_prompt, eos_ids
from grpo_lib.sampler import Completion, sample, uniforms
from grpo_lib.settings import RunSettings
from grpo_lib.tasks import Example, Task

INTERVAL = "bootstrap over questions, 95 %, 2000 resamples"
_RESAMPLES = 2000
CURVE_SAMPLES = 4
# Keeps the random numbers of evaluation apart from those of training prompts, which count up from 0.
_KEY_OFFSET = 1 << 40
# Rows sampled at once; bounds the memory of the key-value cache.
_ROWS = 512


def interval(values: np.ndarray, seed: int) -> dict[str, float]:
    """Mean and percentile-bootstrap 95 % interval of per-question values (Q,), resampling questions."""
    generator = np.random.default_rng(seed)
    picks = generator.integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.quantile(values[picks].mean(axis=1), [0.025, 0.975])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


def pass_at_k(correct: np.ndarray, k: int) -> np.ndarray:
    """Unbiased pass@k of each question (Chen et al., arXiv 2107.03374, eq. 1).

    Args:
        correct: (Q, n) 1 where a sample is right.

    Returns:
        (Q,) probability that at least one of k samples drawn from the n is right.
    """
    if k > correct.shape[1]:
        raise ValueError(f"pass@{k} needs at least {k} samples per question, there are {correct.shape[1]}")
    n, right = correct.shape[1], correct.sum(axis=1)
    factors = 1 - k / np.arange(1, n + 1)
    return np.array([1 - np.prod(factors[int(n - c) :]) if c else 0.0 for c in right])


class Evaluator:
    """Scores policies on one fixed set of held-out questions.

    Args:
        interrupt: called between batches; may raise to end an evaluation early.
    """

    def __init__(
        self,
        settings: RunSettings,
        task: Task,
        tokenizer: PreTrainedTokenizerBase,
        interrupt: Callable[[], None] = lambda: None,
    ):
        self._interrupt = interrupt
        self.settings = settings
        self.task = task
        self.tokenizer = tokenizer
        self.examples: list[Example] = task.heldout(
            min(settings.eval_questions, task.heldout_size), settings.seed
        )
        self._prompts = [encode_prompt(tokenizer, example.prompt) for example in self.examples]

    def sampled_interval(self, policy: MergedPolicy) -> dict[str, float]:
        """Sampled accuracy alone, from fewer samples: one point of the curve."""
        correct, _ = self._score(policy, min(CURVE_SAMPLES, self.settings.eval_samples), greedy=False)
        return interval(correct.mean(axis=1), self.settings.seed)

    def full(self, policy: MergedPolicy) -> dict[str, Any]:
        """Greedy, sampled, pass@k and the share of samples that reason."""
        seed = self.settings.seed
        greedy, _ = self._score(policy, 1, greedy=True)
        correct, completions = self._score(policy, self.settings.eval_samples, greedy=False)
        reasons = np.mean(["<فكر>" in text for text in decode(self.tokenizer, [c.ids for c in completions])])
        k = self.settings.eval_samples
        return {
            "greedy": interval(greedy[:, 0], seed),
            "sampled": interval(correct.mean(axis=1), seed),
            f"pass_at_{k}": interval(pass_at_k(correct, k), seed),
            "reasoning_share": float(reasons),
        }

    def _score(
        self, policy: MergedPolicy, copies: int, *, greedy: bool
    ) -> tuple[np.ndarray, list[Completion]]:
        length, seed = self.settings.max_new_tokens, self.settings.seed
        completions: list[Completion] = []
        per_call = max(1, _ROWS // copies)
        for first in range(0, len(self.examples), per_call):
            self._interrupt()
            chunk = self.examples[first : first + per_call]
            draws = [uniforms(seed, _KEY_OFFSET + e.index, copies, length) for e in chunk]
            completions += sample(
                policy.model,
                self._prompts[first : first + per_call],
                copies=copies,
                max_new_tokens=length,
                eos=eos_ids(policy.model, self.tokenizer),
                pad=self.tokenizer.pad_token_id,
                temperature=self.settings.temperature,
                draws=None if greedy else np.concatenate(draws),
            )
        repeated = [example for example in self.examples for _ in range(copies)]
        correct = self.task.reward_functions[0](
            prompts=[e.prompt for e in repeated],
            completions=decode(self.tokenizer, [c.ids for c in completions]),
            completion_ids=[c.ids for c in completions],
            answer=[e.answer for e in repeated],
        )
        return np.array(correct).reshape(len(self.examples), copies), completions
