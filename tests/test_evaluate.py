"""Figures of the evaluation against brute force and by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from grpo_lib.evaluate import interval, pass_at_k
from grpo_lib.measures import overlap


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_at_k_equals_every_choice_of_k_samples(n):
    correct = np.array([[1] * right + [0] * (n - right) for right in range(n + 1)])
    for k in range(1, n + 1):
        expected = [
            np.mean([max(row[list(choice)]) for choice in combinations(range(n), k)]) for row in correct
        ]
        np.testing.assert_allclose(pass_at_k(correct, k), expected, atol=1e-12)


def test_pass_at_1_is_the_mean_and_order_does_not_matter():
    correct = np.random.default_rng(0).integers(0, 2, (50, 8))
    np.testing.assert_allclose(pass_at_k(correct, 1), correct.mean(1))
    np.testing.assert_allclose(pass_at_k(correct, 3), pass_at_k(correct[:, ::-1], 3))


def test_the_interval_holds_the_mean_and_repeats_with_its_seed():
    values = np.random.default_rng(1).random(200)
    found = interval(values, seed=3)
    assert found["low"] < found["mean"] < found["high"]
    assert found["mean"] == pytest.approx(values.mean())
    assert found == interval(values, seed=3) != interval(values, seed=4)


def test_the_interval_has_the_width_of_the_standard_error():
    values = np.random.default_rng(2).normal(0.5, 0.2, 400)
    found = interval(values, seed=0)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert found["high"] - found["low"] == pytest.approx(2 * half, rel=0.1)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    # 95 % of 200 draws; 3.5 standard deviations of the count allowed, and some for the bootstrap at 100 questions.
    generator, hits = np.random.default_rng(3), 0
    for seed in range(200):
        found = interval((generator.random(100) < 0.4).astype(float), seed)
        hits += found["low"] <= 0.4 <= found["high"]
    assert 0.88 <= hits / 200 <= 0.99


def test_a_sure_thing_has_no_width():
    assert interval(np.ones(10), 0) == {"mean": 1.0, "low": 1.0, "high": 1.0}


def span(actor, kind, start, end):
    return {"actor": actor, "kind": kind, "start": start, "end": end, "version": 1}


def test_overlap_by_hand():
    spans = [
        span("learner", "step", 10, 14),
        span("learner", "step", 15, 20),
        span("worker-0", "generate", 0, 11),  # 1 s within training, during a step
        span("worker-0", "generate", 12, 16),  # 2 s in the first step, 1 s between, 1 s in the second
        span("worker-1", "generate", 13, 15.5),  # wholly beside worker-0's
        span("worker-1", "generate", 19, 99),  # 1 s within training
        span("worker-1", "score", 16, 19),  # not generation
        span("learner", "wait", 14, 15),
        span("learner", "generate", 40, 50),  # after the end
    ]
    result = overlap(spans)
    assert result["training_s"] == 10
    assert result["step_s"] == 9
    assert result["generate_s"] == 6  # 10-11, 12-16, 19-20
    assert result["share"] == pytest.approx(5 / 10)  # 10-11, 12-14, 15-16, 19-20


def test_overlap_of_nothing_and_of_turns():
    assert set(overlap([]).values()) == {None}
    turns = [span("learner", "step", 0, 1), span("worker-0", "generate", 1, 2), span("learner", "step", 2, 3)]
    assert overlap(turns)["share"] == 0.0
    assert overlap([span("learner", "step", 0, 1)])["share"] == 0.0


def test_overlap_does_not_depend_on_the_order_of_lines():
    spans = [span("learner", "step", n, n + 0.7) for n in range(6)]
    spans += [span("worker-0", "generate", n + 0.5, n + 1.1) for n in range(6)]
    assert overlap(spans[::-1]) == pytest.approx(overlap(spans))
