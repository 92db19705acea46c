"""The drafter in training: trainable copies of some target layers between the target's embeddings and head."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from harness.models.distilled import TRAINED
from harness.models.shared_layers import sharing_layers


def student_of(target: PreTrainedModel, layers: Sequence[int]) -> PreTrainedModel:
    """Return a model whose only trainable parts are fp32 copies of some target layers and of the last norm.

    Embeddings and head are the target's own; the target is frozen with them.
    """
    student = sharing_layers(target, list(layers), "--layers")
    student.requires_grad_(False)
    body = student.base_model
    for name in TRAINED:
        body._modules[name] = copy.deepcopy(body.get_submodule(name)).float().requires_grad_(True)
    student.train()
    return student


def trained_state(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the trained tensors, by their name in the model's body."""
    body = model.base_model
    return {f"{name}.{key}": value for name in TRAINED for key, value in body.get_submodule(name).state_dict().items()}


def limited_vocabulary(counts: NDArray[np.int64], size: int, always: Iterable[int]) -> torch.Tensor:
    """Return the `size` most frequent tokens and `always`, ascending, int64 [tokens].

    Args:
        counts: occurrences of each token in the text, [vocabulary].
        size: most tokens to keep; 0 keeps the whole vocabulary.
        always: tokens kept in any case.
    """
    if size == 0:
        return torch.arange(len(counts))
    best = np.argsort(-counts, kind="stable")[:size]
    return torch.tensor(sorted({int(token) for token in best if counts[token]} | set(always)))
