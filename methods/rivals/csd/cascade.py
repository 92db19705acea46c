"""The cascades of Cascade Speculative Drafting (Chen et al., 2023): which drafter writes and which reviews."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field, field_validator

from foundation.strict_model import FromList, StrictModel

PROPOSED = 10
"""Tokens that Max-Gram proposes at a time, as published."""

DRAFTERS = 2
"""Drafters of a pair: its middle and Max-Gram."""

LimitMatrix = Sequence[Sequence[int]]
"""The matrix K: its first row bounds the loops over all drafters, the rest those of the drafters behind the first."""


class Drafted(NamedTuple):
    """A token of a draft."""

    token: int
    log_probability: float
    """By the last drafter that kept it; a copied token's is 0."""


Draft = list[Drafted]

Review = Callable[[Draft, int], Draft]
"""From a draft and the count of tokens not to review: the part of the draft that is kept, and one token more."""

Propose = Callable[[Draft, int], Draft]
"""From a draft and a count: the draft with up to that many copied tokens more."""


_Branches = Annotated[tuple[Annotated[int, Field(ge=0, le=64)], ...], FromList]


class CascadeOptions(StrictModel):
    """`options` of a csd method."""

    k: Annotated[tuple[_Branches, ...], FromList] = ((5, 10), (0, 10))
    """Upper-triangular; k[0][0] tokens the middle reviews before Max-Gram goes on alone for k[0][1] more, and k[1][1]
    tokens Max-Gram writes for a review. They bound the loops: a draft may grow longer."""
    leniency: float = Field(default=1.0, ge=1.0, allow_inf_nan=False)
    """A token that is not the middle's choice passes its review if its probability is above 1/leniency; at 1 none does.
    The target is never lenient."""

    @field_validator("k")
    @classmethod
    def _is_upper_triangular(cls, k: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        if len(k) != DRAFTERS or any(len(row) != DRAFTERS for row in k):
            raise ValueError(f"give {DRAFTERS} rows of {DRAFTERS}: the middle's and Max-Gram's")
        if any(any(row[:place]) for place, row in enumerate(k)):
            raise ValueError("what stands below the diagonal must be 0")
        return k


def cascade(reviews: Sequence[Review], propose: Propose, draft: Draft, k: LimitMatrix, limit: int) -> Draft:
    """Return the longer draft of the horizontal cascade, in which bigger drafters write the early tokens.

    Args:
        reviews: of the neural drafters, the biggest first.
        propose: of Max-Gram, the drafter behind them.
        draft: the tokens so far.
        k: bounds, one row and column a drafter.
        limit: most tokens of the draft.
    """
    start = len(draft)
    for place in range(len(reviews) + 1):
        wanted = min(limit, start + sum(k[0][: place + 1]))
        while len(draft) < wanted:
            longer = _iterate(reviews[place:], propose, draft, _behind(k, place), limit)
            if len(longer) == len(draft):
                break
            draft = longer
    return draft


def _iterate(reviews: Sequence[Review], propose: Propose, draft: Draft, k: LimitMatrix, limit: int) -> Draft:
    """Return the draft with what the first drafter keeps of the text of those behind it: the vertical cascade."""
    if not reviews:
        return propose(draft, min(PROPOSED, limit - len(draft)))
    first, *behind = reviews
    return first(cascade(behind, propose, draft, k, limit - 1), len(draft))  # one place is for its own token


def longest_draft(k: LimitMatrix) -> int:
    """Return the most tokens that a cascade adds to a draft."""
    longest = 0
    for place in range(len(k)):
        wanted, behind = sum(k[0][: place + 1]), _behind(k, place)
        if wanted:
            longest = max(longest, wanted - 1 + (longest_draft(behind) + 1 if behind else PROPOSED))
    return longest


def most_proposed(k: LimitMatrix) -> int:
    """Return the most tokens that a cascade writes, kept or not."""
    proposed = 0
    for place in range(len(k)):
        wanted, behind = sum(k[0][: place + 1]), _behind(k, place)
        proposed += wanted * (most_proposed(behind) + 1) if behind else -(-wanted // PROPOSED) * PROPOSED
    return proposed


def _behind(k: LimitMatrix, place: int) -> LimitMatrix:
    """Return the bounds of the drafters behind one."""
    return [row[place + 1 :] for row in k[place + 1 :]]
