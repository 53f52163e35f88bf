"""`objective` against TRL's own numbers: both losses, both advantage conventions, each aggregation, the KL estimate."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny import dense_log_probs, llama, rollouts
from trl import GRPOTrainer
from trl.experimental.async_grpo import async_rollout_worker
from trl.experimental.async_grpo.async_grpo_trainer import (
    AsyncGRPOTrainer,
    DataCollatorForRollout,
    FixedCountBatcher,
)
from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup, _AsyncRolloutLoop
from trl.experimental.async_grpo.packing import TREE_ATTENTION, register_tree_attention
from trl.trainer import grpo_trainer
from trl.trainer.utils import add_fused_lm_head

from grpo_lib.objective import aggregate, clipped_loss, group_advantages, kl_k3
from grpo_lib.tasks import ArithmeticTask
from grpo_lib.trl_compat import install

torch.set_num_threads(1)
EPSILON, EPSILON_HIGH = 0.2, 0.28
SEEDS = [0, 1, 2]


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    """TRL's logging and gathering ask accelerate for its state; these tests need none."""
    monkeypatch.setattr(async_rollout_worker, "logger", logging.getLogger("test"))
    monkeypatch.setattr(grpo_trainer, "gather_object", lambda value: value)


accelerator = SimpleNamespace(
    num_processes=1,
    process_index=0,
    device=torch.device("cpu"),
    reduce=lambda value, reduction: value,
    gather=lambda value: value,
    sync_gradients=True,
)


# ---- AsyncGRPOTrainer --------------------------------------------------------------------------------------------


def async_trainer() -> SimpleNamespace:
    """What `AsyncGRPOTrainer.compute_loss` reads from its trainer, and no more."""
    return SimpleNamespace(
        accelerator=accelerator,
        epsilon_low=EPSILON,
        epsilon_high=EPSILON_HIGH,
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=1,
        _metrics={"train": defaultdict(list)},
        _step_forward_tokens=0.0,
        _step_trained_tokens=0.0,
        _step_seq_len_weighted=0.0,
        _step_samples=0.0,
        _step_forward_s=0.0,
    )


def packed(samples):
    """The batch that TRL's own batcher and collator make of these samples."""
    (rows,) = list(FixedCountBatcher(samples, num_processes=1, microbatch_size=len(samples)))
    return DataCollatorForRollout(pad_token_id=0)([rows])


def near(samples, model, seed, temperature):
    """Give the samples old log-probabilities near those of the model, so that some ratios are clipped and some not."""
    random = np.random.default_rng(seed)
    for sample in samples:
        with torch.no_grad():
            values = dense_log_probs(model, sample["input_ids"], temperature).numpy()
        noise = random.normal(0, 0.3, len(values))
        sample["old_log_probs"][1:] = np.where(
            sample["completion_mask"][1:], np.minimum(values + noise, 0), 0
        )
    return samples


def ours(model, samples, temperature):
    """The same loss from one dense forward per sample."""
    width = max(len(sample["input_ids"]) for sample in samples) - 1

    def row(values):
        values = torch.as_tensor(values, dtype=torch.float32)
        return torch.nn.functional.pad(values, (0, width - len(values)))

    new = torch.stack([row(dense_log_probs(model, s["input_ids"], temperature)) for s in samples])
    old = torch.stack([row(s["old_log_probs"][1:]) for s in samples])
    mask = torch.stack([row(s["completion_mask"][1:]) for s in samples])
    advantages = torch.tensor([s["advantage"] for s in samples])[:, None]
    per_token = clipped_loss(new, old, advantages, epsilon=EPSILON, epsilon_high=EPSILON_HIGH)
    return aggregate(per_token, mask, "bnpo")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_clipped_loss_and_bnpo_equal_the_async_trainer(seed, temperature):
    install()
    register_tree_attention()
    dense, tree = llama(seed), llama(seed)
    tree.set_attn_implementation(TREE_ATTENTION)
    add_fused_lm_head(tree, temperature=temperature, outputs=("log_probs", "entropy"))
    samples = near(rollouts(seed), dense, seed, temperature)

    trainer = async_trainer()
    theirs = AsyncGRPOTrainer.compute_loss(trainer, tree, packed(samples))
    theirs.backward()
    mine = ours(dense, samples, temperature)
    mine.backward()
    assert mine.item() == pytest.approx(theirs.item(), abs=1e-5)
    for (name, a), b in zip(dense.named_parameters(), tree.parameters(), strict=True):
        torch.testing.assert_close(
            a.grad, b.grad, atol=1e-5, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}"
        )
    clipped = trainer._metrics["train"]["clip_ratio/region_mean"][0]
    assert 0.01 < clipped < 0.9  # the comparison went through both branches


def test_the_async_loss_is_a_mean_over_tokens_not_over_completions():
    dense = llama(0)
    samples = near(rollouts(0), dense, 0, 1.0)
    with torch.no_grad():
        bnpo = ours(dense, samples, 1.0).item()
    values = np.array([sample["advantage"] for sample in samples])
    assert len({int(sample["completion_mask"].sum()) for sample in samples}) > 3
    assert bnpo != pytest.approx(-values.mean(), abs=1e-3)


def async_advantages(rewards):
    """Advantages that TRL's rollout loop gives a group with these rewards."""
    count = len(rewards)
    row = SimpleNamespace(input_ids=[1, 2], completion_mask=[0, 1], old_log_probs=[0.0, -1.0])
    group = RolloutGroup(
        prompts=[[]] * count,
        reward_kwargs={},
        completions=[[]] * count,
        completions_ids=[[2]] * count,
        completions_sequences=[[row]] * count,
        tool_call_counts=[0] * count,
        tool_failure_counts=[0] * count,
        model_version=0,
        group_id=0,
        env_rewards=[None] * count,
        rollout_rewards=[None] * count,
    )
    loop = SimpleNamespace(
        reward_funcs=[lambda **_: rewards],
        reward_func_names=["reward"],
        _env_reward_types=[],
        _provides_rollout_reward=False,
    )
    return [sample.advantage for sample in asyncio.run(_AsyncRolloutLoop._score_group(loop, group))]


GROUPS = [
    [0.0, 1.0, 1.0, 0.0],
    [0.0, 0.0, 0.0, 1.0],
    [0.2, 1.2, 1.0, 0.2],
    [1.0, 1.0, 1.0, 1.0],
    [0.0, 0.0, 0.0, 0.0],
    [-3.0, 5.5, 0.25, 1e-3],
]
# Sums of the arithmetic task's weights, which float32 cannot hold exactly: every completion right, or none.
EQUAL = [[1.2] * 8, [0.2] * 8, [1.0] * 8, [0.1] * 6, [1.2] * 32]


@pytest.mark.parametrize("rewards", GROUPS + EQUAL)
def test_group_advantages_equal_those_of_the_async_worker(rewards):
    mine = group_advantages(torch.tensor([rewards]))[0]
    np.testing.assert_allclose(mine, async_advantages(rewards), atol=1e-5)


# ---- GRPOTrainer -------------------------------------------------------------------------------------------------


class NoModel(torch.nn.Module):
    """Stands where a model is asked only whether it trains and for its settings."""

    def __init__(self):
        super().__init__()
        self.is_gradient_checkpointing = False


def grpo_advantages(groups):
    """Advantages that TRL's synchronous trainer gives these groups."""
    count, size = len(groups) * len(groups[0]), len(groups[0])
    ids = [[1, 2]] * count
    trainer = SimpleNamespace(
        accelerator=accelerator,
        model=NoModel().train(),
        args=SimpleNamespace(
            steps_per_generation=1,
            gradient_accumulation_steps=1,
            gradient_checkpointing_kwargs=None,
            per_device_train_batch_size=count,
            per_device_eval_batch_size=count,
        ),
        environment_factories=None,
        environments=None,
        tools=None,
        pad_to_multiple_of=None,
        _tokenizer=SimpleNamespace(pad_token_id=0),
        _is_vlm=False,
        mask_truncated_completions=False,
        eos_token_id=1,
        num_generations=size,
        num_generations_eval=size,
        num_iterations=1,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        beta=0.0,
        multi_objective_aggregation="sum_then_normalize",
        scale_rewards="group",
        reward_weights=torch.tensor([1.0]),
        reward_funcs=[None],
        reward_func_names=["reward"],
        _metrics={"train": defaultdict(list)},
        _logs=defaultdict(list, rewards=defaultdict(list), extra=defaultdict(list)),
        _pending_extra_logs={},
        _pending_metrics={},
        log_multimodal=False,
        _generate=lambda prompts: (ids, ids, None, ["x"] * count, None, {}, None, None),
        _calculate_rewards=lambda *_: torch.tensor(groups).reshape(count, 1),
    )
    return GRPOTrainer._generate_and_score_completions(trainer, [{"prompt": "q"}] * count)["advantages"]


def test_group_advantages_equal_those_of_the_synchronous_trainer():
    theirs = grpo_advantages(GROUPS).view(len(GROUPS), -1)
    mine = group_advantages(torch.tensor(GROUPS), ddof=1, eps=1e-4)
    torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)
    assert (mine - group_advantages(torch.tensor(GROUPS))).abs().max() > 0.1  # the conventions do differ


@pytest.mark.parametrize("rewards", EQUAL)
def test_equal_rewards_teach_nothing_in_either_convention(rewards):
    equal = torch.tensor([rewards] * 2)
    assert group_advantages(equal).abs().max() < 1e-6
    assert group_advantages(equal, ddof=1, eps=1e-4).abs().max() < 1e-2


def test_a_group_of_right_answers_teaches_nothing_as_the_worker_adds_it_up():
    weights = np.array(ArithmeticTask(0).reward_weights, dtype=np.float32)
    for row in ([1, 1], [1, 0], [0, 1], [0, 0]):
        totals = torch.from_numpy(np.tile(np.float32(row), (64, 1)) @ weights)
        assert group_advantages(totals.view(-1, 8)).abs().max() < 1e-6, row


def grpo_loss(kind, new, old, advantages, mask, **changes):
    """Loss of `GRPOTrainer._compute_loss`, given the log-probabilities instead of a model."""
    length = mask.shape[1]
    given = dict(
        accelerator=accelerator,
        model=NoModel().train(),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        beta=0.0,
        epsilon_low=EPSILON,
        epsilon_high=EPSILON_HIGH,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        loss_type=kind,
        max_completion_length=40,
        current_gradient_accumulation_steps=1,
        args=SimpleNamespace(delta=None, steps_per_generation=1, use_bias_correction_kl=False),
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (new, torch.zeros_like(new), None),
    )
    inputs = dict(
        prompt_ids=torch.ones(len(mask), 3, dtype=torch.long),
        prompt_mask=torch.ones(len(mask), 3, dtype=torch.long),
        completion_ids=torch.ones(len(mask), length, dtype=torch.long),
        completion_mask=mask,
        advantages=advantages,
        old_per_token_logps=old,
        num_items_in_batch=mask.sum(),
    )
    reference = changes.pop("ref_per_token_logps", None)
    if reference is not None:
        inputs["ref_per_token_logps"] = reference
    trainer = SimpleNamespace(**given | changes)
    return GRPOTrainer._compute_loss(trainer, None, inputs), trainer._metrics["train"]


def tokens(seed):
    generator = torch.Generator().manual_seed(seed)
    new = -3 * torch.rand(6, 11, generator=generator)
    old = new + 0.4 * torch.randn(6, 11, generator=generator)
    lengths = torch.randint(1, 12, (6, 1), generator=generator)
    mask = (torch.arange(11) < lengths).long()
    return new, old, torch.randn(6, generator=generator), mask


@pytest.mark.parametrize("kind", ["grpo", "bnpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("seed", SEEDS)
def test_aggregations_equal_the_synchronous_trainer(kind, seed):
    new, old, advantages, mask = tokens(seed)
    mine_of, theirs_of = (new.clone().requires_grad_() for _ in range(2))
    theirs, _ = grpo_loss(kind, theirs_of, old, advantages, mask)
    per_token = clipped_loss(mine_of, old, advantages[:, None], epsilon=EPSILON, epsilon_high=EPSILON_HIGH)
    mine = aggregate(per_token, mask, kind, max_length=40)
    assert mine.item() == pytest.approx(theirs.item(), abs=1e-6)
    mine.backward()
    theirs.backward()
    torch.testing.assert_close(mine_of.grad, theirs_of.grad, atol=1e-6, rtol=0)


def test_the_aggregations_differ_from_each_other():
    new, old, advantages, mask = tokens(0)
    per_token = clipped_loss(new, old, advantages[:, None])
    values = {
        k: aggregate(per_token, mask, k, max_length=40).item() for k in ("grpo", "bnpo", "dr_grpo", "dapo")
    }
    assert values["bnpo"] == values["dapo"]
    assert len({round(value, 4) for value in values.values()}) == 3


def test_an_equal_clip_range_is_the_default():
    new, old, advantages, mask = tokens(1)
    theirs, _ = grpo_loss("bnpo", new, old, advantages, mask, epsilon_high=EPSILON)
    mine = aggregate(clipped_loss(new, old, advantages[:, None], epsilon=EPSILON), mask)
    assert mine.item() == pytest.approx(theirs.item(), abs=1e-6)


def test_dr_grpo_needs_its_constant_and_empty_completions_are_harmless():
    with pytest.raises(ValueError, match="max_length"):
        aggregate(torch.ones(2, 3), torch.ones(2, 3), "dr_grpo")
    for kind in ("grpo", "bnpo", "dapo"):
        assert aggregate(torch.ones(2, 3), torch.zeros(2, 3), kind).item() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_kl_equals_the_synchronous_trainers_term(seed):
    new, old, advantages, mask = tokens(seed)
    reference = new + 0.5 * torch.randn(new.shape, generator=torch.Generator().manual_seed(seed))
    plain, _ = grpo_loss("bnpo", new, old, advantages, mask)
    with_kl, metrics = grpo_loss("bnpo", new, old, advantages, mask, beta=0.3, ref_per_token_logps=reference)
    mine = aggregate(kl_k3(new, reference), mask)
    assert mine.item() == pytest.approx(metrics["kl"][0], abs=1e-6)
    assert 0.3 * mine.item() == pytest.approx((with_kl - plain).item(), abs=1e-5)


def test_kl_is_never_negative_and_estimates_the_divergence():
    torch.manual_seed(0)
    p, q = (torch.log_softmax(torch.randn(5), -1) for _ in range(2))
    assert (kl_k3(torch.randn(1000), torch.randn(1000)) >= 0).all()
    assert kl_k3(torch.tensor([-1.0]), torch.tensor([-1.0])).item() == 0
    expected = (p.exp() * (p - q)).sum()
    assert (p.exp() * kl_k3(p, q)).sum().item() == pytest.approx(expected.item(), abs=1e-6)
    # Close policies: the textbook form loses all digits in float32 here.
    assert kl_k3(torch.tensor([-1.0]), torch.tensor([-1.0 - 1e-4])).item() == pytest.approx(5e-9, rel=0.01)
