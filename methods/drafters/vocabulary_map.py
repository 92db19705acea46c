"""Maps the columns of a neural drafter's logits to tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from methods.core.model import TreeModel

UNKNOWN_TOKEN_SCORE = -20.0
"""Log-probability of a token outside a drafter's whole vocabulary; any finite floor keeps the order of the rest."""


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """The common vocabulary of a drafter and its target, or the part of it in a limited head.

    Attributes:
        count: columns used; later ones are not common.
        floor: log-probability of a token without a column.
        ids: each column's token, ascending; None if they are equal.
    """

    count: int
    floor: float = UNKNOWN_TOKEN_SCORE
    ids: tuple[int, ...] | None = None
    places: Mapping[int, int] | None = None

    @classmethod
    def of(cls, model: TreeModel, vocabulary: int) -> TokenColumns:
        """Return the columns of a drafter's logits that stand for tokens below `vocabulary`."""
        head = model.limited_head
        if head is None:
            return cls(vocabulary)
        ids = tuple(token for token in head.token_ids.tolist() if token < vocabulary)
        return cls(len(ids), head.floor, ids, {token: column for column, token in enumerate(ids)})

    def column(self, token: int) -> int | None:
        """Return a token's column, None if it has none."""
        if self.places is not None:
            return self.places.get(token)
        return token if token < self.count else None

    def tokens(self, columns: torch.Tensor) -> list[int]:
        """Return the tokens of some columns, [columns]."""
        found: list[int] = columns.tolist()
        return found if self.ids is None else [self.ids[column] for column in found]
