"""Forwards padded to a few sizes: on a GPU each size is captured once as a CUDA graph and then replayed in one call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from methods.core.engines.cuda_graph import captured
from methods.core.engines.engine import Visible

BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""Tokens of a padded forward; larger ones are not padded."""
KEY_STEP = 512
"""Rows attended to are padded to a multiple of it."""


@dataclass(frozen=True, slots=True)
class PaddedInputs:
    """Inputs at fixed places in memory, on the model's device."""

    tokens: torch.Tensor
    """Ids, [bucket]; 0 in padding."""
    positions: torch.Tensor
    """[bucket]; 0 in padding."""
    rows: torch.Tensor
    """KV rows to write, [bucket]; padding writes behind the others."""
    visible: Mapping[int | None, torch.Tensor]
    """By window, [bucket, padded rows]; padding attends to everything, which nobody reads."""

    def fill(self, tokens: Sequence[int], positions: Sequence[int], start: int, visible: Visible) -> None:
        """Copy a forward's inputs into them."""
        count = len(tokens)
        padding = [0] * (len(self.tokens) - count)
        _send([*tokens, *padding], self.tokens)
        _send([*positions, *padding], self.positions)
        _send(range(start, start + len(self.tokens)), self.rows)
        for window, place in self.visible.items():
            whole = torch.ones(place.shape, dtype=torch.bool)
            whole[:count] = False
            whole[:count, : start + count] = torch.from_numpy(visible[window])
            _copy(whole, place)


Compute = Callable[[PaddedInputs], list[torch.Tensor]]
"""Runs a forward on fixed inputs; its outputs have the bucket's tokens in front."""


class PaddedForwards:
    """Runs forwards of any size up to the largest bucket.

    Args:
        compute: runs one.
        windows: of attention.
        device: the model's.
    """

    def __init__(self, compute: Compute, windows: Sequence[int | None], device: torch.device) -> None:
        self._compute = compute
        self._windows = windows
        self._device = device
        self._known: dict[tuple[int, int], tuple[PaddedInputs, Callable[[], list[torch.Tensor]]]] = {}

    def forget(self) -> None:
        """Drop all sizes: the KV buffers have moved, or other outputs are wanted."""
        self._known = {}

    def run(self, tokens: Sequence[int], positions: Sequence[int], start: int, visible: Visible) -> list[torch.Tensor]:
        """Return the outputs of one forward, padding cut off; see `Engine.forward`."""
        count = len(tokens)
        bucket = BUCKETS[bisect_left(BUCKETS, count)]
        keys = -(-(start + bucket) // KEY_STEP) * KEY_STEP
        inputs, replay = self._of_size(bucket, keys)
        inputs.fill(tokens, positions, start, visible)
        return [output[:count].clone() for output in replay()]  # a graph's outputs are the next replay's too

    def _of_size(self, bucket: int, keys: int) -> tuple[PaddedInputs, Callable[[], list[torch.Tensor]]]:
        size = bucket, keys
        if size not in self._known:
            inputs = self._empty(bucket, keys)
            on_gpu = self._device.type == "cuda"
            run = captured(lambda: self._compute(inputs)) if on_gpu else lambda: self._compute(inputs)
            self._known[size] = inputs, run
        return self._known[size]

    def _empty(self, bucket: int, keys: int) -> PaddedInputs:
        def numbers() -> torch.Tensor:
            return torch.zeros(bucket, dtype=torch.int64, device=self._device)

        visible = {window: torch.ones(bucket, keys, dtype=torch.bool, device=self._device) for window in self._windows}
        return PaddedInputs(numbers(), numbers(), torch.arange(bucket, device=self._device), visible)


def _send(values: Sequence[int], place: torch.Tensor) -> None:
    _copy(torch.tensor(values), place)


def _copy(values: torch.Tensor, place: torch.Tensor) -> None:
    """Copy host values into a place, from pinned memory without waiting where that is a GPU's."""
    place.copy_(values.pin_memory() if place.device.type == "cuda" else values, non_blocking=True)
