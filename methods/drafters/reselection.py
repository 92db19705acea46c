"""The candidate set of reselection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from methods.core.tree import DraftTree

Reselect = Literal["unexpanded", "all", "off"]


def reselection_candidates(tree: DraftTree, frontier: Sequence[int], reselect: Reselect, look_back: int) -> list[int]:
    """Return the nodes that a middle step may graft onto, ascending: within `look_back` layers (L) above the frontier.

    An empty frontier stands for the whole tree; `reselect` is as in `methods.settings.Settings`.
    """
    if reselect == "off":
        return list(frontier)
    nodes: Iterable[int] = tree.alive()
    if frontier:
        layers = {tree.depths[node] - back for node in frontier for back in range(look_back + 1)}
        depths = tree.depths
        nodes = [node for node in nodes if depths[node] in layers]
    if reselect == "all":
        return list(nodes)
    expanded = tree.expanded
    return [node for node in nodes if node not in expanded]
