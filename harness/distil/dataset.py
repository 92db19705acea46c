"""Self-written text as training batches: padded sequences with the teacher's hidden states, read on demand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from harness.distil.sequence_templates import Part

_POOL = 1024  # sequences sorted by length together, so that a batch pads little


@dataclass(frozen=True, slots=True)
class Example:
    """A padded batch; padding follows the text, so causal attention never sees it.

    Attributes:
        tokens: int64 [sequences, length].
        weights: of the prediction after each token, 0 for padding and given text, [sequences, length].
        hidden: the target's last hidden states, [sequences, length, hidden size].
    """

    tokens: torch.Tensor
    weights: torch.Tensor
    hidden: torch.Tensor


class Dataset:
    """The sequences of text files: tokens in memory, hidden states on disk.

    Args:
        files: as `TextFolder` wrote them.
        longest: tokens at which sequences are cut.
        elsewhere: weight of predictions of sampled tokens; answer tokens count 1, given ones 0.
    """

    def __init__(self, files: Sequence[Path], *, longest: int = 1024, elsewhere: float = 0.3) -> None:
        self._longest = longest
        self._weights = torch.tensor([{Part.SAMPLED: elsewhere, Part.ANSWER: 1.0}.get(part, 0.0) for part in Part])
        self._tokens: list[torch.Tensor] = []
        self._parts: list[torch.Tensor] = []
        self._hidden: list[tuple[Any, int]] = []  # a file's slice, and the sequence's first row there
        for file in files:
            self._index(file)

    def _index(self, file: Path) -> None:
        shard = safe_open(file, framework="pt")
        lengths = shard.get_tensor("lengths").tolist()
        self._tokens += shard.get_tensor("tokens").split(lengths)
        self._parts += shard.get_tensor("parts").split(lengths)
        hidden = shard.get_slice("hidden")
        start = 0
        for length in lengths:
            self._hidden.append((hidden, start))
            start += length - 1

    def __len__(self) -> int:
        return len(self._tokens)

    def counts(self, vocabulary: int) -> NDArray[np.int64]:
        """Return how often each token occurs, [vocabulary]."""
        return np.bincount(torch.cat(self._tokens).numpy(), minlength=vocabulary)

    def batches(self, budget: int, seed: int) -> list[list[int]]:
        """Return one epoch: every sequence once, in batches of at most `budget` tokens with padding."""
        rng = random.Random(seed)
        order = [*range(len(self))]
        rng.shuffle(order)
        batches: list[list[int]] = []
        for start in range(0, len(order), _POOL):
            batch: list[int] = []
            for index in sorted(order[start : start + _POOL], key=self._length):
                if batch and (len(batch) + 1) * self._length(index) > budget:
                    batches.append(batch)
                    batch = []
                batch.append(index)
            batches.append(batch)
        rng.shuffle(batches)
        return batches

    def padded_batch(self, batch: Sequence[int]) -> Example:
        """Return the padded batch of these sequences."""
        length = max(map(self._length, batch))
        first, _ = self._hidden[batch[0]]
        tokens = torch.zeros(len(batch), length, dtype=torch.int64)
        weights = torch.zeros(len(batch), length)
        hidden = torch.zeros(len(batch), length, first.get_shape()[1], dtype=first[0:1].dtype)
        for row, index in enumerate(batch):
            own = self._length(index)
            source, start = self._hidden[index]
            tokens[row, :own] = self._tokens[index][:own]
            weights[row, :own] = self._weights[self._parts[index][1 : own + 1].long()]
            hidden[row, :own] = source[start : start + own]
        return Example(tokens, weights, hidden)

    def _length(self, index: int) -> int:
        return min(len(self._tokens[index]) - 1, self._longest)
