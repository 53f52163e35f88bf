"""Policy and snapshots: what the worker samples from is what the learner trains."""

from __future__ import annotations

import copy

import pytest
import safetensors.torch
import torch
from peft import PeftModel, get_peft_model

from grpo_lib.policy import (
    AdapterSnapshot,
    MergedPolicy,
    base_sha256,
    base_tensors,
    decode,
    encode_prompt,
    eos_ids,
    load_base,
    lora_config,
    read_adapter,
    resolve_device,
    snapshot,
    write_adapter,
)
from grpo_lib.runfolder import sha256
from grpo_lib.settings import load
from grpo_lib.tasks import ArithmeticTask

torch.set_num_threads(1)
SETTINGS = load({"run_id": "run-1", "lora_rank": 4, "lora_alpha": 6})
SCALE = 6 / 4


@pytest.fixture(scope="module")
def base():
    return load_base("teaching")


@pytest.fixture(scope="module")
def ids(base):
    prompts = [encode_prompt(base[1], ArithmeticTask(0).train_example(n).prompt) for n in range(4)]
    width = min(map(len, prompts))
    return torch.tensor([prompt[:width] for prompt in prompts])


def learner(base, seed=0):
    """An unmerged PEFT model whose adapter is not the identity."""
    torch.manual_seed(seed)
    model = get_peft_model(copy.deepcopy(base[0]), lora_config(SETTINGS)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.05)
    return model


@pytest.fixture(scope="module")
def peft_model(base):
    return learner(base)


@pytest.fixture
def policy(base):
    return MergedPolicy(copy.deepcopy(base[0]), SCALE)


@torch.inference_mode()
def log_probs(model, ids):
    return torch.log_softmax(model(input_ids=ids).logits.float(), -1)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_merged_policy_equals_the_unmerged_learner(peft_model, policy, base, ids):
    policy.load(snapshot(peft_model, 1))
    learnt = log_probs(peft_model, ids)
    assert (log_probs(policy.model, ids) - learnt).abs().max() < 1e-4
    assert (log_probs(base[0], ids) - learnt).abs().max() > 0.1  # the adapter does something


def test_a_fresh_adapter_changes_nothing(base, policy, ids):
    fresh = get_peft_model(copy.deepcopy(base[0]), lora_config(SETTINGS))
    before = weights(policy.model)
    policy.load(snapshot(fresh, 1))
    assert same(weights(policy.model), before)


def test_loading_twice_and_in_between_does_not_drift(base, peft_model, policy):
    one, other = snapshot(peft_model, 1), snapshot(learner(base, seed=1), 2)
    policy.load(one)
    first = weights(policy.model)
    assert (policy.version, policy.sha256) == (1, one.sha256)
    for _ in range(3):
        policy.load(other)
        assert policy.version == 2 and not same(weights(policy.model), first)
        policy.load(one)
    assert same(weights(policy.model), first)


def test_unloading_restores_the_base_bit_for_bit(base, peft_model, policy):
    policy.load(snapshot(peft_model, 1))
    policy.unload()
    assert same(weights(policy.model), weights(base[0])) and (policy.version, policy.sha256) == (0, "")
    assert base_sha256(policy.model) == base_sha256(base[0])


def edited(adapter, change) -> AdapterSnapshot:
    tensors = adapter.tensors()
    change(tensors)
    return AdapterSnapshot.of(adapter.version, safetensors.torch.save(tensors))


def names_of(tensors, end=".lora_A.weight"):
    return sorted(name for name in tensors if name.endswith(end))


def drop_half(tensors):
    del tensors[names_of(tensors, ".lora_B.weight")[0]]


def rename_half(tensors):
    name = names_of(tensors, ".lora_B.weight")[0]
    tensors[name.replace("lora_B", "lora_C")] = tensors.pop(name)


def rename_layer(tensors):
    for end in (".lora_A.weight", ".lora_B.weight"):
        name = names_of(tensors, end)[-1]
        tensors[name.replace("layers.", "strata.")] = tensors.pop(name)


def add_more(tensors):
    tensors["base_model.model.lm_head.weight"] = torch.zeros(2)


@pytest.mark.parametrize("harm", [drop_half, rename_half, rename_layer, add_more])
def test_an_adapter_that_does_not_fit_the_base_is_a_value_error(peft_model, policy, harm):
    with pytest.raises(ValueError):
        policy.load(edited(snapshot(peft_model, 1), harm))
    assert policy.version == 0


def test_layers_that_an_adapter_leaves_out_are_pristine(base, peft_model, policy):
    whole = snapshot(peft_model, 1)

    def keep_first(tensors):
        for name in list(tensors):
            if ".layers.0." not in name:
                del tensors[name]

    partial = edited(whole, keep_first)
    policy.load(partial)
    expected = weights(policy.model)
    policy.load(whole)
    policy.load(partial)
    assert same(weights(policy.model), expected)


# ---- snapshots ---------------------------------------------------------------------------------------------------


def test_snapshot_bytes_depend_on_the_adapter_alone(base, peft_model):
    one, again, twin = snapshot(peft_model, 1), snapshot(peft_model, 1), snapshot(learner(base), 1)
    assert one.payload == again.payload == twin.payload
    assert one.sha256 == sha256(one.payload)
    assert snapshot(learner(base, seed=1), 1).sha256 != one.sha256


def test_a_snapshot_holds_the_adapter_and_nothing_else(peft_model):
    tensors = snapshot(peft_model, 1).tensors()
    assert names_of(tensors) and len(tensors) == 2 * len(names_of(tensors))
    assert all(name.endswith((".lora_A.weight", ".lora_B.weight")) for name in tensors)
    assert sum(tensor.numel() for tensor in tensors.values()) == sum(
        parameter.numel() for parameter in peft_model.parameters() if parameter.requires_grad
    )


def test_a_snapshot_does_not_change_with_the_model(base):
    model = learner(base)
    taken = snapshot(model, 1)
    before = taken.tensors()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert same(taken.tensors(), before)


def test_the_written_folder_is_a_peft_adapter_of_the_same_bytes(base, peft_model, ids, tmp_path):
    taken = snapshot(peft_model, 7)
    folder = tmp_path / "adapters" / "v000007"
    write_adapter(folder, taken, lora_config(SETTINGS))
    assert [path.name for path in folder.parent.iterdir()] == ["v000007"]
    assert (folder / "adapter_model.safetensors").read_bytes() == taken.payload
    assert read_adapter(folder) == taken
    loaded = PeftModel.from_pretrained(copy.deepcopy(base[0]), str(folder)).eval()
    assert torch.equal(log_probs(loaded, ids), log_probs(peft_model, ids))


# ---- digest of the base ------------------------------------------------------------------------------------------


def test_the_base_digest_is_the_same_with_and_without_peft(base, peft_model):
    assert base_sha256(peft_model) == base_sha256(base[0])
    assert dict(base_tensors(peft_model)).keys() == dict(base_tensors(base[0])).keys()


def test_the_base_digest_changes_with_one_weight_of_any_tensor(base):
    model, before = copy.deepcopy(base[0]), base_sha256(base[0])
    for parameter in model.parameters():
        flat = parameter.data.view(-1)
        kept = flat[-1].item()
        flat[-1] = torch.nextafter(flat[-1], torch.tensor(9.0))
        assert base_sha256(model) != before
        flat[-1] = kept
    assert base_sha256(model) == before
    assert base_sha256(model.to(torch.bfloat16)) != before


# ---- tokens ------------------------------------------------------------------------------------------------------


def test_prompts_begin_and_completions_end_as_the_model_was_taught(base):
    model, tokenizer = base
    prompt = ArithmeticTask(0).train_example(0).prompt
    ids = encode_prompt(tokenizer, prompt)
    assert ids[0] == tokenizer.bos_token_id and tokenizer.bos_token_id not in ids[1:]
    assert decode(tokenizer, [ids])[0].strip() == prompt
    assert set(eos_ids(model, tokenizer)) == {1}
    assert tokenizer.padding_side == "left" and tokenizer.pad_token_id not in eos_ids(model, tokenizer)


def test_the_base_is_frozen_float32_in_evaluation_mode(base):
    assert not base[0].training
    assert {parameter.dtype for parameter in base[0].parameters()} == {torch.float32}
    assert not any(parameter.requires_grad for parameter in base[0].parameters())


def test_a_named_device_is_taken_as_it_is():
    assert resolve_device("cpu") == torch.device("cpu")
    assert isinstance(resolve_device("auto"), torch.device)
