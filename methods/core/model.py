"""A causal language model that evaluates trees. Only this module touches KV caches and attention masks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from foundation.errors import UserError
from methods.core.limited_head import LimitedHead
from methods.core.timeline import CudaTimeline, HostTimeline, Timeline
from methods.core.transfer import on_device

_GROW_BY = 512  # KV rows; buffers grow between prompts, never within one
_PREFILL_CHUNK = 256  # tokens whose logits are held at once


class _KVLayer(CacheLayerMixin):
    """One layer's rows in the shared buffer: rows are written behind the committed ones."""

    is_sliding = False  # the mask applies windows: every layer keeps every row

    def __init__(self, cache: KVCache, index: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers leaves it bare
        self._cache = cache
        self._index = index
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the buffer exists."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new rows; return all rows up to and with them."""
        start = self._cache.rows
        end = start + key_states.shape[-2]
        keys, values = self._cache.layer_buffers(self._index, key_states, value_states)
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        return keys[:, :, :end], values[:, :, :end]

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
    """KV rows of all layers in two buffers [layers, batch, heads, capacity, head_dim], allocated once."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers=[_KVLayer(self, index) for index in range(layers)])
        self.rows = 0
        self.capacity = 0
        self._count = layers
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None

    def reserve(self, rows: int) -> None:
        """Forget everything and make room for `rows` rows."""
        self.rows = 0
        if rows > self.capacity:
            self.capacity = -(-rows // _GROW_BY) * _GROW_BY
            self._keys = self._values = None

    def layer_buffers(
        self, layer: int, key_states: torch.Tensor, value_states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a layer's key and value buffer, each [batch, heads, capacity, head_dim]."""
        if self._keys is None or self._values is None:
            self._keys = self._allocate(key_states)
            self._values = self._allocate(value_states)
        return self._keys[layer], self._values[layer]

    def _allocate(self, states: torch.Tensor) -> torch.Tensor:
        batch, heads, _, head_dim = states.shape
        return states.new_empty((self._count, batch, heads, self.capacity, head_dim))

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """Move `rows` (absolute, ascending) to `start`, `start + 1`, … and forget all behind them."""
        end = start + len(rows)
        if list(rows) != list(range(start, end)):
            assert self._keys is not None  # rows were written, so the buffers exist
            assert self._values is not None
            index = on_device(torch.tensor(rows), self._keys.device)
            self._keys[..., start:end, :] = self._keys[..., index, :]
            self._values[..., start:end, :] = self._values[..., index, :]
        self.rows = end

    def select(self, sequences: torch.Tensor) -> None:
        """Keep only these sequences of the batch."""
        assert self._keys is not None  # rows were written, so the buffers exist
        assert self._values is not None
        self._keys = self._keys[:, sequences]
        self._values = self._values[:, sequences]


class TreeModel:
    """Wraps a causal LM: prefill a context, evaluate a tree on top of it, commit one path.

    Rows evaluated since the last commit are *pending*: later evaluations may attend to them, and `commit` keeps some
    and drops the rest.

    Args:
        model: a Hugging Face causal LM with SDPA or eager attention, in evaluation mode.

    Attributes:
        model: the wrapped model.
        length: committed tokens in the cache.
        vocab_size: width of its logits, padding included.
        max_positions: its maximum context length, in tokens.
        limited_head: the model's head if it covers only part of the vocabulary.

    Raises:
        UserError: layers on several devices, or layers that cannot evaluate trees.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.length = 0
        self._pending_positions: list[int] = []
        config = model.config.get_text_config()
        self.vocab_size: int = config.vocab_size
        self.max_positions: int = config.max_position_embeddings
        head = model.get_output_embeddings()
        self.limited_head = head if isinstance(head, LimitedHead) else None
        self._cache = KVCache(config.num_hidden_layers)
        self._cache_argument = cache_argument(model)
        self._windows = _attention_windows(config)
        if len(set(getattr(model, "hf_device_map", {}).values())) > 1:
            raise UserError(f"{config.model_type}: its layers lie on several devices; give it one that holds them all")

    @property
    def pending(self) -> int:
        """Rows evaluated since the last commit."""
        return len(self._pending_positions)

    @property
    def device(self) -> torch.device:
        """Device of the inputs."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """The model's floating-point type."""
        return self.model.dtype

    @property
    def timeline(self) -> Timeline:
        """Timeline of the device."""
        return CudaTimeline(self.device) if self.device.type == "cuda" else HostTimeline()

    def synchronise(self) -> None:
        """Wait until the device has finished all queued work."""
        self.timeline.synchronise()

    def begin(self, capacity: int) -> None:
        """Forget every token and make room for `capacity` KV rows."""
        self._cache.reserve(capacity)
        self.length = 0
        self._pending_positions = []

    @torch.inference_mode()
    def prefill(self, tokens: Sequence[int]) -> None:
        """Commit `tokens` (may be none) behind the committed ones, without computing logits."""
        if tokens:
            self.model.base_model(**self._prefill_inputs(tokens))
            self._committed(len(tokens))

    @torch.inference_mode()
    def prefill_scored(self, tokens: Sequence[int], reduce: Callable[[torch.Tensor, int], None]) -> None:
        """Commit `tokens` like `prefill`, passing the logits behind each to `reduce`.

        Args:
            tokens: token ids, may be none.
            reduce: called per chunk, as a long prompt's logits would not fit at once, with logits [chunk, vocabulary]
                and the index in `tokens` of the first row's token.
        """
        for start in range(0, len(tokens), _PREFILL_CHUNK):
            chunk = tokens[start : start + _PREFILL_CHUNK]
            logits = self.model(**self._prefill_inputs(chunk)).logits[0]
            self._committed(len(chunk))
            reduce(logits, start)

    @torch.inference_mode()
    def evaluate(self, tokens: Sequence[int], depths: Sequence[int], visible: NDArray[np.bool_]) -> torch.Tensor:
        """Run one forward over tree nodes on top of the committed context; the rows become pending.

        Args:
            tokens: token ids, [nodes].
            depths: distance of each node from the root, [nodes]; a node's position is `length` + depth.
            visible: which pending rows and which of these nodes each node attends to, [nodes, pending + nodes]; all
                attend to the committed context and to themselves.

        Returns:
            Logits in the model's dtype, [nodes, vocabulary], or [nodes, limited vocabulary] with a limited head.
        """
        positions = [self.length + depth for depth in depths]
        inputs = self._inputs(tokens, positions)
        inputs["attention_mask"] = self._masks(positions, visible)
        logits: torch.Tensor
        if self.limited_head is None:
            logits = self.model(**inputs).logits[0]
        else:
            logits = self.limited_head.limited(self.model.base_model(**inputs).last_hidden_state[0])
        self._pending_positions += positions
        self._cache.rows = self.length + self.pending
        return logits

    @torch.inference_mode()
    def commit(self, rows: Sequence[int]) -> None:
        """Commit these pending rows (ascending, from 0); drop the others."""
        self._cache.keep(self.length, [self.length + row for row in rows])
        self.length += len(rows)
        self._pending_positions = []

    def _committed(self, count: int) -> None:
        self.length += count
        self._cache.rows = self.length

    def _prefill_inputs(self, tokens: Sequence[int]) -> dict[str, Any]:
        return self._inputs(tokens, range(self.length, self.length + len(tokens)))

    def _inputs(self, tokens: Sequence[int], positions: Sequence[int]) -> dict[str, Any]:
        return {
            "input_ids": on_device(torch.tensor([tokens]), self.device),
            "position_ids": on_device(torch.tensor([positions]), self.device),
            "use_cache": True,
            self._cache_argument: self._cache,
        }

    def _masks(self, positions: Sequence[int], visible: NDArray[np.bool_]) -> torch.Tensor | dict[str, torch.Tensor]:
        masks = {kind: self._mask(positions, visible, window) for kind, window in self._windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, positions: Sequence[int], visible: NDArray[np.bool_], window: int | None) -> torch.Tensor:
        """Return the additive mask [1, 1, nodes, committed + pending + nodes] in the model's dtype.

        Under eager attention a boolean mask is silently wrong; a row of -inf, instead of a finite minimum, gives NaN.
        """
        allowed = np.ones((len(positions), self.length + visible.shape[1]), dtype=np.bool_)
        allowed[:, self.length :] = visible
        if window is not None:
            keys = np.concatenate([np.arange(self.length), self._pending_positions, positions])
            allowed &= np.asarray(positions)[:, None] - keys[None, :] < window
        mask = torch.zeros(allowed.shape, dtype=self.dtype)
        mask.masked_fill_(torch.from_numpy(~allowed), torch.finfo(self.dtype).min)
        return on_device(mask[None, None], self.device)


def cache_argument(model: PreTrainedModel) -> str:
    """Return the name of the cache argument of a model's forward, which changed in transformers 5.2x."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def _attention_windows(config: Any) -> dict[str, int | None]:
    """Return the window (None: none) of each kind of attention; a model of several kinds takes a mask for each."""
    window = getattr(config, "sliding_window", None)
    default = "full_attention" if window is None else "sliding_attention"
    kinds = sorted(set(getattr(config, "layer_types", None) or [default]))
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown:
        raise UserError(
            f"{config.model_type}: layers of type {', '.join(unknown)} cannot evaluate trees; use another model"
        )
    return {kind: window if kind == "sliding_attention" else None for kind in kinds}
