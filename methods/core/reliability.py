"""Reliability of scores: draft edges by believed probability, and how many were accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

BINS = 10


class Bin(NamedTuple):
    """Edges whose believed probability lies in one of `BINS` equal parts of 0 to 1."""

    edges: int = 0
    believed: float = 0.0
    """Sum of their probabilities."""
    accepted: int = 0


def _possible(tally: dict[str, list[Bin]]) -> dict[str, list[Bin]]:
    for bins in tally.values():
        if len(bins) != BINS or not any(one.edges for one in bins):
            raise ValueError(f"needs {BINS} bins, and an edge in one of them at least")
        if not all(0 <= one.accepted <= one.edges and 0.0 <= one.believed <= one.edges + 1e-3 for one in bins):
            raise ValueError("has a bin that accepted or believed more than its edges")
    return tally


EdgeTally = Annotated[dict[str, list[Bin]], AfterValidator(_possible)]
"""`BINS` bins for edges that the middle drafter proposed (`middle`), that the small one proposed and alone scored
(`small`), and that the small one proposed and both scored (`both`)."""


def bin_of(probability: float) -> int:
    """Return the index of a probability's bin."""
    return min(int(probability * BINS), BINS - 1)


def added(tallies: Iterable[Mapping[str, Sequence[Bin]]]) -> dict[str, list[Bin]]:
    """Return the sum of tallies."""
    total: dict[str, list[Bin]] = {}
    for one in tallies:
        for origin, bins in one.items():
            before = total.get(origin, [Bin()] * BINS)
            total[origin] = [
                Bin(one.edges + other.edges, one.believed + other.believed, one.accepted + other.accepted)
                for one, other in zip(before, bins, strict=True)
            ]
    return total


def expected_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: mean distance of believed and accepted shares, weighted by edges."""
    return sum(abs(one.believed - one.accepted) for one in bins) / sum(one.edges for one in bins)
