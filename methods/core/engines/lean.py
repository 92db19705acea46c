"""Our own forward of the dense decoder family: Llama, Mistral, Qwen2 and Qwen3, SmolLM2 among them.

It reads the weights of a Hugging Face model and computes what that computes, in fewer calls: projections stacked,
weights packed once, a group's queries in one attention product, KV buffers that never move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import embedding, layer_norm, rms_norm, scaled_dot_product_attention, silu
from transformers import PreTrainedModel

from methods.core.engines import EngineName
from methods.core.engines.engine import Visible
from methods.core.engines.products import Packer, Product
from methods.core.transfer import on_device
from methods.core.windows import kinds_of_layers, layer_windows

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_ROTARY = ("default", "linear", "llama3", "yarn")  # the others change with the text's length
_GROW_BY = 512  # KV rows; buffers grow between prompts, never within one
Masks = dict[str, torch.Tensor]  # by kind of attention, additive
Angles = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, each [tokens, 1, head size]
_CHUNK = 512  # tokens a causal forward takes at once; its mask would not fit for a long prompt


def why_not_lean(model: PreTrainedModel) -> str | None:
    """Return why this engine cannot run a model, None where it can."""
    config, kind = model.config, type(model).__name__
    if kind not in FAMILIES or not type(model).__module__.startswith("transformers."):
        return f"{kind} is not one of {', '.join(FAMILIES)}"
    rotary: Any = model.base_model.rotary_emb
    partial = (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0)
    places = {str(parameter.device) for parameter in model.parameters()}
    refusals = {
        f"rotary embedding {rotary.rope_type}": rotary.rope_type not in _ROTARY or partial != 1.0,
        f"activation {config.hidden_act}": config.hidden_act != "silu",
        "quantised weights": getattr(config, "quantization_config", None) is not None,
        "layers on several devices": len(places) > 1 or "meta" in places,
        "eager attention": config._attn_implementation == "eager",
    }
    return next((reason for reason, holds in refusals.items() if holds), None)


class _Norm:
    """RMS norm by weights [size], or of heads by weights [heads, size].

    On a CPU, torch takes ten calls for it, but one for a layer norm; of x beside -x that is the RMS norm of x.
    """

    def __init__(self, weight: torch.Tensor, epsilon: float) -> None:
        self._epsilon = epsilon
        self._size = weight.shape[-1]
        self._of_heads = weight if weight.ndim > 1 else None
        self._weight = None if weight.ndim > 1 else weight
        self._is_fused = weight.device.type != "cpu"
        self._signs = weight.new_tensor([[1.0], [-1.0]])
        self._doubled = None if self._weight is None else torch.stack([weight, torch.zeros_like(weight)])

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Return the norm of states [..., size]."""
        if self._is_fused:
            normed = rms_norm(states, (self._size,), self._weight, self._epsilon)
        else:
            mirrored = states[..., None, :] * self._signs
            normed = layer_norm(mirrored, mirrored.shape[-2:], self._doubled, None, self._epsilon)[..., 0, :]
        return normed if self._of_heads is None else normed * self._of_heads


@dataclass(frozen=True, slots=True)
class _Layer:
    """A decoder layer as products and norms."""

    attention_norm: _Norm
    queries_keys_values: Product
    head_norm: _Norm | None
    """Of queries and keys, a head each (Qwen3)."""
    attention_output: Product
    mlp_norm: _Norm
    gate_up: Product
    down: Product
    kind: str
    """Of attention: full or sliding."""


class LeanEngine:
    """Runs the forward of a model that `why_not_lean` has no reason against.

    Args:
        model: where the weights are; it keeps working, on the same memory.
        packer: makes the products.
    """

    name: EngineName = "lean"

    def __init__(self, model: PreTrainedModel, packer: Packer) -> None:
        config: Any = model.config
        body: Any = model.base_model
        self.details = f"products: {packer.choice}"
        self.read_layers: tuple[int, ...] = ()
        self.hidden: list[torch.Tensor] = []
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
        head = model.get_output_embeddings()
        self._head = packer.product(head)
        self._capacity = 0
        self.reserve(1)

    def reserve(self, rows: int) -> None:
        """See `Engine.reserve`."""
        if rows <= self._capacity:
            return
        self._capacity = -(-rows // _GROW_BY) * _GROW_BY
        shape = (len(self._layers), 2, self._kv_heads, self._capacity, self._head_dim)
        self._keys_values = torch.zeros(shape, dtype=self._attention_dtype, device=self._device)
        positions = torch.arange(self._capacity, device=self._device)[None]
        cosines, sines = self._rotary(self._embeddings, positions)
        self._cosines, self._sines = cosines[0, :, None], sines[0, :, None].clone()
        self._sines[..., : self._head_dim // 2] *= -1  # `_rotate` swaps halves without a sign

    def forward(
        self, tokens: Sequence[int], positions: Sequence[int], start: int, visible: Visible | None, *, logits: bool
    ) -> torch.Tensor | None:
        """See `Engine.forward`."""
        if visible is not None:
            masks = {kind: self._mask(torch.from_numpy(visible[window])) for kind, window in self._windows.items()}
            return self._run(tokens, positions, start, masks, logits=logits)
        computed: list[torch.Tensor | None] = []
        for first in range(0, len(tokens), _CHUNK):
            part = slice(first, first + _CHUNK)
            masks = self._causal_masks(start + first, len(tokens[part]))
            computed.append(self._run(tokens[part], positions[part], start + first, masks, logits=logits))
        return torch.cat([chunk for chunk in computed if chunk is not None]) if logits else None

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """See `Engine.keep`."""
        end = start + len(rows)
        if list(rows) != list(range(start, end)):
            index = on_device(torch.tensor(rows), self._device)
            self._keys_values[..., start:end, :] = self._keys_values[..., index, :]

    def _run(
        self, tokens: Sequence[int], positions: Sequence[int], start: int, masks: Masks, *, logits: bool
    ) -> torch.Tensor | None:
        ids = on_device(torch.tensor([list(tokens), list(positions)]), self._device)
        hidden = self._decode(ids[0], ids[1], slice(start, start + len(tokens)), masks)
        return self._head(hidden) if logits else None

    def _decode(self, tokens: torch.Tensor, positions: torch.Tensor, rows: slice, masks: Masks) -> torch.Tensor:
        """Return the last hidden states, [tokens, hidden size]; write keys and values into `rows`."""
        hidden = embedding(tokens, self._embeddings)
        angles = self._cosines[positions], self._sines[positions]
        new = self._keys_values[:, :, :, rows].unbind()
        keys, values = (self._keys_values[:, part, None, :, : rows.stop].unbind() for part in (0, 1))
        self.hidden = []
        for index, layer in enumerate(self._layers):
            queries = self._project(layer, hidden, angles, new[index])
            attended = scaled_dot_product_attention(queries, keys[index], values[index], attn_mask=masks[layer.kind])
            hidden = layer.attention_output(self._joined(attended, hidden)).add_(hidden)
            gate, up = layer.gate_up(layer.mlp_norm(hidden)).chunk(2, -1)
            hidden = layer.down(silu(gate).mul_(up)).add_(hidden)
            if index in self.read_layers:
                self.hidden.append(hidden)
        return self._norm(hidden)

    def _project(self, layer: _Layer, hidden: torch.Tensor, angles: Angles, new: torch.Tensor) -> torch.Tensor:
        """Write keys and values into `new`; return queries [1, KV heads, group × tokens, head size].

        The queries of a group share its keys, so they lie one behind the other and attend in one product.
        """
        count, heads, kv_heads, size = len(hidden), self._heads, self._kv_heads, self._head_dim
        projected = layer.queries_keys_values(layer.attention_norm(hidden)).view(count, heads + 2 * kv_heads, size)
        rotated = projected[:, : heads + kv_heads]
        if layer.head_norm is not None:
            rotated.copy_(layer.head_norm(rotated))
        _rotate(rotated, *angles)
        queries, rest = torch.split(projected, [heads, 2 * kv_heads], 1)
        new.copy_(rest.view(count, 2, kv_heads, size).permute(1, 2, 0, 3))
        grouped = queries.view(count, kv_heads, -1, size).permute(1, 2, 0, 3)
        return grouped.reshape(1, kv_heads, -1, size).to(self._attention_dtype)

    def _joined(self, attended: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return the heads' outputs side by side, [tokens, heads × head size], in the type of `hidden`."""
        apart = attended.view(self._kv_heads, -1, len(hidden), self._head_dim).permute(2, 0, 1, 3)
        return apart.reshape(len(hidden), -1).to(hidden.dtype)

    def _causal_masks(self, start: int, count: int) -> Masks:
        queries = torch.arange(start, start + count)[:, None]
        keys = torch.arange(start + count)[None]
        masks = {}
        for kind, window in self._windows.items():
            within = keys <= queries
            masks[kind] = self._mask(within if window is None else within & (queries - keys < window))
        return masks

    def _mask(self, visible: torch.Tensor) -> torch.Tensor:
        """Return the additive mask of a group's queries, [1, 1, group × tokens, rows], from [tokens, rows]."""
        mask = torch.zeros(visible.shape, dtype=self._attention_dtype)
        mask.masked_fill_(~visible, torch.finfo(mask.dtype).min)
        group = self._heads // self._kv_heads
        return on_device(mask.repeat(group, 1)[None, None], self._device)


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


def _norm(module: Any) -> _Norm:
    return _Norm(module.weight.detach(), module.variance_epsilon)


def _head_norm(attention: Any) -> _Norm | None:
    """Return the norm of queries and keys, None where a model has none."""
    if not hasattr(attention, "q_norm"):
        return None
    config = attention.config
    queries = attention.q_norm.weight.detach().expand(config.num_attention_heads, -1)
    keys = attention.k_norm.weight.detach().expand(config.num_key_value_heads, -1)
    return _Norm(torch.cat([queries, keys]), attention.q_norm.variance_epsilon)


def _rotate(states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> None:
    """Rotate states [tokens, heads, head size] in place; sines of the first half carry the minus sign."""
    swapped = states.roll(states.shape[-1] // 2, -1)
    states.mul_(cosines).addcmul_(swapped, sines)
