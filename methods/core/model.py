"""A causal language model that evaluates trees: which tokens it holds, and which rows each node attends to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from methods.core.engines.engine import Engine
from methods.core.engines.hf import HuggingFaceEngine, input_device
from methods.core.limited_head import LimitedHead
from methods.core.timeline import CudaTimeline, HostTimeline, Timeline
from methods.core.windows import layer_windows

_PREFILL_CHUNK = 256  # tokens whose logits are held at once


class TreeModel:
    """Wraps a causal LM: prefill a context, evaluate a tree on top of it, commit one path.

    Rows evaluated since the last commit are *pending*: later evaluations may attend to them, and `commit` keeps some
    and drops the rest.

    Args:
        model: a Hugging Face causal LM in evaluation mode.
        engine: what runs its forwards; None is Hugging Face's own code.

    Attributes:
        model: the wrapped model.
        engine: what runs its forwards.
        length: committed tokens in the cache.
        vocab_size: width of its logits, padding included.
        max_positions: its maximum context length, in tokens.
        limited_head: the model's head if it covers only part of the vocabulary.

    Raises:
        UserError: layers that cannot evaluate trees.
    """

    def __init__(self, model: PreTrainedModel, engine: Engine | None = None) -> None:
        self.model = model
        self.engine = engine or HuggingFaceEngine(model)
        self.length = 0
        self._pending_positions: list[int] = []
        config = model.config.get_text_config()
        self.vocab_size: int = config.vocab_size
        self.max_positions: int = config.max_position_embeddings
        head = model.get_output_embeddings()
        self.limited_head = head if isinstance(head, LimitedHead) else None
        self._windows = set(layer_windows(config).values())

    @property
    def pending(self) -> int:
        """Rows evaluated since the last commit."""
        return len(self._pending_positions)

    @property
    def device(self) -> torch.device:
        """Device of the inputs."""
        return input_device(self.model)

    @property
    def dtype(self) -> torch.dtype:
        """The model's floating-point type."""
        return self.model.dtype

    @property
    def timeline(self) -> Timeline:
        """Timeline of the device."""
        return CudaTimeline(self.device) if self.device.type == "cuda" else HostTimeline()

    def synchronise(self) -> None:
        """Wait until the device has finished all queued work."""
        self.timeline.synchronise()

    def begin(self, capacity: int) -> None:
        """Forget every token and make room for `capacity` KV rows."""
        self.engine.reserve(capacity)
        self.length = 0
        self._pending_positions = []

    @torch.inference_mode()
    def prefill(self, tokens: Sequence[int]) -> None:
        """Commit `tokens` (may be none) behind the committed ones, without computing logits."""
        if tokens:
            self._commit_next(tokens, logits=False)

    @torch.inference_mode()
    def prefill_scored(self, tokens: Sequence[int], reduce: Callable[[torch.Tensor, int], None]) -> None:
        """Commit `tokens` like `prefill`, passing the logits behind each to `reduce`.

        Args:
            tokens: token ids, may be none.
            reduce: called per chunk, as a long prompt's logits would not fit at once, with logits [chunk, vocabulary]
                and the index in `tokens` of the first row's token.
        """
        for start in range(0, len(tokens), _PREFILL_CHUNK):
            logits = self._commit_next(tokens[start : start + _PREFILL_CHUNK], logits=True)
            assert logits is not None  # they were asked for
            reduce(logits if self.limited_head is None else self.limited_head.widened(logits), start)

    @torch.inference_mode()
    def evaluate(self, tokens: Sequence[int], depths: Sequence[int], visible: NDArray[np.bool_]) -> torch.Tensor:
        """Run one forward over tree nodes on top of the committed context; the rows become pending.

        Args:
            tokens: token ids, [nodes].
            depths: distance of each node from the root, [nodes]; a node's position is `length` + depth.
            visible: which pending rows and which of these nodes each node attends to, [nodes, pending + nodes]; all
                attend to the committed context and to themselves.

        Returns:
            Logits in the model's dtype, [nodes, vocabulary], or [nodes, limited vocabulary] with a limited head.
        """
        positions = [self.length + depth for depth in depths]
        seen = {window: self._visible(positions, visible, window) for window in self._windows}
        logits = self.engine.forward(tokens, positions, self.length + self.pending, seen, logits=True)
        assert logits is not None  # they were asked for
        self._pending_positions += positions
        return logits

    @torch.inference_mode()
    def commit(self, rows: Sequence[int]) -> None:
        """Commit these pending rows (ascending, from 0); drop the others."""
        self.engine.keep(self.length, [self.length + row for row in rows])
        self.length += len(rows)
        self._pending_positions = []

    def _commit_next(self, tokens: Sequence[int], *, logits: bool) -> torch.Tensor | None:
        positions = range(self.length, self.length + len(tokens))
        computed = self.engine.forward(tokens, positions, self.length, None, logits=logits)
        self.length += len(tokens)
        return computed

    def _visible(self, positions: Sequence[int], visible: NDArray[np.bool_], window: int | None) -> NDArray[np.bool_]:
        """Return which rows each node attends to within a window, [nodes, committed + pending + nodes]."""
        allowed = np.ones((len(positions), self.length + visible.shape[1]), dtype=np.bool_)
        allowed[:, self.length :] = visible
        if window is not None:
            keys = np.concatenate([np.arange(self.length), self._pending_positions, positions])
            allowed &= np.asarray(positions)[:, None] - keys[None, :] < window
        return allowed
