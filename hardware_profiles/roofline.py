"""A roofline: the least milliseconds of a forward, from a model's architecture and a device's datasheet."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import Field

from foundation.strict_model import StrictModel

Family = Literal["llama", "qwen2", "qwen3"]
"""Dense decoder families with gated feed-forward layers, by their transformers name."""


class Architecture(StrictModel):
    """Sizes of a dense decoder with gated feed-forward layers; norms and biases, under 0.1 % of it, are left out."""

    layers: int = Field(ge=1)
    """Decoder layers."""
    hidden: int = Field(ge=1)
    """Width of the residual stream."""
    heads: int = Field(ge=1)
    """Attention heads."""
    kv_heads: int = Field(ge=1)
    """Key and value heads."""
    head_dim: int = Field(ge=1)
    """Width of a head."""
    intermediate: int = Field(ge=1)
    """Width of the feed-forward layers."""
    vocabulary: int = Field(ge=1)
    """Rows of the embedding, padding included."""
    tied: bool
    """Whether embedding and head are one matrix."""
    head_rows: int | None = Field(default=None, ge=1)
    """Tokens in the head, if fewer than the vocabulary."""
    family: Family | None = None
    """Class that computes it; null if only its size is known."""
    shared: bool = False
    """Whether it shares another model's weights and so takes no memory of its own."""
    source: str
    """Source of the numbers."""

    @property
    def layer_weights(self) -> int:
        """Weights of one layer: queries, keys, values and output, and the three feed-forward matrices."""
        return self.hidden * (2 * self.head_dim * (self.heads + self.kv_heads) + 3 * self.intermediate)

    @property
    def head_weights(self) -> int:
        """Weights of the head."""
        return self.hidden * (self.head_rows or self.vocabulary)

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.layers * self.layer_weights + self.hidden * self.vocabulary * (1 if self.tied else 2)


class Roofline(StrictModel):
    """Latency of a forward as the slower of reading and computing, part by part (Williams et al., 2009).

    Parts: a layer's weights, its attention over the context, and the head. Activations, communication and kernel
    overhead are left out, so this is a lower bound.
    """

    architecture: Architecture
    """The model."""
    bytes_each: int = Field(gt=0)
    """Bytes per weight, key and value."""
    bandwidth_gb_s: float = Field(gt=0)
    """Memory bandwidth of a device, in GB/s."""
    tflops: float = Field(gt=0)
    """Peak TFLOP/s of a device in the weights' type."""
    devices: int = Field(ge=1)
    """Devices that share every layer (tensor parallel)."""
    layer_overhead_ms: float = Field(ge=0)
    """Host time to launch a layer, hidden behind the layer's work where that takes longer."""
    head: bool
    """Whether logits are computed: for each token of a tree's forward, for none of a prefill's."""

    def at(self, tokens: int, context: int) -> float:
        """Return the milliseconds of a forward; each token sees the context and all before it (fewer in a tree)."""
        model = self.architecture
        seen = tokens * context + tokens * (tokens + 1) / 2
        layer = self._ms(model.layer_weights, 2 * tokens * model.layer_weights)
        layer += self._ms(
            2 * model.kv_heads * model.head_dim * (context + tokens), 4 * model.heads * model.head_dim * seen
        )
        head = self._ms(model.head_weights, 2 * tokens * model.head_weights) if self.head else 0.0
        return model.layers * max(layer, self.layer_overhead_ms) + head

    def _ms(self, values: float, flops: float) -> float:
        """Return the milliseconds of reading values or of computing with them, whichever is longer."""
        reading = values * self.bytes_each / (self.bandwidth_gb_s * 1e9)
        return 1e3 * max(reading, flops / (self.tflops * 1e12)) / self.devices


@cache
def known_architectures() -> dict[str, Architecture]:
    """Return the packaged architectures by hub id or, for models that come in a package, by package."""
    text = files("hardware_profiles").joinpath("architectures.yaml").read_text(encoding="utf-8")
    return {name: Architecture.model_validate(facts) for name, facts in yaml.safe_load(text).items()}
