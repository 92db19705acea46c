"""The public code's estimate: the target's own prefill probability of a prompt token."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from methods.core.model import TreeModel
from methods.core.transfer import on_device

_OUTSIDE_BEST = 5.0  # nats below the W-th best, for tokens that are not among the W best
_OUTSIDE_PROMPT = 0.0


class PrefillEstimate:
    """Scores a continuation by its first token's prefill log-probability, or a floor outside the `width` best."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._scores: list[float] = []

    def prefill(self, target: TreeModel, tokens: Sequence[int], prompt: Sequence[int]) -> None:
        """Prefill `target` with `tokens`, the prompt without its last one; keep this prompt's scores only."""
        self._scores = [_OUTSIDE_PROMPT]  # nothing predicts the first token

        def reduce(logits: torch.Tensor, start: int) -> None:
            following = on_device(torch.tensor(prompt[start + 1 : start + 1 + len(logits)]), logits.device)
            scores = logits.float().log_softmax(dim=-1)
            best = scores.topk(min(self._width, scores.shape[-1]), dim=-1).values[:, -1]
            own = scores.gather(1, following[:, None])[:, 0]
            self._scores += torch.where(own >= best, own, best - _OUTSIDE_BEST).tolist()

        target.prefill_scored(tokens, reduce)

    def __call__(self, position: int, match: int, count: int, total: int) -> float:
        """Return the log-probability; 0 outside the prompt."""
        return self._scores[position] if position < len(self._scores) else _OUTSIDE_PROMPT
