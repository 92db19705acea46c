"""The reference engine: Hugging Face's forward of any architecture, over KV buffers of ours."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from methods.core.engines import EngineName
from methods.core.engines.engine import Visible
from methods.core.limited_head import LimitedHead
from methods.core.transfer import on_device
from methods.core.windows import layer_windows

_GROW_BY = 512  # KV rows; buffers grow between prompts, never within one


class _KVLayer(CacheLayerMixin):
    """One layer's buffers, [batch, heads, capacity, head_dim], on the layer's own device."""

    is_sliding = False  # the mask applies windows: every layer keeps every row

    def __init__(self, cache: KVCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers leaves it bare
        self._cache = cache
        self.is_initialized = True
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the first update allocates."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new rows; return all rows up to and with them."""
        start = self._cache.rows
        end = start + key_states.shape[-2]
        if self.keys is None or self.values is None:
            self.keys, self.values = self._allocated(key_states), self._allocated(value_states)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _allocated(self, states: torch.Tensor) -> torch.Tensor:
        batch, heads, _, head_dim = states.shape
        return states.new_empty((batch, heads, self._cache.capacity, head_dim))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the key length that a mask needs, and its offset."""
        return self._cache.rows + query_length, 0

    def get_seq_length(self) -> int:
        """Return the rows held."""
        return self._cache.rows

    def get_max_length(self) -> int:
        """Return -1: no maximum."""
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5.2x


class KVCache(Cache):
    """KV rows of all layers in buffers that are allocated once."""

    def __init__(self, layers: int) -> None:
        self._own = [_KVLayer(self) for _ in range(layers)]
        super().__init__(layers=[*self._own])
        self.rows = 0
        self.capacity = 0

    def reserve(self, rows: int) -> None:
        """Forget everything and make room for `rows` rows."""
        self.rows = 0
        if rows > self.capacity:
            self.capacity = -(-rows // _GROW_BY) * _GROW_BY
            for layer in self._own:
                layer.keys = layer.values = None

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """Move `rows` (absolute, ascending) to `start`, `start + 1`, … and forget all behind them."""
        end = start + len(rows)
        self.rows = end
        if list(rows) == list(range(start, end)):
            return
        index = torch.tensor(rows)
        for layer in self._own:
            for buffer in (layer.keys, layer.values):
                assert buffer is not None  # rows were written, so the buffers exist
                buffer[..., start:end, :] = buffer[..., on_device(index, buffer.device), :]

    def select(self, sequences: torch.Tensor) -> None:
        """Keep only these sequences of the batch."""
        for layer in self._own:
            assert layer.keys is not None  # rows were written, so the buffers exist
            assert layer.values is not None
            layer.keys, layer.values = layer.keys[sequences], layer.values[sequences]


class HuggingFaceEngine:
    """Runs a model's own forward.

    Args:
        model: a Hugging Face causal LM with SDPA or eager attention, in evaluation mode; its layers may lie on several
            devices.

    Raises:
        UserError: layers that cannot evaluate trees.
    """

    name: EngineName = "hf"

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config.get_text_config()
        self.details = f"{config._attn_implementation} attention"
        self.read_layers: tuple[int, ...] = ()
        self.hidden: list[torch.Tensor] = []
        self._model = model
        self._windows = layer_windows(config)
        self._cache = KVCache(config.num_hidden_layers)
        self._cache_argument = cache_argument(model)
        head = model.get_output_embeddings()
        self._limited_head = head if isinstance(head, LimitedHead) else None

    def reserve(self, rows: int) -> None:
        """See `Engine.reserve`."""
        self._cache.reserve(rows)

    def forward(
        self, tokens: Sequence[int], positions: Sequence[int], start: int, visible: Visible | None, *, logits: bool
    ) -> torch.Tensor | None:
        """See `Engine.forward`."""
        self._cache.rows = start
        inputs = self._inputs(tokens, positions)
        if visible is not None:
            masks = {kind: self._mask(visible[window]) for kind, window in self._windows.items()}
            inputs["attention_mask"] = masks if len(masks) > 1 else next(iter(masks.values()))
        if self.read_layers:
            inputs["output_hidden_states"] = True
        whole_head = logits and self._limited_head is None
        output: Any = self._model(**inputs) if whole_head else self._model.base_model(**inputs)
        self.hidden = [output.hidden_states[layer + 1][0] for layer in self.read_layers]
        self._cache.rows = start + len(tokens)
        if not logits:
            return None
        if self._limited_head is not None:
            return self._limited_head.limited(output.last_hidden_state[0])
        computed: torch.Tensor = output.logits[0]
        return computed

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """See `Engine.keep`."""
        self._cache.keep(start, rows)

    def _inputs(self, tokens: Sequence[int], positions: Sequence[int]) -> dict[str, Any]:
        device = input_device(self._model)
        return {
            "input_ids": on_device(torch.tensor([tokens]), device),
            "position_ids": on_device(torch.tensor([positions]), device),
            "use_cache": True,
            self._cache_argument: self._cache,
        }

    def _mask(self, visible: NDArray[np.bool_]) -> torch.Tensor:
        """Return the additive mask [1, 1, tokens, rows] in the model's dtype.

        Under eager attention a boolean mask is silently wrong; a row of -inf, instead of a finite minimum, gives NaN.
        """
        mask = torch.zeros(visible.shape, dtype=self._model.dtype)
        mask.masked_fill_(torch.from_numpy(~visible), torch.finfo(mask.dtype).min)
        return on_device(mask[None, None], input_device(self._model))


def input_device(model: PreTrainedModel) -> torch.device:
    """Return where a model's inputs go: to its first weights, or where those are brought when they lie on no device."""
    hook = getattr(model, "_hf_hook", None)
    moved: Any = getattr(hook, "execution_device", None)
    return model.device if moved is None else torch.device(moved)


def cache_argument(model: PreTrainedModel) -> str:
    """Return the name of the cache argument of a model's forward, which changed in transformers 5.2x."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
