"""A language-model head over part of the vocabulary: most tokens never occur, and their columns cost time."""

from __future__ import annotations

import torch


class LimitedHead(torch.nn.Module):
    """Replaces a model's head; called by the model it gives logits over the full vocabulary.

    Args:
        weight: the head's rows of the limited vocabulary, [tokens, hidden size].
        token_ids: those tokens, ascending, int64 [tokens].
        vocab_size: width of the full vocabulary.
        floor: log-probability of a token outside.
    """

    weight: torch.Tensor
    token_ids: torch.Tensor

    def __init__(self, weight: torch.Tensor, token_ids: torch.Tensor, vocab_size: int, floor: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("token_ids", token_ids)
        self.vocab_size = vocab_size
        self.floor = floor

    def limited(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits over the limited vocabulary, [..., tokens], from hidden states [..., hidden size]."""
        return torch.nn.functional.linear(hidden, self.weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits over the full vocabulary, [..., vocab_size], from hidden states [..., hidden size]."""
        return self.widened(self.limited(hidden))

    def widened(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits over the full vocabulary, [..., vocab_size], from those over the limited one, [..., tokens]."""
        outside = logits.float().logsumexp(-1, keepdim=True) + self.floor
        full = outside.to(logits.dtype).expand(*logits.shape[:-1], self.vocab_size).clone()
        full[..., self.token_ids] = logits
        return full
