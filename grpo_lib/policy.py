"""The policy: base model, LoRA adapter, and the adapter snapshots that travel.

A snapshot is the LoRA tensors alone, as safetensors bytes in PEFT's own naming, so that the same bytes are the wire
format, the stored file and what the digest is taken over. A worker merges a snapshot into a private copy of the base,
`W = W0 + (alpha / r) B A` (LoRA, arXiv 2106.09685, eq. 3), each time from the pristine `W0`, so nothing drifts; the
learner never merges.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from peft import LoraConfig, get_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from grpo_lib.runfolder import sha256, write_atomic
from grpo_lib.settings import TEACHING_MODEL, RunSettings

_PEFT_PREFIX = "base_model.model."


def resolve_device(name: str) -> torch.device:
    """The one place where a device name is resolved: `auto` is the accelerator torch reports, else the CPU."""
    if name != "auto":
        return torch.device(name)
    return (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    )


def model_source(name: str) -> str:
    """Path or Hub id to load from; `teaching` is the model that ships with this package."""
    if name != TEACHING_MODEL:
        return name
    from grpo_lib.teaching_model import teaching_model_path

    return str(teaching_model_path())


def load_base(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Base model in float32 on the CPU, in evaluation mode, and its tokenizer."""
    source = model_source(name)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    tokenizer = load_tokenizer(name)
    return model.requires_grad_(False), tokenizer


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Tokenizer with left padding and a padding token, as TRL requires."""
    tokenizer = AutoTokenizer.from_pretrained(model_source(name), padding_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encode_prompt(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """Token ids of one prompt: through the chat template where there is one, else begin-of-text and the text."""
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": prompt}]
        return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))
    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return begin + tokenizer(prompt, add_special_tokens=False)["input_ids"]


def eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every token id that ends a completion, the model's and the tokenizer's."""
    declared = model.generation_config.eos_token_id
    ids = [declared] if isinstance(declared, int) else list(declared or [])
    return tuple(sorted({*ids, tokenizer.eos_token_id}))


def public_name(model: str) -> str:
    """How stored files may call the base model: a path would tell where this machine keeps it."""
    return model if model == TEACHING_MODEL or not Path(model).exists() else "local-base"


def lora_config(settings: RunSettings) -> LoraConfig:
    """Plain LoRA on all linear layers but the head, no dropout, so that sampler and learner agree."""
    return LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules="all-linear",
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )


def base_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Base parameters under their own names, whether or not PEFT wraps the model."""
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            yield name.removeprefix(_PEFT_PREFIX).replace(".base_layer", ""), parameter.detach()


def base_sha256(model: torch.nn.Module) -> str:
    """Digest of the base weights: name, type, shape and bytes of each parameter, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(base_tensors(model)):
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class AdapterSnapshot:
    """One published adapter: its version (from 1, +1 per publication), its bytes and their SHA-256."""

    version: int
    payload: bytes
    sha256: str

    @classmethod
    def of(cls, version: int, payload: bytes) -> AdapterSnapshot:
        return cls(version, payload, sha256(payload))

    def tensors(self) -> dict[str, torch.Tensor]:
        return safetensors.torch.load(self.payload)


def snapshot(model: torch.nn.Module, version: int) -> AdapterSnapshot:
    """The adapter of a PEFT model, copied to the CPU and serialised with its names in order."""
    # "auto" asks the Hub for the base model's configuration; the vocabulary is never resized here.
    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    tensors = {name: state[name].detach().to("cpu", copy=True).contiguous() for name in sorted(state)}
    return AdapterSnapshot.of(version, safetensors.torch.save(tensors))


def write_adapter(folder: Path, adapter: AdapterSnapshot, config: LoraConfig) -> None:
    """Store a snapshot as a PEFT adapter folder; the weights file is byte for byte what was published."""
    staged = folder.with_name(f".{folder.name}")
    staged.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(staged)
    write_atomic(staged / "adapter_model.safetensors", adapter.payload)
    os.replace(staged, folder)


def read_adapter(folder: Path) -> AdapterSnapshot:
    """A stored snapshot."""
    return AdapterSnapshot.of(int(folder.name[1:]), (folder / "adapter_model.safetensors").read_bytes())


class MergedPolicy:
    """A private copy of the base into which snapshots are merged, each time from the pristine weights.

    Args:
        model: The base model; its linear weights are overwritten by `load`.
        scale: alpha / r.
    """

    def __init__(self, model: PreTrainedModel, scale: float):
        self.model = model
        self.scale = scale
        self.version = 0
        self.sha256 = ""
        self._pristine: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def load(self, adapter: AdapterSnapshot) -> None:
        """Make `adapter` the live policy.

        Raises:
            ValueError: a tensor has no counterpart in the base, or an adapter half is missing.
        """
        tensors = adapter.tensors()
        # Everything is looked up before anything is merged, so that a bad adapter changes nothing.
        halves: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for name in sorted(name for name in tensors if name.endswith(".lora_A.weight")):
            layer, other = name.removesuffix(".lora_A.weight"), name.replace(".lora_A.", ".lora_B.")
            if other not in tensors:
                raise ValueError(f"adapter has {name} without its other half")
            halves[layer.removeprefix(_PEFT_PREFIX)] = tensors[name], tensors[other]  # (r, in), (out, r)
        if 2 * len(halves) != len(tensors):
            raise ValueError("adapter holds more than one lora_A and one lora_B per layer")
        modules = dict(self.model.named_modules())
        weights = {}
        for layer, (a, b) in halves.items():
            weights[layer] = getattr(modules.get(layer), "weight", None)
            if weights[layer] is None or weights[layer].shape != (b.shape[0], a.shape[1]):
                raise ValueError(f"adapter has a layer {layer} that does not fit the base")
        self.unload()
        for layer, (a, b) in halves.items():
            weight = weights[layer]
            pristine = self._pristine.setdefault(layer, weight.detach().clone())
            weight.copy_(torch.addmm(pristine, b.to(weight), a.to(weight), alpha=self.scale))
        self.version, self.sha256 = adapter.version, adapter.sha256

    @torch.no_grad()
    def unload(self) -> None:
        """Make the pristine base the live policy again."""
        for layer, pristine in self._pristine.items():
            self.model.get_submodule(layer).weight.copy_(pristine)
        self.version, self.sha256 = 0, ""


def decode(tokenizer: PreTrainedTokenizerBase, completions: Sequence[Sequence[int]]) -> list[str]:
    """Completion texts without special tokens, the form that rewards read."""
    return tokenizer.batch_decode([list(ids) for ids in completions], skip_special_tokens=True)
