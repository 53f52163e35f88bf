"""The sampler against `generate`, against a full forward, and against the distribution it claims to draw from."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig

from grpo_lib import sampler
from grpo_lib.policy import encode_prompt, eos_ids, load_base
from grpo_lib.sampler import sample, uniforms
from grpo_lib.tasks import ArithmeticTask

torch.set_num_threads(1)
LENGTH = 48
# Warm enough that the answers end at many lengths and that each draw matters.
TEMPERATURE = 2.0


@pytest.fixture(scope="module")
def base():
    return load_base("teaching")


@pytest.fixture(scope="module")
def model(base):
    return base[0]


@pytest.fixture(scope="module")
def prompts(base):
    """Six prompts, not all of one length."""
    found = [encode_prompt(base[1], ArithmeticTask(0).train_example(n).prompt) for n in range(6)]
    assert len({len(prompt) for prompt in found}) > 1
    return found


@pytest.fixture(scope="module")
def ends(base):
    return {"eos": eos_ids(*base), "pad": base[1].pad_token_id}


def draws(count, copies=4, length=LENGTH):
    return np.concatenate([uniforms(0, n, copies, length) for n in range(count)])


@pytest.fixture(scope="module")
def sampled(model, prompts, ends):
    return sample(
        model, prompts, copies=4, max_new_tokens=LENGTH, temperature=TEMPERATURE, draws=draws(6), **ends
    )


@torch.inference_mode()
def full_log_probs(model, prompt, ids, temperature=TEMPERATURE):
    logits = model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
    return torch.log_softmax(logits / temperature, -1).gather(-1, torch.tensor(ids)[:, None])[:, 0].numpy()


def test_greedy_decoding_equals_generate(model, prompts, ends):
    greedy = sample(model, prompts, copies=1, max_new_tokens=LENGTH, **ends)
    for prompt, completion in zip(prompts, greedy, strict=True):
        out = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
            max_new_tokens=LENGTH, eos_token_id=list(ends["eos"]), pad_token_id=ends["pad"],
        )  # fmt: skip
        assert completion.ids == out[0, len(prompt) :].tolist()


def test_log_probabilities_equal_a_full_forward(model, prompts, sampled):
    assert len({len(completion.ids) for completion in sampled}) > 5  # rows did end at different times
    for row, completion in enumerate(sampled):
        expected = full_log_probs(model, prompts[row // 4], completion.ids)
        np.testing.assert_allclose(completion.log_probs, expected, atol=1e-4)


def test_log_probabilities_are_those_at_the_temperature(model, prompts, ends):
    warm = sample(
        model, prompts[:2], copies=4, max_new_tokens=LENGTH, temperature=1.7, draws=draws(2), **ends
    )
    for row, completion in enumerate(warm):
        expected = full_log_probs(model, prompts[row // 4], completion.ids, 1.7)
        np.testing.assert_allclose(completion.log_probs, expected, atol=1e-4)
        plain = full_log_probs(model, prompts[row // 4], completion.ids, 1.0)
        assert np.abs(plain - completion.log_probs).max() > 1e-2


def test_a_completion_does_not_depend_on_its_batch(model, prompts, ends, sampled):
    for n, prompt in enumerate(prompts):
        alone = sample(
            model,
            [prompt],
            copies=4,
            max_new_tokens=LENGTH,
            temperature=TEMPERATURE,
            draws=draws(6)[4 * n : 4 * n + 4],
            **ends,
        )
        for one, many in zip(alone, sampled[4 * n : 4 * n + 4], strict=True):
            assert one.ids == many.ids
            np.testing.assert_allclose(one.log_probs, many.log_probs, atol=1e-4)


def test_the_order_of_prompts_only_orders_the_result(model, prompts, ends, sampled):
    numbers = draws(6).reshape(6, 4, LENGTH)[::-1].reshape(24, LENGTH)
    turned = sample(
        model, prompts[::-1], copies=4, max_new_tokens=LENGTH, temperature=TEMPERATURE, draws=numbers, **ends
    )
    ids = np.array([completion.ids for completion in sampled], dtype=object).reshape(6, 4)
    assert [completion.ids for completion in turned] == ids[::-1].flatten().tolist()


@pytest.mark.parametrize("below", [0.0, 1.1])
def test_dropping_ended_rows_early_or_never_changes_nothing(
    model, prompts, ends, sampled, monkeypatch, below
):
    monkeypatch.setattr(sampler, "_COMPACT_BELOW", below)
    again = sample(
        model, prompts, copies=4, max_new_tokens=LENGTH, temperature=TEMPERATURE, draws=draws(6), **ends
    )
    assert [completion.ids for completion in again] == [completion.ids for completion in sampled]
    for one, other in zip(again, sampled, strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)


def test_an_end_token_is_the_last_and_only_one(sampled, ends):
    assert any(completion.ids[-1] in ends["eos"] for completion in sampled)
    for completion in sampled:
        assert len(completion.ids) == len(completion.log_probs) <= LENGTH
        assert not set(completion.ids[:-1]) & set(ends["eos"])
        assert completion.ids[-1] in ends["eos"] or len(completion.ids) == LENGTH


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_completion_without_an_end_has_the_full_length(model, prompts, ends, sampled, length):
    short = sample(
        model,
        prompts,
        copies=4,
        max_new_tokens=length,
        temperature=TEMPERATURE,
        draws=draws(6)[:, :length],
        **ends,
    )
    assert [completion.ids for completion in short] == [completion.ids[:length] for completion in sampled]


def test_any_of_several_end_tokens_ends(model, prompts, ends, sampled):
    third = sampled[0].ids[2]
    assert third not in ends["eos"]
    cut = sample(
        model, prompts[:1], copies=4, max_new_tokens=LENGTH, temperature=TEMPERATURE, draws=draws(1), eos=[*ends["eos"], third], pad=ends["pad"]
    )  # fmt: skip
    assert cut[0].ids == sampled[0].ids[: sampled[0].ids.index(third) + 1]


def test_all_rows_may_end_at_once(model, prompts, ends):
    first = sample(model, prompts[:1], copies=1, max_new_tokens=1, **ends)[0].ids[0]
    done = sample(model, prompts[:1], copies=3, max_new_tokens=9, eos=[first], pad=ends["pad"])
    assert [completion.ids for completion in done] == [[first]] * 3


# ---- the draw ------------------------------------------------------------------------------------------------


@torch.inference_mode()
def test_tokens_are_drawn_as_often_as_their_probability_says(model, prompts, ends):
    # One token from 20 000 evenly spaced numbers: each token's count is its probability times 20 000, give or take 1.
    count, temperature = 20_000, 1.5
    even = ((np.arange(count, dtype=np.float32) + 0.5) / count)[:, None]
    drawn = sample(
        model, prompts[:1], copies=count, max_new_tokens=1, temperature=temperature, draws=even, **ends
    )
    logits = model(input_ids=torch.tensor([prompts[0]])).logits[0, -1].float()
    expected = torch.softmax(logits / temperature, -1).numpy() * count
    counted = np.bincount([completion.ids[0] for completion in drawn], minlength=len(expected))
    assert (expected > 20).sum() > 3
    np.testing.assert_allclose(counted, expected, atol=1.5)


def test_the_runs_own_numbers_draw_the_distribution_too(model, prompts, ends):
    count = 4000
    drawn = sample(
        model, prompts[:1], copies=count, max_new_tokens=1, temperature=1.5, draws=uniforms(3, 5, count, 1), **ends
    )  # fmt: skip
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompts[0]])).logits[0, -1].float()
    expected = torch.softmax(logits / 1.5, -1).numpy()
    counted = np.bincount([completion.ids[0] for completion in drawn], minlength=len(expected)) / count
    assert np.abs(counted - expected).sum() / 2 < 0.06  # total variation; about 0.02 by chance


class Fixed:
    """A model that gives the same logits everywhere."""

    device = torch.device("cpu")
    config = LlamaConfig(num_hidden_layers=1)

    def __init__(self, logits):
        self.logits = torch.tensor(logits)

    def __call__(self, input_ids, **_):
        return SimpleNamespace(logits=self.logits.expand(len(input_ids), 1, -1))


@pytest.mark.parametrize(
    ("number", "token"), [(0.0, 1), (0.2499, 1), (0.2501, 3), (0.7499, 3), (0.7501, 4), (1 - 2**-24, 4)]
)
def test_a_token_of_probability_zero_is_never_taken(number, token):
    never = -float("inf")
    model = Fixed([never, 0.0, never, np.log(2.0), 0.0, never, never])
    (drawn,) = sample(model, [[1]], copies=1, max_new_tokens=1, eos=[9], pad=0, draws=np.float32([[number]]))
    assert drawn.ids == [token]


def test_uniform_numbers_belong_to_seed_and_index_alone():
    numbers = uniforms(3, 1 << 40, 4, 100)
    assert numbers.shape == (4, 100) and numbers.dtype == np.float32
    assert (numbers >= 0).all() and (numbers < 1).all()
    assert np.array_equal(numbers, uniforms(3, 1 << 40, 4, 100))
    for seed, index in ((3, (1 << 40) + 1), (4, 1 << 40), (3, 0)):
        assert np.corrcoef(numbers.flat, uniforms(seed, index, 4, 100).flat)[0, 1] < 0.2
    assert len(np.unique(numbers)) > 395
