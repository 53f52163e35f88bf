"""The rollout batch on the wire: what went in comes out, and what does not hold together raises `ValueError` alone."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_lib.rollouts import Header, RolloutBatch, Span

ARRAYS = ("input_ids", "completion_mask", "old_log_probs", "lengths", "rewards", "advantages")


def header(**changes) -> Header:
    given = dict(worker_id="worker-0", lease_id=3, sequence=1, policy_version=2, policy_sha256="a" * 64)
    given |= dict(base_sha256="b" * 64, prompts=(4, 7), reward_names=("correct", "format"))
    return Header(**given | dict(spans=(Span("generate", 1.0, 2.0), Span("score", 2.0, 2.5))) | changes)


def batch(**changes) -> RolloutBatch:
    """Two groups of two samples of 3, 4, 2 and 5 tokens."""
    lengths = np.array([3, 4, 2, 5], np.int32)
    total, random = int(lengths.sum()), np.random.default_rng(0)
    mask = np.array([0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1], np.uint8)
    given = dict(
        header=header(),
        input_ids=np.arange(total, dtype=np.int32),
        completion_mask=mask,
        old_log_probs=np.where(mask, -random.random(total), 0).astype(np.float32),
        lengths=lengths,
        rewards=random.random((4, 2)).astype(np.float32),
        advantages=random.standard_normal(4).astype(np.float32),
    )
    return RolloutBatch(**given | changes)


def payload(arrays=None, metadata=None, **header_changes) -> bytes:
    """Bytes of the good batch with some arrays, header fields or the whole metadata replaced."""
    good = batch()
    parts = {name: getattr(good, name) for name in ARRAYS} | (arrays or {})
    fields = json.loads(json.dumps(dataclasses.asdict(good.header))) | header_changes
    return safetensors.numpy.save(
        {name: value for name, value in parts.items() if value is not None},
        metadata={"header": json.dumps(fields)} if metadata is None else metadata,
    )


def test_a_batch_comes_back_as_it_was():
    sent = batch()
    received = RolloutBatch.from_bytes(sent.to_bytes())
    assert received.header == sent.header and received.group_size == 2
    for name in ARRAYS:
        value = getattr(received, name)
        assert value.dtype == getattr(sent, name).dtype and np.array_equal(value, getattr(sent, name))


def test_samples_are_cut_at_their_lengths():
    sent = batch()
    samples = RolloutBatch.from_bytes(sent.to_bytes()).samples()
    assert [len(sample["input_ids"]) for sample in samples] == [3, 4, 2, 5]
    assert np.concatenate([sample["input_ids"] for sample in samples]).tolist() == sent.input_ids.tolist()
    assert samples[1]["input_ids"].tolist() == [3, 4, 5, 6]
    assert samples[2]["completion_mask"].tolist() == [0, 1]
    assert np.array_equal(samples[3]["rewards"], sent.rewards[3])
    assert samples[3]["advantage"] == float(sent.advantages[3])
    for sample in samples:
        assert len(sample["old_log_probs"]) == len(sample["completion_mask"]) == len(sample["input_ids"])


def test_the_good_payload_of_this_test_is_good():
    assert RolloutBatch.from_bytes(payload()).header == header()


def flat(values, kind):
    return np.array(values, kind)


BAD_ARRAYS = {
    "an array is missing": {"rewards": None},
    "an array is unknown": {"extra": flat([1], np.int32)},
    "ids of another type": {"input_ids": np.arange(14, dtype=np.int64)},
    "rewards of another type": {"rewards": np.zeros((4, 2))},
    "a mask too short": {"completion_mask": np.zeros(13, np.uint8)},
    "log-probabilities too long": {"old_log_probs": np.zeros(15, np.float32)},
    "lengths that do not add up": {"lengths": flat([3, 4, 2, 4], np.int32)},
    "a length of zero": {"lengths": flat([3, 4, 0, 7], np.int32)},
    "a negative length": {"lengths": flat([-3, 10, 2, 5], np.int32)},
    "samples that make no whole groups": {
        "lengths": flat([3, 4, 7], np.int32),
        "rewards": np.zeros((3, 2), np.float32),
        "advantages": np.zeros(3, np.float32),
    },
    "no samples": {
        "lengths": flat([], np.int32),
        "input_ids": flat([], np.int32),
        "completion_mask": flat([], np.uint8),
        "old_log_probs": flat([], np.float32),
        "rewards": np.zeros((0, 2), np.float32),
        "advantages": flat([], np.float32),
    },
    "a reward column too many": {"rewards": np.zeros((4, 3), np.float32)},
    "rewards without columns": {"rewards": np.zeros(4, np.float32)},
    "an advantage too few": {"advantages": np.zeros(3, np.float32)},
    "a reward that is no number": {"rewards": np.full((4, 2), np.nan, np.float32)},
    "an infinite advantage": {"advantages": flat([0, 0, np.inf, 0], np.float32)},
    "a log-probability that is no number": {"old_log_probs": np.full(14, np.nan, np.float32)},
    "a log-probability of minus infinity": {"old_log_probs": np.full(14, -np.inf, np.float32)},
    "a log-probability above zero": {"old_log_probs": np.full(14, 0.5, np.float32)},
    "ids in two dimensions": {"input_ids": np.zeros((14, 2), np.int32)},
    "lengths in two dimensions": {"lengths": flat([[3], [4], [2], [5]], np.int32)},
    "ids without a dimension": {"input_ids": np.array(3, np.int32)},
    "lengths without a dimension": {"lengths": np.array(14, np.int32)},
    "a mask that is neither 0 nor 1": {"completion_mask": np.full(14, 7, np.uint8)},
    "a sample of which nothing was sampled": {
        "completion_mask": flat([0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1], np.uint8)
    },
}


@pytest.mark.parametrize("what", BAD_ARRAYS)
def test_arrays_that_do_not_hold_together_are_refused(what):
    with pytest.raises(ValueError):
        RolloutBatch.from_bytes(payload(BAD_ARRAYS[what]))


BAD_HEADERS = {
    "an unknown field": {"colour": "blue"},
    "a lease that is no number": {"lease_id": "three"},
    "an infinite lease": {"lease_id": float("inf")},
    "a version that is no number": {"policy_version": float("nan")},
    "an infinite version": {"policy_version": float("-inf")},
    "prompts that are no list": {"prompts": 4},
    "a prompt that is no number": {"prompts": ["x", 1]},
    "an infinite prompt": {"prompts": [float("inf"), 1]},
    "no prompts": {"prompts": []},
    "a group too many": {"prompts": [1, 2, 3]},
    "spans that are no list": {"spans": 1},
    "a span without an end": {"spans": [{"kind": "generate", "start": 1.0}]},
    "a span that is text": {"spans": ["generate"]},
    "a time that is no number": {"spans": [{"kind": "generate", "start": float("nan"), "end": 2.0}]},
    "an infinite time": {"spans": [{"kind": "generate", "start": 1.0, "end": float("inf")}]},
    "a time beyond every float": {"spans": [{"kind": "generate", "start": 1.0, "end": 10**400}]},
    "another number of reward names": {"reward_names": ["correct"]},
    "reward names that are no list": {"reward_names": None},
}


@pytest.mark.parametrize("what", BAD_HEADERS)
def test_headers_that_do_not_hold_together_are_refused(what):
    with pytest.raises(ValueError):
        RolloutBatch.from_bytes(payload(**BAD_HEADERS[what]))


@pytest.mark.parametrize("missing", [field.name for field in dataclasses.fields(Header)])
def test_a_header_without_a_field_is_refused(missing):
    fields = dataclasses.asdict(header())
    del fields[missing]
    with pytest.raises(ValueError):
        RolloutBatch.from_bytes(payload(metadata={"header": json.dumps(fields)}))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"other": "1"},
        *({"header": text} for text in ("", "{", "[]", "null", "5", '"text"', "[" * 50_000)),
    ],
    ids=["none", "other", "empty", "open", "list", "null", "number", "text", "deep"],
)
def test_metadata_that_is_no_header_is_refused(metadata):
    with pytest.raises(ValueError):
        RolloutBatch.from_bytes(payload(metadata=metadata))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0" * 8,
        b"{}",
        b"\xff" * 64,
        (2**63 - 1).to_bytes(8, "little") + b"{}",
        b"\x02" + b"\0" * 7 + b"{}",
    ],
)
def test_bytes_that_are_no_batch_are_refused(raw):
    with pytest.raises(ValueError):
        RolloutBatch.from_bytes(raw)


GOOD = batch().to_bytes()


def parses_or_value_error(raw: bytes) -> None:
    try:
        parsed = RolloutBatch.from_bytes(raw)
    except ValueError:
        return
    parsed.samples()  # what parses can be cut into samples too


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_a_corrupted_batch_parses_or_raises_value_error(data):
    raw = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    parses_or_value_error(bytes(raw))


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, len(GOOD)), more=st.binary(max_size=20))
def test_a_cut_or_extended_batch_parses_or_raises_value_error(cut, more):
    parses_or_value_error(GOOD[:cut] + more)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from([field.name for field in dataclasses.fields(Header)]), value=json_values)
def test_any_json_in_a_header_field_parses_or_raises_value_error(name, value):
    parses_or_value_error(payload(**{name: value}))
