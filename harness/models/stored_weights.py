"""A model whose weights stay in the 4 bits of its GGUF file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import PreTrainedModel

from foundation.errors import UserError
from methods.core.engines.stored import GROUP, StoredWeight

_TYPES = (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1)
_TOLERANCE = 2**-6  # of a matrix's largest weight; the model's may be rounded to bf16


def keep_stored(model: PreTrainedModel, file: Path) -> None:
    """Give a model's linear layers the 4-bit weights of its GGUF file, and their parameters the values of these.

    Scales and offsets are rounded to the model's type, which the kernels read.

    Raises:
        UserError: the file has no such weights, or they are not the model's.
    """
    reader = gguf.GGUFReader(file)
    tensors = {tensor.name: tensor for tensor in reader.tensors if tensor.tensor_type in _TYPES}
    layers = dict(_linear_layers(model, reader))
    kept = layers.keys() & tensors.keys()
    if not kept:
        raise UserError(f"{file}: has no weights in Q4_0 or Q4_1; set weights: dequantised in the pair's YAML file")
    for name in kept:
        layer = layers[name]
        stored = _in_rows_of(layer.weight, _read(tensors[name], layer.weight.dtype), model, f"{file}: {name}")
        layer.stored = stored
        layer.weight.data.copy_(stored.values())


def _linear_layers(model: PreTrainedModel, reader: gguf.GGUFReader) -> Iterator[tuple[str, Any]]:
    """Yield the file's name of each linear layer's weights, and the layer."""
    architecture = str(reader.fields["general.architecture"].contents())
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], model.config.num_hidden_layers)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            yield f"{names.get_name(name)}.weight", module


def _read(tensor: gguf.ReaderTensor, dtype: torch.dtype) -> StoredWeight:
    outputs = len(tensor.data)
    has_offset = tensor.tensor_type is gguf.GGMLQuantizationType.Q4_1
    header = 4 if has_offset else 2
    blocks = tensor.data.reshape(outputs, -1, header + GROUP // 2)
    numbers = torch.from_numpy(blocks[..., :header].copy().view(np.float16)).float()
    scales = numbers[..., 0]
    offsets = numbers[..., 1] + 8 * scales if has_offset else torch.zeros_like(scales)
    halves = torch.from_numpy(blocks[..., header:].copy())
    levels = torch.cat([halves & 15, halves >> 4], -1).view(outputs, -1)  # the second half of a block in the high bits
    return StoredWeight(levels[:, 0::2] | levels[:, 1::2] << 4, scales.to(dtype), offsets.to(dtype))


def _in_rows_of(weight: torch.Tensor, stored: StoredWeight, model: PreTrainedModel, where: str) -> StoredWeight:
    """Return stored weights with their rows in the order of a loaded matrix: files order heads for another rotation."""
    rows = torch.arange(len(weight))
    size = getattr(model.config, "head_dim", None) or model.config.hidden_size // model.config.num_attention_heads
    orders = [rows] if len(rows) % size else [rows, rows.view(-1, size // 2, 2).transpose(1, 2).flatten()]
    values, close = stored.values(), _TOLERANCE * weight.abs().max()
    for order in orders:
        if (values[order] - weight).abs().max() <= close:
            return StoredWeight(stored.nibbles[order], stored.scales[order], stored.offsets[order])
    raise UserError(f"{where} differs from the loaded model; set weights: dequantised in the pair's YAML file")
