"""The edge model: the probability that a draft token is accepted once its parent is, from both drafters' evidence.

Logistic regressions of a handful of inputs put both drafters on one scale at about a microsecond an edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from foundation.strict_model import FiniteModel
from methods.drafters.ngram_index import Evidence

Weights = tuple[Annotated[float, Field(ge=-1e6, le=1e6)], ...]
"""A bias, and one weight per input."""

MOST_LOGIT = 6.0
DEEPEST = 8
NOTHING = -MOST_LOGIT
"""Logit of a token that neither drafter proposed."""


class Recent(NamedTuple):
    """Recent top-1 hit rate of each drafter in this answer, from 0 to 1."""

    small: float = 0.5
    middle: float = 0.5

    def after(self, *, small: bool | None = None, middle: bool | None = None) -> Recent:
        """Return the hit rates after one more first choice of either drafter."""
        return Recent(_moved(self.small, small), _moved(self.middle, middle))


class Visit(NamedTuple):
    """A node on the target's path: the evidence for the tokens behind it, and the one that came."""

    depth: int
    evidence: list[Evidence]
    proposals: list[tuple[int, float]] | None
    """The middle's best tokens and all that look-up found, with the middle's log-probabilities; None: not called."""
    recent: Recent
    token: int
    """The token that came."""


class EdgeModel(FiniteModel):
    """Fitted weights, written by `treegraft fit --method treegraft-calibrated`."""

    copied: tuple[Annotated[Weights, Field(min_length=7, max_length=7)], ...] = Field(min_length=1)
    """For matches of 1, 2, … tokens: weights of `copied_inputs`."""
    fused: Weights = Field(min_length=7, max_length=7)
    """Tokens that both drafters propose: weights of `fused_inputs`."""
    proposed: Weights = Field(min_length=7, max_length=7)
    """Tokens that only the middle drafter proposes: weights of the same inputs."""
    missed: Weights = Field(min_length=6, max_length=6)
    """Probability that the middle drafter finds the next token and look-up does not: weights of `missed_inputs`."""

    def copied_logits(self, evidence: Sequence[Evidence], depth: int, recent: Recent) -> dict[int, float]:
        """Return the logit of each token that look-up found behind a node at `depth`; longest match first."""
        longest = evidence[0].match if evidence else 0
        return {one.token: self.copied_logit(one, longest, depth, recent) for one in evidence}

    def copied_logit(self, evidence: Evidence, longest: int, depth: int, recent: Recent) -> float:
        """Return the logit of a looked-up token; `longest` is the longest match there, `depth` the parent's."""
        weights = self.copied[min(evidence.match, len(self.copied)) - 1]
        return clipped(dot(weights, copied_inputs(evidence, longest, depth, recent)))

    def fused_logit(
        self, log_probability: float, copied: float | None, rival: float, depth: int, recent: Recent
    ) -> float:
        """Return the logit of a token that the middle drafter has scored.

        `copied` is its logit by look-up alone (None: not found), `rival` the highest one of any other token there.
        """
        inputs = fused_inputs(log_probability, copied, rival, depth, recent)
        return clipped(dot(self.proposed if copied is None else self.fused, inputs))

    def missed_logit(self, best: float, depth: int, recent: Recent) -> float:
        """Return the logit that only the middle drafter finds a node's next token; `best` is look-up's top logit."""
        return clipped(dot(self.missed, missed_inputs(best, depth, recent)))


def copied_inputs(evidence: Evidence, longest: int, depth: int, recent: Recent) -> tuple[float, ...]:
    """Return log share, log of occurrences, log of age, excess of the longest match, depth, recent top-1 hit rate."""
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
    """Return the middle's logit, look-up's, look-up's best other one, depth, and both recent top-1 hit rates."""
    middle = clipped(logit_of(log_probability))
    return (middle, 0.0 if copied is None else copied, rival, min(depth, DEEPEST), recent.small, recent.middle)


def missed_inputs(best: float, depth: int, recent: Recent) -> tuple[float, ...]:
    """Return look-up's best logit, whether it found nothing, depth, and both recent top-1 hit rates."""
    return (best, float(best <= NOTHING), min(depth, DEEPEST), recent.small, recent.middle)


def dot(weights: Weights, inputs: Sequence[float]) -> float:
    """Return bias + weights x inputs."""
    total = weights[0]
    for place, value in enumerate(inputs, 1):  # `zip` takes nearly twice as long, and a tree has a hundred edges
        total += weights[place] * value
    return total


def clipped(logit: float) -> float:
    """Return a logit clipped to what can be estimated from data."""
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
