"""A latency curve: milliseconds of one forward by its tokens and by the tokens to its left."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.errors import UserError

if TYPE_CHECKING:
    from scipy.interpolate import PchipInterpolator


MOST_MS = 86.4e6
"""A day: no forward takes longer."""
_LEAST_MS = 1e-6
_MOST_TOKENS = 2**31


class Curve(BaseModel):
    """Measured points on a grid, and the smooth monotone surface through them.

    Along tokens: isotonic regression, since noise alone makes a larger forward look faster, and a monotone cubic
    through that (Fritsch and Carlson, 1980). Along context: straight lines between neighbours. Beyond the grid
    both go on as straight lines.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    tokens: list[int] = Field(min_length=1)
    """Sizes of the forwards, ascending."""
    contexts: list[int] = Field(min_length=1)
    """Tokens to the left of them, ascending."""
    ms: list[list[float]]
    """Medians in milliseconds, one row a context, one column a size."""

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
        return {}  # of the sizes asked for so far: a run has few sizes and many forwards

    def at(self, tokens: int, context: int) -> float:
        """Return the milliseconds of a forward of `tokens` tokens behind `context` others.

        Raises:
            UserError: the lines beyond the grid have fallen to nothing there.
        """
        if tokens not in self._by_context:
            self._by_context[tokens] = [self._row(index, tokens) for index in range(len(self.contexts))]
        found = _on_lines(self.contexts, self._by_context[tokens], context)
        if found <= 0:
            raise UserError(
                f"latency curve: falls to {found:.3g} ms at {tokens} tokens behind {context} others, beyond its grid; "
                "give it a point there"
            )
        return found

    def _row(self, index: int, tokens: int) -> float:
        row = self._surface[index]
        if len(row) == 1:
            return float(row[0])
        if self.tokens[0] <= tokens <= self.tokens[-1]:
            return float(self._lines[index](tokens))
        return _on_lines(self.tokens, row, tokens)


def _on_lines(places: Sequence[int], values: Sequence[float] | NDArray[np.float64], place: int) -> float:
    """Return the value at a place on the straight lines through some points, the outer ones going on."""
    if len(places) == 1:
        return float(values[0])
    right = min(max(bisect_left(places, place), 1), len(places) - 1)
    low, high = places[right - 1], places[right]
    share = (place - low) / (high - low)
    return float(values[right - 1] * (1 - share) + values[right] * share)
