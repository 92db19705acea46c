"""Tallies the edges of verified trees. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, isfinite

from methods.core.reliability import BINS, Bin, EdgeTally, bin_of
from methods.core.tree import DraftTree


def tally_edges(rounds: Iterable[tuple[DraftTree, Sequence[int]]]) -> EdgeTally | None:
    """Return what became of the edges behind accepted nodes: the target's text took one of them, or none.

    An edge's believed probability is that of its score less its parent's; edges that nobody scored are left out.

    Args:
        rounds: trees as the target saw them, each with the tokens that its round committed.

    Returns:
        None where no edge was scored, as where nothing is drafted.
    """
    counts: dict[str, list[list[float]]] = {}
    for tree, committed in rounds:
        node: int | None = 0
        for token in committed:
            if node is None:
                break
            for other, child in tree.children[node].items():
                gain = tree.scores[child] - tree.scores[node]
                if isfinite(gain):
                    believed = exp(min(0.0, gain))
                    bins = counts.setdefault(_told_by(tree, child), [[0, 0.0, 0] for _ in range(BINS)])
                    one = bins[bin_of(believed)]
                    one[0] += 1
                    one[1] += believed
                    one[2] += other == token
            node = tree.children[node].get(token)
    if not counts:
        return None
    return {told: [Bin(int(n), round(p, 6), int(k)) for n, p, k in bins] for told, bins in sorted(counts.items())}


def _told_by(tree: DraftTree, child: int) -> str:
    if tree.origins[child] == "middle":
        return "middle"
    return "both" if child in tree.judged else "small"
