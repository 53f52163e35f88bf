"""`RoomyLayer` against transformers' `DynamicLayer`: the same keys and values after any sequence of operations."""

from __future__ import annotations

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, Qwen2Config
from transformers.cache_utils import DynamicLayer

from grpo_lib import kv_cache
from grpo_lib.kv_cache import RoomyLayer, roomy_cache

torch.set_num_threads(1)

operations = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.integers(1, 90)),
        st.tuples(st.just("update"), st.just(1)),
        st.tuples(st.just("repeat"), st.integers(1, 3)),
        st.tuples(st.just("select"), st.lists(st.integers(0, 99), min_size=1, max_size=4)),
        st.tuples(st.just("crop"), st.integers(1, 3)),
        st.tuples(st.just("reset"), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=120, deadline=None)
@given(operations=operations, seed=st.integers(0, 9))
def test_any_sequence_of_operations_gives_the_same(operations, seed):
    torch.manual_seed(seed)
    plain, roomy, rows, kept = DynamicLayer(), RoomyLayer(), 2, []
    for kind, value in [("update", 3), *operations]:
        if kind == "update":
            keys, values = torch.randn(rows, 2, value, 4), torch.randn(rows, 2, value, 4)
            expected, got = plain.update(keys, values), roomy.update(keys, values)
            assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
            kept.append((got[0], got[0].clone(), got[1], got[1].clone()))
        elif kind == "repeat" and rows * value <= 12:
            plain.batch_repeat_interleave(value), roomy.batch_repeat_interleave(value)
            rows = rows * value if plain.get_seq_length() else rows
        elif kind == "select" and plain.get_seq_length():
            index = torch.tensor(value) % rows
            plain.batch_select_indices(index), roomy.batch_select_indices(index)
            rows = len(index)
        elif kind == "crop" and plain.get_seq_length() > value:
            plain.crop(-value), roomy.crop(-value)
        elif kind == "reset":
            plain.reset(), roomy.reset()
        assert plain.get_seq_length() == roomy.get_seq_length()
        assert plain.get_mask_sizes(1) == roomy.get_mask_sizes(1)
        if plain.get_seq_length():
            assert torch.equal(plain.keys, roomy.keys) and torch.equal(plain.values, roomy.values)
    for view, copy, *rest in kept:  # what was handed out earlier has not changed under its reader
        assert torch.equal(view, copy) and torch.equal(*rest)


def test_one_more_token_copies_nothing_while_there_is_room():
    layer, copies = RoomyLayer(), set()
    layer.update(torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4))
    for _ in range(kv_cache._ROOM):
        layer.update(torch.randn(2, 2, 1, 4), torch.randn(2, 2, 1, 4))
        copies.add(layer.keys.untyped_storage().data_ptr())
    assert len(copies) == 1


def test_the_seam_is_as_it_was():
    assert list(inspect.signature(DynamicLayer.update).parameters) == [
        "self", "key_states", "value_states", "args", "kwargs",
    ]  # fmt: skip
    assert list(inspect.signature(DynamicLayer.lazy_initialization).parameters) == [
        "self", "key_states", "value_states",
    ]  # fmt: skip
    for name in ("get_seq_length", "batch_repeat_interleave", "batch_select_indices", "crop", "reset"):
        assert getattr(RoomyLayer, name) is getattr(DynamicLayer, name)
    layer = DynamicLayer()
    assert not layer.is_initialized and layer.get_seq_length() == 0


def test_only_full_attention_layers_are_replaced():
    config = Qwen2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, use_sliding_window=True,
        sliding_window=4, layer_types=["full_attention", "sliding_attention"],
    )  # fmt: skip
    kinds = [type(layer) for layer in roomy_cache(config).layers]
    assert kinds[0] is RoomyLayer
    assert kinds[1] is type(DynamicCache(config=config).layers[1]) is not RoomyLayer


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@torch.inference_mode()
def test_a_model_gives_the_same_logits_with_either(model):
    caches = [DynamicCache(config=model.config), roomy_cache(model.config)]
    assert len(caches[1].layers) == len(caches[0].layers) == 2
    ids = torch.randint(50, (3, 7))
    for step in range(90):
        logits = [
            model(input_ids=ids, past_key_values=cache, use_cache=True).logits[:, -1] for cache in caches
        ]
        assert torch.equal(*logits)
        if step == 0:
            for cache in caches:
                cache.batch_repeat_interleave(2)
            logits = [value.repeat_interleave(2, 0) for value in logits]
        if step == 40:
            keep = torch.tensor([0, 3, 5])
            for cache in caches:
                cache.batch_select_indices(keep)
            logits = [value[keep] for value in logits]
        ids = logits[0].argmax(-1)[:, None]
