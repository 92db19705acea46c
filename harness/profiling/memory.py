"""How near a forward comes to the time that reading its weights from memory takes, below which none can get."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch

from foundation.gc_control import no_garbage_collection
from methods.core.model import TreeModel

_BUFFER = 2**29  # bytes; much more than caches hold
_LEAST = 2**27  # bytes; fewer would measure the caches
_READS = 6
_CONTEXT = 16  # tokens; their keys and values are nothing beside the weights
_WARM_UP = 2
_FORWARDS = 9
_MOST_S = 2.0  # on a busy machine a forward may take a second


def memory_gb_s() -> float | None:
    """Return how fast torch's threads read memory, best of a few sums; None where too little memory is free."""
    size = min(_BUFFER, psutil.virtual_memory().available // 4)
    if size < _LEAST:
        return None
    buffer = torch.ones(size // 4, dtype=torch.float32)
    return buffer.nbytes / 1e9 / min(_seconds(buffer.sum) for _ in range(_READS))


def one_token_ms(model: TreeModel) -> float:
    """Return the median time of a forward of one token behind a short context."""

    def forward() -> None:
        model.evaluate([0], [0], np.ones((1, 1), dtype=np.bool_))
        model.synchronise()

    model.begin(_CONTEXT + 1)
    model.prefill([0] * _CONTEXT)
    taken = []
    with no_garbage_collection():
        for _ in range(_WARM_UP + _FORWARDS):
            taken.append(_seconds(forward))
            model.commit([])
            if len(taken) > _WARM_UP and sum(taken) > _MOST_S:
                break
    return 1e3 * median(taken[_WARM_UP:])


def bytes_read(model: TreeModel) -> int:
    """Return the bytes of weights that a forward reads: all, but for embeddings that are not the head too."""
    both: tuple[Any, Any] = (model.model.get_input_embeddings(), model.model.get_output_embeddings())
    embeddings, head = (layer.weight for layer in both)
    every = sum(parameter.nbytes for parameter in model.model.parameters())
    return every if embeddings is head else every - int(embeddings.nbytes)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
