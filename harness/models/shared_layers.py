"""A model made of some layers of another, sharing its weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import PreTrainedModel

from foundation.errors import UserError


def sharing_layers(model: PreTrainedModel, layers: list[int], key: str) -> PreTrainedModel:
    """Return a model of some decoder layers of `model`, with its embeddings, norm and head.

    Args:
        model: a decoder whose body keeps its layers under `layers`, each with `self_attn`.
        layers: their indices, in the new order.
        key: what an error names.
    """
    count = model.config.num_hidden_layers
    if not layers or not all(0 <= layer < count for layer in layers):
        raise UserError(f"{key}: {layers} are not among the target's {count} layers")
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer] for layer in layers]
    whole, body = _shallow(model), _shallow(model.base_model)
    stack: Any = model.base_model.layers
    body._modules["layers"] = torch.nn.ModuleList([_at(stack[layer], index) for index, layer in enumerate(layers)])
    whole._modules[model.base_model_prefix] = body
    whole.config = body.config = config
    shared: PreTrainedModel = whole
    return shared


def _shallow(module: torch.nn.Module) -> Any:
    """Return a module with the same parameters but its own dictionaries of children and hooks."""
    twin = copy.copy(module)
    vars(twin).update({name: value.copy() for name, value in vars(module).items() if isinstance(value, dict)})
    return twin


def _at(layer: torch.nn.Module, index: int) -> torch.nn.Module:
    """Return a view of a decoder layer that keeps its KV rows under another index."""
    moved, attention = _shallow(layer), _shallow(layer.get_submodule("self_attn"))
    attention.layer_idx = index
    moved._modules["self_attn"] = attention
    placed: torch.nn.Module = moved
    return placed
