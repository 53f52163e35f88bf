"""A key-value cache with room to grow; the only subclass of a transformers class in this suite.

transformers' `DynamicLayer` concatenates at every token, so each token copies the whole cache: a quarter of the sampler's
time on the teaching model. `RoomyLayer` writes into room kept at the end and copies only when that is used up.
`tests/contract/test_kv_cache.py` compares it with the original and fails when the seam changes.
"""

from __future__ import annotations

import torch
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

# Tokens of room that a copy leaves, at least; enough for the short answers here to be copied once.
_ROOM = 64


class RoomyLayer(DynamicLayer):
    """`DynamicLayer` whose `keys` and `values` are views into larger buffers (B, H, room, D)."""

    _seen: torch.Tensor | None = (
        None  # `keys` as we left it; another object there means rows were picked or repeated
    )

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._seen is None or self._seen is not self.keys or end > self._key_room.shape[-2]:
            room = (*key_states.shape[:-2], end + max(_ROOM, start), key_states.shape[-1])
            key_room, value_room = key_states.new_empty(room), value_states.new_empty(room)
            if start:
                key_room[..., :start, :] = self.keys
                value_room[..., :start, :] = self.values
            elif not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            self._key_room, self._value_room = key_room, value_room
        self._key_room[..., start:end, :] = key_states
        self._value_room[..., start:end, :] = value_states
        self.keys = self._seen = self._key_room[..., :end, :]
        self.values = self._value_room[..., :end, :]
        return self.keys, self.values


def roomy_cache(config: PreTrainedConfig) -> DynamicCache:
    """A `DynamicCache` for `config` whose full-attention layers have room to grow."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
