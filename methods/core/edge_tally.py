"""Tallies the edges of verified trees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, isfinite

from methods.core.reliability import BINS, Bin, EdgeTally, bin_of
from methods.core.tree import DraftTree


def tally_edges(rounds: Iterable[tuple[DraftTree, Sequence[int]]]) -> EdgeTally | None:
    """Return the tally of edges behind accepted nodes, None if none is scored; the target's text took one or none.

    `rounds` are trees as sent to the target with the tokens committed. An edge's believed probability comes from its
    score less its parent's; unscored edges are left out.
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
                    bins = counts.setdefault(_scored_by(tree, child), [[0, 0.0, 0] for _ in range(BINS)])
                    one = bins[bin_of(believed)]
                    one[0] += 1
                    one[1] += believed
                    one[2] += other == token
            node = tree.children[node].get(token)
    if not counts:
        return None
    return {by: [Bin(int(n), round(p, 6), int(k)) for n, p, k in bins] for by, bins in sorted(counts.items())}


def _scored_by(tree: DraftTree, child: int) -> str:
    if tree.origins[child] == "middle":
        return "middle"
    return "both" if child in tree.scored_by_middle else "small"
