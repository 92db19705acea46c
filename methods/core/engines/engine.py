"""What runs a model's forwards: its own code (`lean`), or Hugging Face's (`hf`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from methods.core.engines import EngineName

Visible = Mapping[int | None, NDArray[np.bool_]]
"""By attention window (None: the whole context), which rows each token attends to, [tokens, rows up to and with them].
"""


class Engine(Protocol):
    """Runs forwards of one model over KV rows that it keeps."""

    name: EngineName
    """Its name in configurations, manifests and tables."""
    details: str
    """How it computes, in words: attention back end, or the kernels that were chosen."""
    read_layers: tuple[int, ...]
    """Layers, from 0, whose hidden states a forward leaves in `hidden`; none unless somebody sets it."""
    hidden: list[torch.Tensor]
    """The last forward's hidden states behind each of `read_layers`, [tokens, hidden size]."""

    def reserve(self, rows: int) -> None:
        """Forget every row and make room for `rows`."""

    def forward(
        self, tokens: Sequence[int], positions: Sequence[int], start: int, visible: Visible | None, *, logits: bool
    ) -> torch.Tensor | None:
        """Run one forward; its keys and values become the rows from `start` on.

        Args:
            tokens: token ids, [tokens].
            positions: position of each, [tokens].
            start: rows in use.
            visible: which rows each token attends to; None is causal.
            logits: whether to compute them.

        Returns:
            Logits in the model's dtype, [tokens, vocabulary], or [tokens, limited vocabulary] with a limited head; None
            if they were not asked for.
        """

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """Move `rows` (absolute, ascending) to `start` and the places behind it."""
