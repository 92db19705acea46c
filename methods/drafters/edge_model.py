"""The edge model: how likely a draft token is accepted once its parent is, from what either drafter knows of it.

Both drafters' evidence comes to one scale here. Everything is a logistic regression of a handful of inputs, so that an
edge costs about a microsecond. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from methods.drafters.ngram_index import Evidence

Weights = tuple[Annotated[float, Field(ge=-1e6, le=1e6, strict=True)], ...]
"""A bias, and one weight for each input."""

MOST_LOGIT = 6.0
DEEPEST = 8
NOTHING = -MOST_LOGIT
"""Logit that stands for a token nobody proposed."""


class Recent(NamedTuple):
    """How often each drafter's first choice was right lately in this answer, from 0 to 1."""

    small: float = 0.5
    middle: float = 0.5

    def after(self, *, small: bool | None = None, middle: bool | None = None) -> Recent:
        """Return what is known after one more choice of either drafter."""
        return Recent(_moved(self.small, small), _moved(self.middle, middle))


class Visit(NamedTuple):
    """A node that the target's text passed through: what was known of the tokens behind it, and which one came."""

    depth: int
    evidence: list[Evidence]
    proposals: list[tuple[int, float]] | None
    """The middle's best tokens, and all that look-up found, with the middle's log-probabilities; None: not called."""
    recent: Recent
    token: int
    """The token that came."""


class EdgeModel(BaseModel):
    """Fitted weights; `treegraft fit --method treegraft-calibrated` writes them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    copied: tuple[Annotated[Weights, Field(min_length=7, max_length=7)], ...] = Field(min_length=1)
    """For matches of 1, 2, … tokens: weights of `copied_inputs`."""
    fused: Weights = Field(min_length=7, max_length=7)
    """Where both drafters know the token: weights of `fused_inputs`."""
    proposed: Weights = Field(min_length=7, max_length=7)
    """Where the middle drafter alone knows it: weights of the same inputs."""
    missed: Weights = Field(min_length=6, max_length=6)
    """That the middle drafter would find the next token where look-up does not: weights of `missed_inputs`."""

    def copied_logits(self, evidence: Sequence[Evidence], depth: int, recent: Recent) -> dict[int, float]:
        """Return the logit of each token that look-up found behind a node.

        Args:
            evidence: what it found, longest match first.
            depth: of the node.
            recent: the drafters' luck.
        """
        longest = evidence[0].match if evidence else 0
        return {one.token: self.copied_logit(one, longest, depth, recent) for one in evidence}

    def copied_logit(self, evidence: Evidence, longest: int, depth: int, recent: Recent) -> float:
        """Return the logit of a token that look-up found.

        Args:
            evidence: what it found.
            longest: the longest match of any token there.
            depth: of the parent.
            recent: the drafters' luck.
        """
        weights = self.copied[min(evidence.match, len(self.copied)) - 1]
        return clipped(dot(weights, copied_inputs(evidence, longest, depth, recent)))

    def fused_logit(
        self, log_probability: float, copied: float | None, rival: float, depth: int, recent: Recent
    ) -> float:
        """Return the logit of a token that the middle drafter has scored.

        Args:
            log_probability: by the middle drafter.
            copied: its logit by look-up alone, None where look-up does not know it.
            rival: the highest logit by look-up of any other token there.
            depth: of the parent.
            recent: the drafters' luck.
        """
        inputs = fused_inputs(log_probability, copied, rival, depth, recent)
        return clipped(dot(self.proposed if copied is None else self.fused, inputs))

    def missed_logit(self, best: float, depth: int, recent: Recent) -> float:
        """Return the logit that the middle drafter finds the next token of a node and look-up does not.

        Args:
            best: the highest logit by look-up of any token there.
            depth: of the node.
            recent: the drafters' luck.
        """
        return clipped(dot(self.missed, missed_inputs(best, depth, recent)))


def copied_inputs(evidence: Evidence, longest: int, depth: int, recent: Recent) -> tuple[float, ...]:
    """Return log share, log of occurrences, log of age, how much longer another match is, depth, luck of look-up."""
    return (
        math.log(evidence.times / evidence.total),
        math.log(evidence.total),
        math.log(evidence.age),
        longest - evidence.match,
        min(depth, DEEPEST),
        recent.small,
    )


def fused_inputs(
    log_probability: float, copied: float | None, rival: float, depth: int, recent: Recent
) -> tuple[float, ...]:
    """Return the middle's logit, look-up's, that of its best other token, depth, and the luck of both."""
    middle = clipped(logit_of(log_probability))
    return (middle, 0.0 if copied is None else copied, rival, min(depth, DEEPEST), recent.small, recent.middle)


def missed_inputs(best: float, depth: int, recent: Recent) -> tuple[float, ...]:
    """Return look-up's best logit, whether it found nothing at all, depth, and the luck of both."""
    return (best, float(best <= NOTHING), min(depth, DEEPEST), recent.small, recent.middle)


def dot(weights: Weights, inputs: Sequence[float]) -> float:
    """Return bias + weights x inputs."""
    total = weights[0]
    for place, value in enumerate(inputs, 1):  # `zip` takes nearly twice as long, and a tree has a hundred edges
        total += weights[place] * value
    return total


def clipped(logit: float) -> float:
    """Return a logit within what can be told from data."""
    if logit > MOST_LOGIT:
        return MOST_LOGIT
    return -MOST_LOGIT if logit < -MOST_LOGIT else logit


def logit_of(log_probability: float) -> float:
    """Return the logit of a log-probability."""
    return log_probability - math.log(max(-math.expm1(log_probability), 1e-12))


def log_sigmoid(logit: float) -> float:
    """Return the log-probability of a logit."""
    return -math.log1p(math.exp(-logit))


def sigmoid(logit: float) -> float:
    """Return the probability of a logit."""
    return 1.0 / (1.0 + math.exp(-logit))


_MEMORY = 0.1


def _moved(known: float, hit: bool | None) -> float:
    return known if hit is None else known + _MEMORY * (hit - known)
