"""A latency curve: milliseconds of a forward by its tokens and its context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, model_validator

from foundation.errors import UserError
from foundation.strict_model import StrictModel

if TYPE_CHECKING:
    from scipy.interpolate import PchipInterpolator

MOST_MS = 86.4e6
"""A day: no forward takes longer."""
_LEAST_MS = 1e-6
_MOST_TOKENS = 2**31


class Curve(StrictModel):
    """Measured points on a grid and the smooth monotone surface through them.

    Along tokens: isotonic regression, since only noise makes a larger forward faster, then a monotone cubic (Fritsch
    and Carlson, 1980). Along context, and beyond the grid: straight lines.
    """

    model_config = ConfigDict(strict=True)

    tokens: list[int] = Field(min_length=1)
    """Forward sizes in tokens, ascending."""
    contexts: list[int] = Field(min_length=1)
    """Context lengths in tokens, ascending."""
    ms: list[list[float]]
    """Medians in milliseconds, [contexts, tokens]."""

    @model_validator(mode="after")
    def _is_a_grid(self) -> Curve:
        for name, axis in (("tokens", self.tokens), ("contexts", self.contexts)):
            if any(low >= high for low, high in pairwise(axis)) or axis[0] < 0 or axis[-1] > _MOST_TOKENS:
                raise ValueError(f"{name} must ascend from 0 or more to at most {_MOST_TOKENS:,}")
        if len(self.ms) != len(self.contexts) or any(len(row) != len(self.tokens) for row in self.ms):
            raise ValueError("ms must hold a row a context and a number a size in it")
        if not all(_LEAST_MS <= value <= MOST_MS for row in self.ms for value in row):
            raise ValueError("ms must be positive numbers, of a nanosecond to a day")
        return self

    @cached_property
    def _surface(self) -> NDArray[np.float64]:
        from scipy.optimize import isotonic_regression  # a listing needs no scipy

        return np.array([isotonic_regression(row).x for row in self.ms])

    @cached_property
    def _lines(self) -> list[PchipInterpolator]:
        from scipy.interpolate import PchipInterpolator  # a listing needs no scipy

        return [PchipInterpolator(self.tokens, row) for row in self._surface]

    @cached_property
    def _by_context(self) -> dict[int, list[float]]:
        return {}  # a cache by size: a run has few sizes and many forwards

    def at(self, tokens: int, context: int) -> float:
        """Return the milliseconds of `tokens` tokens behind `context` others; raises UserError if not positive."""
        if tokens not in self._by_context:
            self._by_context[tokens] = [self._row(index, tokens) for index in range(len(self.contexts))]
        ms = _on_lines(self.contexts, self._by_context[tokens], context)
        if ms <= 0:
            raise UserError(
                f"latency curve: falls to {ms:.3g} ms at {tokens} tokens behind {context} others, beyond its grid; "
                "give it a point there"
            )
        return ms

    def _row(self, index: int, tokens: int) -> float:
        row = self._surface[index]
        if len(row) == 1:
            return float(row[0])
        if self.tokens[0] <= tokens <= self.tokens[-1]:
            return float(self._lines[index](tokens))
        return _on_lines(self.tokens, row, tokens)


def _on_lines(places: Sequence[int], values: Sequence[float] | NDArray[np.float64], place: int) -> float:
    """Interpolate linearly between points; extrapolate the outer two."""
    if len(places) == 1:
        return float(values[0])
    right = min(max(bisect_left(places, place), 1), len(places) - 1)
    low, high = places[right - 1], places[right]
    share = (place - low) / (high - low)
    return float(values[right - 1] * (1 - share) + values[right] * share)
