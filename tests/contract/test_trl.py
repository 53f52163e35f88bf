"""Each seam of TRL 1.16 that `trl_compat` patches or relies on, and the trainer that stands on them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import logging
import queue
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import peft.tuners.lora.layer as lora_layer
import peft.tuners.tuners_utils as tuners
import pytest
import torch
import torch.nn.functional as F
import trl.experimental.async_grpo.async_grpo_trainer as trainer_module
import trl.experimental.async_grpo.packing as packing
from datasets import Dataset
from peft import LoraConfig
from tiny import VOCABULARY, dense_log_probs, llama, rollouts
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainerCallback
from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample
from trl.experimental.async_grpo.packing import (
    TREE_ATTENTION,
    TreeRow,
    register_tree_attention,
    tree_attention,
)
from trl.trainer.utils import add_fused_lm_head

from grpo_lib import trl_compat
from grpo_lib.policy import AdapterSnapshot, base_tensors, load_base, model_source, snapshot
from grpo_lib.trl_compat import AdapterAsyncGRPOTrainer, AsyncGRPOConfig, TreeAttention, install

torch.set_num_threads(1)
install()
register_tree_attention()
# `tree_attention` asks the calling layer for its type when it is given float32.
LAYER = llama().model.layers[0].self_attn


def names(function) -> list[str]:
    return list(inspect.signature(function).parameters)


# ---- names and signatures ----------------------------------------------------------------------------------------


def test_this_is_the_trl_that_the_patches_were_written_for():
    assert version("trl").startswith("1.16.")


def test_the_patched_names_are_still_looked_up_where_they_are_patched():
    assert names(AsyncGRPOTrainer._sync_weight) == ["self"]
    assert names(AsyncGRPOTrainer.get_train_dataloader) == ["self"]
    assert names(AsyncGRPOTrainer._save_checkpoint) == ["self", "model", "trial"]
    assert names(Trainer._get_output_dir) == ["self", "trial"]
    assert "_flash_attn()" in inspect.getsource(packing.tree_attention)
    assert "get_peak_flops_per_device(self.accelerator, dtype)" in inspect.getsource(
        AsyncGRPOTrainer.__init__
    )
    # The trainer publishes through `_sync_weight`: on train begin, and after each `weight_sync_steps` steps.
    assert "self._sync_weight, self.args.weight_sync_steps" in inspect.getsource(AsyncGRPOTrainer.__init__)
    assert "_sync_weight()" in inspect.getsource(trainer_module._TrainBeginCallback.on_train_begin)
    assert AsyncGRPOConfig.__dataclass_fields__["weight_sync_steps"].default == 1


def test_the_constructor_takes_our_worker_and_our_transfer():
    parameters = names(AsyncGRPOTrainer.__init__)
    for name in ("model", "args", "train_dataset", "processing_class", "callbacks", "peft_config"):
        assert name in parameters
    assert parameters[-2:] == ["rollout_worker", "weight_transfer"]


def test_the_dataset_batcher_and_collator_take_what_we_give():
    assert names(trainer_module.RolloutQueueDataset.__init__) == [
        "self", "rollout_queue", "model_version_fn", "check_health_fn", "stale_after_s", "metrics", "max_staleness",
        "poll_interval_s", "report_to",
    ]  # fmt: skip
    assert names(trainer_module.FixedCountBatcher.__init__) == [
        "self",
        "dataset",
        "num_processes",
        "microbatch_size",
    ]
    assert names(trainer_module.DataCollatorForRollout)[0] == "pad_token_id"
    assert {"num_processes", "groups_trained", "metrics"} <= set(names(trainer_module.DataCollatorForRollout))


def test_the_trainer_keeps_what_our_overrides_read():
    source = inspect.getsource(AsyncGRPOTrainer)
    for name in ("self.rollout_queue", "self.model_version", "self._metrics", "self._trained_groups"):
        assert f"{name} = " in source or f"{name}: " in source
    assert "self._rollout_dataset.wait_s" in source
    assert "self.args.heartbeat_stale_after_s" in source


def test_the_settings_that_the_learner_passes_exist():
    for name in (
        "token_budget",
        "epsilon",
        "epsilon_high",
        "temperature",
        "max_staleness",
        "num_generations",
    ):
        assert name in AsyncGRPOConfig.__dataclass_fields__


def test_the_rollout_sample_has_the_fields_we_fill():
    assert [field.name for field in dataclasses.fields(RolloutSample)] == [
        "prompt", "completion", "input_ids", "completion_mask", "old_log_probs", "advantage", "model_version",
        "group_id", "metrics", "enqueued_at",
    ]  # fmt: skip
    assert trl_compat.RolloutSample is RolloutSample


def test_the_worker_protocol_has_the_methods_we_implement():
    from grpo_lib.feed import RolloutFeed

    protocol = trainer_module.RolloutWorkerProtocol
    assert set(protocol.__annotations__) == {"rollout_buffer", "metrics_queue"}
    for name in ("start", "stop", "update_model_version", "check_health"):
        assert len(names(getattr(RolloutFeed, name))) == len(names(getattr(protocol, name)))
    methods = {name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"}
    assert methods == {"start", "stop", "update_model_version", "check_health"}


def test_installing_twice_is_installing_once():
    first = trainer_module.get_peak_flops_per_device
    install()
    assert trainer_module.get_peak_flops_per_device is first
    assert packing._flash_attn() is TreeAttention
    assert first(SimpleNamespace(device=torch.device("cpu")), "float32") is None


# ---- what flows --------------------------------------------------------------------------------------------------


def rollout_samples(rows: list[dict], model_version: int = 1) -> list[RolloutSample]:
    return [
        RolloutSample(prompt=[], completion=[], model_version=model_version, enqueued_at=0.0, **row)
        for row in rows
    ]


def queue_of(samples) -> queue.Queue:
    filled: queue.Queue = queue.Queue()
    for sample in samples:
        filled.put(sample)
    return filled


def dataset_of(samples, metrics, model_version=1, max_staleness=2):
    return trainer_module.RolloutQueueDataset(
        rollout_queue=queue_of(samples),
        model_version_fn=lambda: model_version,
        check_health_fn=lambda _: (_ for _ in ()).throw(StopIteration),
        stale_after_s=1.0,
        metrics=metrics,
        max_staleness=max_staleness,
        poll_interval_s=0.01,
    )


def test_samples_batches_and_tensors_have_the_layout_we_rely_on():
    metrics, groups = defaultdict(list), set()
    rows = rollouts(0, groups=2, size=4)
    iterator = iter(dataset_of(rollout_samples(rows), metrics))
    first = next(iterator)
    assert set(first) == {"input_ids", "completion_mask", "old_log_probs", "advantage", "group_id", "metrics"}

    batcher = trainer_module.FixedCountBatcher(dataset_of(rollout_samples(rows), metrics), 1, 8)
    batch = next(iter(batcher))
    assert len(batch) == 1 and isinstance(batch[0], TreeRow) and len(batch[0].samples) == 8
    collator = trainer_module.DataCollatorForRollout(
        0, num_processes=1, groups_trained=groups, metrics=metrics
    )
    tensors = collator([batch])
    assert set(tensors) == {
        "input_ids", "position_ids", "shift_labels", "tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k",
        "tree_max_seqlens", "token_index", "old_log_probs", "advantages", "segment_id", "attention_mask",
        "global_n_tokens", "global_n_forward_tokens", "mean_seq_len",
    }  # fmt: skip
    assert groups == {0, 1}
    trained = sum(int(row["completion_mask"].sum()) for row in rows)
    assert tensors["token_index"].shape == (1, trained) and float(tensors["global_n_tokens"][0]) == trained
    assert tensors["input_ids"].numel() < sum(len(row["input_ids"]) for row in rows)  # prefixes are shared
    assert tensors["tree_cu_seqlens_q"].dtype == tensors["tree_cu_seqlens_k"].dtype == torch.int32
    assert metrics["reward"] == [pytest.approx(np.mean([row["metrics"]["reward"] for row in rows]))]
    assert metrics["sample/staleness_max"] and metrics["sample/staleness_mean"]


def test_the_dataset_drops_by_version_and_asks_for_health_only_when_it_waits(monkeypatch):
    monkeypatch.setattr(trainer_module, "logger", logging.getLogger("test"))  # TRL's wants accelerate's state
    metrics = defaultdict(list)
    stale, fresh = rollout_samples(rollouts(0, 1), 1), rollout_samples(rollouts(1, 1), 2)
    iterator = iter(dataset_of([*stale, *fresh], metrics, model_version=3, max_staleness=1))
    assert [next(iterator)["input_ids"].tolist() for _ in fresh] == [s.input_ids.tolist() for s in fresh]
    assert len(metrics["sample/dropped_stale_total"]) == len(stale)
    with pytest.raises(RuntimeError):  # the queue is empty: `check_health_fn` speaks
        next(iterator)


def test_the_attention_is_called_as_ours_expects(monkeypatch):
    seen = {}

    def record(*args, **kwargs):
        bound = inspect.signature(TreeAttention.flash_attn_varlen_func).bind(*args, **kwargs)
        seen.update(bound.arguments)
        return torch.zeros_like(args[0])

    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=record))
    pack = packed_trie(0)
    run_tree(pack, *projections(pack), scaling=0.3, sliding_window=5)
    n, paths = len(pack["input_ids"]), len(pack["tree_kv_index"])
    assert seen["q"].shape == (n, 4, 8) and seen["k"].shape == seen["v"].shape == (paths, 2, 8)
    assert seen["cu_q"] is pack["tree_cu_seqlens_q"] and seen["cu_k"] is pack["tree_cu_seqlens_k"]
    assert (seen["max_q"], seen["max_k"]) == tuple(pack["tree_max_seqlens"].tolist())
    assert (seen["softmax_scale"], seen["causal"], seen["window_size"]) == (0.3, True, (4, 0))
    assert "softcap" not in seen
    run_tree(pack, *projections(pack), softcap=30.0)
    assert seen["softcap"] == 30.0 and seen["window_size"] == (-1, -1)


def test_what_ours_cannot_compute_is_refused():
    pack = packed_trie(0)
    with pytest.raises(NotImplementedError):
        run_tree(pack, *projections(pack), softcap=30.0)


# ---- tree attention ----------------------------------------------------------------------------------------------


def packed_trie(seed: int, **changes) -> dict[str, torch.Tensor]:
    row = TreeRow()
    for sample in rollouts(seed, **changes):
        row.add(sample)
    return row.pack()


def projections(pack, seed: int = 0, heads: int = 4, kv_heads: int = 2, size: int = 8):
    """Random queries (1, H, N, D), keys and values (1, Hkv, N, D) that want gradients."""
    generator = torch.Generator().manual_seed(seed)
    n = len(pack["input_ids"])
    shapes = ((1, heads, n, size), (1, kv_heads, n, size), (1, kv_heads, n, size))
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


def run_tree(pack, q, k, v, **changes):
    """(N, H, D) through TRL's own `tree_attention`."""
    longest_q, longest_k = pack["tree_max_seqlens"].tolist()
    out, _ = tree_attention(
        LAYER, q, k, v, None,
        tree_kv_index=pack["tree_kv_index"], tree_cu_seqlens_q=pack["tree_cu_seqlens_q"],
        tree_cu_seqlens_k=pack["tree_cu_seqlens_k"], tree_max_seqlen_q=longest_q, tree_max_seqlen_k=longest_k,
        **changes,
    )  # fmt: skip
    return out[0]


def plain(q, k, v, mask, scale=None):
    """Attention of one segment: q (H, n, D), k and v (Hkv, m, D), mask (n, m)."""
    repeat = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return (scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v).transpose(0, 1)  # (n, H, D)


def band(n, m, window):
    """Query j of n stands at key m - n + j and sees itself and what is before it, at most `window` keys."""
    place, key = torch.arange(m - n, m)[:, None], torch.arange(m)
    return (key <= place) & ((key > place - window) if window else torch.ones(1, m, dtype=torch.bool))


def one_segment_at_a_time(pack, q, k, v, window=None, scale=None):
    cu_q, cu_k = pack["tree_cu_seqlens_q"].tolist(), pack["tree_cu_seqlens_k"].tolist()
    out = []
    for s in range(len(cu_q) - 1):
        path = pack["tree_kv_index"][cu_k[s] : cu_k[s + 1]]
        queries = q[0, :, cu_q[s] : cu_q[s + 1]]
        out.append(
            plain(queries, k[0][:, path], v[0][:, path], band(queries.shape[1], len(path), window), scale)
        )
    return torch.cat(out)


def paths_of_samples(pack, samples):
    """Packed positions of each sample's tokens: the path to the leaf that spells them."""
    cu_k = pack["tree_cu_seqlens_k"].tolist()
    paths = [pack["tree_kv_index"][a:b] for a, b in zip(cu_k[:-1], cu_k[1:], strict=True)]
    spelled = {tuple(pack["input_ids"][path].tolist()): path for path in paths}
    return [spelled[tuple(sample["input_ids"].tolist())] for sample in samples]


def assert_same_with_gradients(got, expected, inputs):
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    weight = torch.randn(got.shape, generator=torch.Generator().manual_seed(7))
    mine = torch.autograd.grad((got * weight).sum(), inputs)
    theirs = torch.autograd.grad((expected * weight).sum(), inputs)
    for a, b in zip(mine, theirs, strict=True):
        assert not a.isnan().any()
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("window", [None, 1, 3, 8])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (4, 4), (4, 1)])
def test_tree_attention_equals_one_segment_at_a_time(seed, window, heads, kv_heads):
    pack = packed_trie(seed)
    inputs = projections(pack, seed, heads, kv_heads)
    got = run_tree(pack, *inputs, sliding_window=window, scaling=0.3)
    assert_same_with_gradients(got, one_segment_at_a_time(pack, *inputs, window, 0.3), inputs)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("window", [None, 4])
def test_tree_attention_shows_each_sample_exactly_what_it_saw(seed, window):
    samples = rollouts(seed)
    pack = packed_trie(seed)
    inputs = q, k, v = projections(pack, seed)
    got = run_tree(pack, *inputs, sliding_window=window)
    paths = paths_of_samples(pack, samples)
    dense = [plain(q[0][:, p], k[0][:, p], v[0][:, p], band(len(p), len(p), window)) for p in paths]
    assert_same_with_gradients(torch.cat([got[path] for path in paths]), torch.cat(dense), inputs)


@pytest.mark.parametrize("groups_and_size", [(1, 2), (1, 1), (7, 8)])
def test_tree_attention_of_few_and_of_many_segments(groups_and_size):
    groups, size = groups_and_size
    pack = packed_trie(3, groups=groups, size=size)
    inputs = projections(pack)
    assert_same_with_gradients(run_tree(pack, *inputs), one_segment_at_a_time(pack, *inputs), inputs)


def test_a_chain_without_branches_is_plain_causal_attention():
    pack = packed_trie(0, groups=1, size=1)
    inputs = q, k, v = projections(pack, kv_heads=4)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1)
    assert_same_with_gradients(run_tree(pack, *inputs), expected, inputs)


def test_layers_of_one_batch_may_have_different_windows():
    # A model with full and sliding layers hands the same boundaries to each of them.
    pack = packed_trie(0)
    inputs = projections(pack)
    for window in (None, 3, None, 5):
        got = run_tree(pack, *inputs, sliding_window=window)
        assert_same_with_gradients(got, one_segment_at_a_time(pack, *inputs, window), inputs)


def test_batches_that_follow_each_other_do_not_mix():
    for seed in (0, 1, 0, 2):
        pack = packed_trie(seed)
        inputs = projections(pack, seed)
        got = run_tree(pack, *inputs)
        assert_same_with_gradients(got, one_segment_at_a_time(pack, *inputs), inputs)


def mixed_qwen2():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, use_sliding_window=True, sliding_window=4, initializer_range=0.2,
        layer_types=["full_attention", "sliding_attention"],
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval()


@pytest.mark.parametrize("build", [llama, mixed_qwen2])
def test_a_model_on_the_packed_row_equals_a_forward_of_each_sample(build):
    samples, pack = rollouts(4), packed_trie(4)
    dense = build()
    tree = copy.deepcopy(dense)
    tree.set_attn_implementation(TREE_ATTENTION)
    add_fused_lm_head(tree, temperature=1.0, outputs=("log_probs", "entropy"))
    longest_q, longest_k = pack["tree_max_seqlens"].tolist()
    out = tree(
        input_ids=pack["input_ids"][None], position_ids=pack["position_ids"][None],
        shift_labels=pack["shift_labels"][None], fused_lm_head=True, tree_kv_index=pack["tree_kv_index"],
        tree_cu_seqlens_q=pack["tree_cu_seqlens_q"], tree_cu_seqlens_k=pack["tree_cu_seqlens_k"],
        tree_max_seqlen_q=longest_q, tree_max_seqlen_k=longest_k,
    )  # fmt: skip
    got = out.log_probs.flatten()[pack["token_index"]]
    expected = torch.cat(
        [
            dense_log_probs(dense, s["input_ids"])[torch.as_tensor(s["completion_mask"][1:] == 1)]
            for s in samples
        ]
    )
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    weight = torch.randn(got.shape, generator=torch.Generator().manual_seed(7)) / len(got)
    (got * weight).sum().backward()
    (expected * weight).sum().backward()
    for (name, a), b in zip(tree.named_parameters(), dense.parameters(), strict=True):
        assert not a.grad.isnan().any(), name
        torch.testing.assert_close(
            a.grad, b.grad, atol=1e-5, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}"
        )


# ---- the trainer -------------------------------------------------------------------------------------------------

BATCH, STEPS = 8, 3


class MemoryFeed:
    """TRL's rollout worker out of a list, which counts what is taken from it."""

    def __init__(self, samples):
        self.samples = samples
        self.taken = 0
        self.rollout_buffer = self
        self.metrics_queue: queue.Queue = queue.Queue()
        self.versions: list[int] = []
        self.begun = self.ended = False

    def get(self, timeout):
        if self.taken == len(self.samples):
            raise AssertionError("more was asked for than the run needs")
        self.taken += 1
        return dataclasses.replace(self.samples[self.taken - 1], model_version=self.versions[-1])

    def qsize(self):
        return len(self.samples) - self.taken

    def start(self):
        self.begun = True

    def stop(self):
        self.ended = True

    def update_model_version(self, model_version):
        self.versions.append(model_version)

    def check_health(self, stale_after_s):
        raise AssertionError("never waits")


class Watch(TrainerCallback):
    def __init__(self, feed):
        self.feed, self.taken_before, self.logs = feed, [], []

    def on_step_begin(self, args, state, control, **kwargs):
        self.taken_before.append(self.feed.taken)

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append(dict(logs))


@dataclasses.dataclass
class Run:
    feed: MemoryFeed
    watch: Watch
    trainer: AdapterAsyncGRPOTrainer
    published: list[tuple[int, AdapterSnapshot]]
    checkpoints: list[tuple[str, int, list[str]]]
    base: dict[str, torch.Tensor]


def train(folder: Path, model_path: str, samples, resume: str | None = None) -> Run:
    base, tokenizer = load_base(model_path)
    feed, published, checkpoints = MemoryFeed(samples), [], []
    watch = Watch(feed)

    def publish(model, step):
        published.append((step, snapshot(model, len(published) + 1)))
        return len(published)

    def on_checkpoint(path, step):
        checkpoints.append((path.name, step, sorted(file.name for file in path.iterdir())))

    trainer = AdapterAsyncGRPOTrainer(
        model=model_path,
        args=AsyncGRPOConfig(
            output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=BATCH, num_generations=4,
            gradient_accumulation_steps=1, learning_rate=1e-2, epsilon=0.2, epsilon_high=0.28, max_staleness=2,
            token_budget=0, seed=0, use_cpu=True, bf16=False, gradient_checkpointing=False, logging_steps=1,
            save_strategy="steps", save_steps=1, report_to=[], disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["-"]}),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"),
        callbacks=[watch],
        feed=feed,
        publish=publish,
        on_checkpoint=on_checkpoint,
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=resume)
    return Run(feed, watch, trainer, published, checkpoints, {n: t.clone() for n, t in base_tensors(base)})


def refuse(*_, **__):
    raise AssertionError("the learner merged its adapter")


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    """A random two-layer model beside the shipped tokenizer."""
    path = tmp_path_factory.mktemp("model")
    _, tokenizer = load_base("teaching")
    llama(vocab_size=len(tokenizer)).save_pretrained(path)
    for file in Path(model_source("teaching")).glob("tokenizer*"):
        (path / file.name).write_bytes(file.read_bytes())
    return str(path)


@pytest.fixture(scope="module")
def samples(model_path):
    """Enough for the whole run, with log-probabilities of the base."""
    base, _ = load_base(model_path)
    rows = [row for step in range(STEPS) for row in rollouts(step, groups=2, size=4)]
    for row in rows:
        with torch.no_grad():
            values = dense_log_probs(base, row["input_ids"]).numpy()
        row["old_log_probs"][1:] = values * row["completion_mask"][1:]
    return rollout_samples(rows)


@pytest.fixture(scope="module")
def run(tmp_path_factory, model_path, samples):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuners.BaseTuner, "merge_adapter", refuse)
        patch.setattr(lora_layer.Linear, "merge", refuse)
        return train(tmp_path_factory.mktemp("run"), model_path, samples)


@pytest.mark.trains
def test_nothing_is_fetched_ahead_of_the_step_that_trains_on_it(run):
    assert run.watch.taken_before == [BATCH * (step + 1) for step in range(STEPS)]
    assert run.feed.taken == BATCH * STEPS
    lags = [logs["sample/staleness_max"] for logs in run.watch.logs if "loss" in logs]
    assert lags == [0.0] * STEPS


@pytest.mark.trains
def test_the_adapter_alone_is_published_before_the_start_and_after_each_step(run):
    assert [step for step, _ in run.published] == list(range(STEPS + 1))
    assert run.feed.versions == [1, 2, 3, 4] and run.trainer.model_version == STEPS + 1
    assert run.feed.begun and run.feed.ended
    digests = [adapter.sha256 for _, adapter in run.published]
    assert len(set(digests)) == STEPS + 1
    for name, tensor in run.published[0][1].tensors().items():
        assert "lora_" in name and ("lora_B" not in name or not tensor.any())


@pytest.mark.trains
def test_the_base_is_bit_identical_after_training(run):
    after = dict(base_tensors(run.trainer.accelerator.unwrap_model(run.trainer.model)))
    assert after.keys() == run.base.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in run.base.items())


@pytest.mark.trains
def test_checkpoints_hold_no_pickled_arguments_and_are_whole_when_announced(run):
    assert [(name, step) for name, step, _ in run.checkpoints] == [(f"checkpoint-{n}", n) for n in (1, 2, 3)]
    for _, _, files in run.checkpoints:
        assert "training_args.bin" not in files
        assert {"adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"} <= set(
            files
        )


@pytest.mark.trains
def test_at_lag_zero_the_first_step_sees_the_samplers_own_probabilities(run):
    first, *_, last = [logs for logs in run.watch.logs if "loss" in logs]
    assert first["kl"] < 1e-9 and first["ratio"] == pytest.approx(1, abs=1e-6)
    assert last["kl"] > 1e-6  # old log-probabilities of the base: the measure does see a difference
    assert first["clip_ratio/region_mean"] == 0


@pytest.mark.trains
def test_the_log_has_every_name_that_the_recorder_reads(run):
    from grpo_lib.recorder import _FROM_TRL

    logs = [logs for logs in run.watch.logs if "loss" in logs]
    wanted = set(_FROM_TRL.values()) - {
        "reward_std",
        "completions/mean_length",
    }  # those come with our samples
    assert wanted - {"perf/step_s"} <= set(logs[0])  # the first step has no predecessor
    assert wanted <= set(logs[-1])


@pytest.mark.trains
def test_a_resumed_run_ends_with_the_same_adapter(run, tmp_path, model_path, samples):
    checkpoint = Path(run.trainer.args.output_dir) / "checkpoint-1"
    resumed = train(tmp_path, model_path, samples[BATCH:], resume=str(checkpoint))
    assert resumed.watch.taken_before == [BATCH, 2 * BATCH]
    assert resumed.published[0][1].sha256 == run.published[1][1].sha256  # what the checkpoint held
    final, again = run.published[-1][1].tensors(), resumed.published[-1][1].tensors()
    for name, tensor in final.items():
        torch.testing.assert_close(again[name], tensor, atol=1e-6, rtol=0)
