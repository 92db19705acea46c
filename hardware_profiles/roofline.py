"""A roofline: the least milliseconds of a forward, from a model's architecture and a device's datasheet."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

Family = Literal["llama", "qwen2", "qwen3"]
"""Families of dense decoders with gated feed-forward layers, as transformers calls them."""


class Architecture(BaseModel):
    """A dense decoder with gated feed-forward layers, such as Llama and Qwen: what its forwards read and compute.

    Norms and biases are left out: they are less than a thousandth of the weights.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    layers: int = Field(ge=1)
    """Decoder layers."""
    hidden: int = Field(ge=1)
    """Width of the residual stream."""
    heads: int = Field(ge=1)
    """Attention heads."""
    kv_heads: int = Field(ge=1)
    """Heads of keys and values."""
    head_dim: int = Field(ge=1)
    """Width of a head."""
    intermediate: int = Field(ge=1)
    """Width of the feed-forward layers."""
    vocabulary: int = Field(ge=1)
    """Rows of the embedding, padding included."""
    tied: bool
    """Whether embedding and head are one matrix."""
    head_rows: int | None = Field(default=None, ge=1)
    """Tokens that the head knows, where it does not know the whole vocabulary."""
    family: Family | None = None
    """Whose class computes it; null where only its size is known."""
    shared: bool = False
    """Whether its weights are another model's, which it takes no memory beside."""
    source: str
    """Where the numbers are from."""

    @property
    def layer_weights(self) -> int:
        """Weights of one layer: queries, keys, values and output, and the three feed-forward matrices."""
        return self.hidden * (2 * self.head_dim * (self.heads + self.kv_heads) + 3 * self.intermediate)

    @property
    def head_weights(self) -> int:
        """Weights that logits take."""
        return self.hidden * (self.head_rows or self.vocabulary)

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.layers * self.layer_weights + self.hidden * self.vocabulary * (1 if self.tied else 2)


class Roofline(BaseModel):
    """Latency of a forward as the slower of reading and computing, part by part (Williams et al., 2009).

    Parts are a layer's weights, a layer's attention over the context, and the head. Activations, communication between
    devices and everything that a kernel wastes are left out: no forward is faster, real ones are slower.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    architecture: Architecture
    """The model."""
    bytes_each: int = Field(gt=0)
    """Bytes of a weight, a key and a value."""
    bandwidth_gb_s: float = Field(gt=0)
    """Memory bandwidth of a device."""
    tflops: float = Field(gt=0)
    """Peak rate of a device in the weights' type."""
    devices: int = Field(ge=1)
    """Devices that share every layer (tensor parallel)."""
    layer_overhead_ms: float = Field(ge=0)
    """What the host takes to launch a layer, hidden behind the layer's work where that takes longer."""
    head: bool
    """Whether logits are computed: in a tree's forward for each of its tokens, in a prefill for none."""

    def at(self, tokens: int, context: int) -> float:
        """Return the milliseconds of a forward of `tokens` tokens behind `context` others.

        Each token sees the context, the tokens before it and itself; in a tree it sees fewer.
        """
        model = self.architecture
        seen = tokens * context + tokens * (tokens + 1) / 2
        layer = self._ms(model.layer_weights, 2 * tokens * model.layer_weights)
        layer += self._ms(
            2 * model.kv_heads * model.head_dim * (context + tokens), 4 * model.heads * model.head_dim * seen
        )
        head = self._ms(model.head_weights, 2 * tokens * model.head_weights) if self.head else 0.0
        return model.layers * max(layer, self.layer_overhead_ms) + head

    def _ms(self, values: float, flops: float) -> float:
        """Return the milliseconds that reading some values and computing with them take, whichever is longer."""
        reading = values * self.bytes_each / (self.bandwidth_gb_s * 1e9)
        return 1e3 * max(reading, flops / (self.tflops * 1e12)) / self.devices


@cache
def known_architectures() -> dict[str, Architecture]:
    """Return the packaged architectures by hub id, and by package for models that come in one."""
    text = files("hardware_profiles").joinpath("architectures.yaml").read_text(encoding="utf-8")
    return {name: Architecture.model_validate(facts) for name, facts in yaml.safe_load(text).items()}
