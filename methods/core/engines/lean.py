"""Our own forward of the dense decoder family: Llama, Mistral, Qwen2 and Qwen3, SmolLM2 among them.

It reads the weights of a Hugging Face model and computes what that computes, in fewer calls: projections stacked,
weights packed once, a group's queries in one attention product, KV buffers that never move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import embedding, scaled_dot_product_attention, silu
from transformers import PreTrainedModel

from methods.core.engines import EngineName
from methods.core.engines.engine import Visible
from methods.core.engines.norm import RmsNorm
from methods.core.engines.padded import BUCKETS, KEY_STEP, PaddedForwards, PaddedInputs
from methods.core.engines.products import Packer, Product
from methods.core.transfer import on_device
from methods.core.windows import kinds_of_layers, layer_windows

Angles = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, each [tokens, 1, head size]
_CHUNK = 512  # tokens a causal forward takes at once; its mask would not fit for a long prompt


@dataclass(frozen=True, slots=True)
class _Layer:
    """A decoder layer as products and norms."""

    attention_norm: RmsNorm
    queries_keys_values: Product
    head_norm: RmsNorm | None
    """Of queries and keys, a head each (Qwen3)."""
    attention_output: Product
    mlp_norm: RmsNorm
    gate_up: Product
    down: Product
    kind: str
    """Of attention: full or sliding."""


class LeanEngine:
    """Runs the forward of a model that `choice.why_not_lean` has no reason against.

    Args:
        model: where the weights are; it keeps working, on the same memory.
        packer: makes the products.
        padded: pad forwards to a few sizes, which CUDA graphs need; None does so on a GPU.
    """

    name: EngineName = "lean"

    def __init__(self, model: PreTrainedModel, packer: Packer, *, padded: bool | None = None) -> None:
        config: Any = model.config
        body: Any = model.base_model
        self.details = f"products: {packer}"
        self.hidden: list[torch.Tensor] = []
        self._read_layers: tuple[int, ...] = ()
        self._heads: int = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads
        self._head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._embeddings: torch.Tensor = body.embed_tokens.weight.detach()
        self._rotary = body.rotary_emb
        self._windows = layer_windows(config)
        self._device = self._embeddings.device
        self._attention_dtype = torch.float32 if packer.choice.widens else self._embeddings.dtype
        kinds = kinds_of_layers(config)
        self._layers = [_layer(layer, kind, packer) for layer, kind in zip(body.layers, kinds, strict=True)]
        self._norm = _norm(body.norm)
        self._head = packer.product(model.get_output_embeddings())
        is_padded = self._device.type == "cuda" if padded is None else padded
        windows = [*dict.fromkeys(self._windows.values())]
        self._padded = PaddedForwards(self._on_fixed_inputs, windows, self._device) if is_padded else None
        self._capacity = 0
        self.reserve(1)

    @property
    def read_layers(self) -> tuple[int, ...]:
        """See `Engine.read_layers`."""
        return self._read_layers

    @read_layers.setter
    def read_layers(self, layers: tuple[int, ...]) -> None:
        self._read_layers = layers
        if self._padded is not None:
            self._padded.forget()

    def reserve(self, rows: int) -> None:
        """See `Engine.reserve`."""
        rows += 0 if self._padded is None else BUCKETS[-1]
        if rows <= self._capacity:
            return
        self._capacity = -(-rows // KEY_STEP) * KEY_STEP
        shape = (len(self._layers), 2, self._kv_heads, self._capacity, self._head_dim)
        self._keys_values = torch.zeros(shape, dtype=self._attention_dtype, device=self._device)
        positions = torch.arange(self._capacity, device=self._device)[None]
        cosines, sines = self._rotary(self._embeddings, positions)
        self._cosines, self._sines = cosines[0, :, None], sines[0, :, None].clone()
        self._sines[..., : self._head_dim // 2] *= -1  # `_rotate` swaps halves without a sign
        if self._padded is not None:
            self._padded.forget()

    def forward(
        self, tokens: Sequence[int], positions: Sequence[int], start: int, visible: Visible | None, *, logits: bool
    ) -> torch.Tensor | None:
        """See `Engine.forward`."""
        if visible is None:
            return self._causal(tokens, positions, start, logits=logits)
        if self._padded is not None and logits and len(tokens) <= BUCKETS[-1]:
            computed, *self.hidden = self._padded.run(tokens, positions, start, visible)
            return computed
        seen = {window: on_device(torch.from_numpy(one), self._device) for window, one in visible.items()}
        return self._eager(tokens, positions, start, seen, logits=logits)

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """See `Engine.keep`."""
        end = start + len(rows)
        if list(rows) != list(range(start, end)):
            index = on_device(torch.tensor(rows), self._device)
            self._keys_values[..., start:end, :] = self._keys_values[..., index, :]

    def _causal(
        self, tokens: Sequence[int], positions: Sequence[int], start: int, *, logits: bool
    ) -> torch.Tensor | None:
        computed: list[torch.Tensor | None] = []
        for first in range(start, start + len(tokens), _CHUNK):
            part = slice(first - start, first - start + _CHUNK)
            seen = self._causally_visible(first, len(tokens[part]))
            computed.append(self._eager(tokens[part], positions[part], first, seen, logits=logits))
        return torch.cat([chunk for chunk in computed if chunk is not None]) if logits else None

    def _causally_visible(self, start: int, count: int) -> dict[int | None, torch.Tensor]:
        queries = torch.arange(start, start + count, device=self._device)[:, None]
        keys = torch.arange(start + count, device=self._device)[None]
        within = keys <= queries
        return {
            window: within if window is None else within & (queries - keys < window)
            for window in self._windows.values()
        }

    def _eager(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        start: int,
        visible: Mapping[int | None, torch.Tensor],
        *,
        logits: bool,
    ) -> torch.Tensor | None:
        ids, places = on_device(torch.tensor([list(tokens), list(positions)]), self._device)
        end = start + len(tokens)
        new = self._keys_values[:, :, :, start:end].unbind()
        hidden = self._decode(ids, places, end, visible, lambda layer, states: new[layer].copy_(states))
        return self._head(hidden) if logits else None

    def _on_fixed_inputs(self, inputs: PaddedInputs) -> list[torch.Tensor]:
        """Run a padded forward; return logits, and hidden states of the layers to read."""
        keys = next(iter(inputs.visible.values())).shape[1]
        hidden = self._decode(
            inputs.tokens,
            inputs.positions,
            keys,
            inputs.visible,
            lambda layer, states: self._keys_values[layer].index_copy_(2, inputs.rows, states),
        )
        return [self._head(hidden), *self.hidden]

    def _decode(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        keys: int,
        visible: Mapping[int | None, torch.Tensor],
        write: Callable[[int, torch.Tensor], object],
    ) -> torch.Tensor:
        """Return the last hidden states, [tokens, hidden size].

        Args:
            tokens: ids, [tokens].
            positions: [tokens].
            keys: rows to attend to.
            visible: which of them each token sees, by window, [tokens, keys].
            write: puts a layer's keys and values, [2, KV heads, tokens, head size], into their rows.
        """
        hidden = embedding(tokens, self._embeddings)
        angles = self._cosines[positions], self._sines[positions]
        masks = {kind: self._mask(visible[window]) for kind, window in self._windows.items()}
        all_keys, all_values = (self._keys_values[:, part, None, :, :keys].unbind() for part in (0, 1))
        self.hidden = []
        for index, layer in enumerate(self._layers):
            queries, new = self._project(layer, hidden, angles)
            write(index, new)
            attended = scaled_dot_product_attention(
                queries, all_keys[index], all_values[index], attn_mask=masks[layer.kind]
            )
            hidden = layer.attention_output(self._joined(attended, hidden)).add_(hidden)
            gate, up = layer.gate_up(layer.mlp_norm(hidden)).chunk(2, -1)
            hidden = layer.down(silu(gate).mul_(up)).add_(hidden)
            if index in self._read_layers:
                self.hidden.append(hidden)
        return self._norm(hidden)

    def _project(self, layer: _Layer, hidden: torch.Tensor, angles: Angles) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries [1, KV heads, group × tokens, size], and keys and values [2, KV heads, tokens, size].

        The queries of a group share its keys, so they lie one behind the other and attend in one product.
        """
        count, heads, kv_heads, size = len(hidden), self._heads, self._kv_heads, self._head_dim
        projected = layer.queries_keys_values(layer.attention_norm(hidden)).view(count, heads + 2 * kv_heads, size)
        rotated = projected[:, : heads + kv_heads]
        if layer.head_norm is not None:
            rotated.copy_(layer.head_norm(rotated))
        _rotate(rotated, *angles)
        queries, rest = torch.split(projected, [heads, 2 * kv_heads], 1)
        grouped = queries.view(count, kv_heads, -1, size).permute(1, 2, 0, 3)
        keys_values = rest.view(count, 2, kv_heads, size).permute(1, 2, 0, 3)
        return grouped.reshape(1, kv_heads, -1, size).to(self._attention_dtype), keys_values

    def _joined(self, attended: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return the heads' outputs side by side, [tokens, heads × head size], in the type of `hidden`."""
        apart = attended.view(self._kv_heads, -1, len(hidden), self._head_dim).permute(2, 0, 1, 3)
        return apart.reshape(len(hidden), -1).to(hidden.dtype)

    def _mask(self, visible: torch.Tensor) -> torch.Tensor:
        """Return the additive mask of a group's queries, [1, 1, group × tokens, keys], from [tokens, keys]."""
        mask = torch.zeros(visible.shape, dtype=self._attention_dtype, device=self._device)
        mask.masked_fill_(~visible, torch.finfo(mask.dtype).min)
        return mask.repeat(self._heads // self._kv_heads, 1)[None, None]


def _layer(layer: Any, kind: str, packer: Packer) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return _Layer(
        attention_norm=_norm(layer.input_layernorm),
        queries_keys_values=packer.product(attention.q_proj, attention.k_proj, attention.v_proj),
        head_norm=_head_norm(attention),
        attention_output=packer.product(attention.o_proj),
        mlp_norm=_norm(layer.post_attention_layernorm),
        gate_up=packer.product(mlp.gate_proj, mlp.up_proj),
        down=packer.product(mlp.down_proj),
        kind=kind,
    )


def _norm(module: Any) -> RmsNorm:
    return RmsNorm(module.weight.detach(), module.variance_epsilon)


def _head_norm(attention: Any) -> RmsNorm | None:
    """Return the norm of queries and keys, None where a model has none."""
    if not hasattr(attention, "q_norm"):
        return None
    config = attention.config
    queries = attention.q_norm.weight.detach().expand(config.num_attention_heads, -1)
    keys = attention.k_norm.weight.detach().expand(config.num_key_value_heads, -1)
    return RmsNorm(torch.cat([queries, keys]), attention.q_norm.variance_epsilon)


def _rotate(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> None:
    """Rotate states [tokens, heads, head size] in place; sines of the first half carry the minus sign."""
    swapped = states.roll(states.shape[-1] // 2, -1)
    states.mul_(cosines).addcmul_(swapped, sines)
