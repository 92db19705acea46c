"""The draft tree: one round's proposals as parallel arrays, without any model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Origin = Literal["root", "small", "middle"]

UNSCORED = float("-inf")


class DraftTree:
    """A tree of draft tokens, rooted in the last committed token.

    Node ids are creation order: the root is 0, and a parent comes before its children. Siblings differ in token.
    Drafting only adds nodes; `prune` makes a new tree.

    Attributes:
        tokens: token id of each node.
        parents: parent of each node; -1 for the root.
        depths: distance from the root.
        scores: cumulative log-probability along the path; `UNSCORED` until estimated.
        origins: drafter that added the node.
        children: each node's children by token.
        expanded: nodes that the middle drafter has grafted onto.
        scored_by_middle: nodes whose score is from the middle drafter, wholly or in part.
        sources: in a subtree, each node's id in the original tree; otherwise empty.
    """

    __slots__ = (
        "_removed",
        "children",
        "depths",
        "expanded",
        "origins",
        "parents",
        "scored_by_middle",
        "scores",
        "sources",
        "tokens",
    )

    def __init__(self, root_token: int) -> None:
        self.tokens: list[int] = [root_token]
        self.parents: list[int] = [-1]
        self.depths: list[int] = [0]
        self.scores: list[float] = [0.0]
        self.origins: list[Origin] = ["root"]
        self.children: list[dict[int, int]] = [{}]
        self.expanded: set[int] = set()
        self.scored_by_middle: set[int] = set()
        self.sources: list[int] = []
        self._removed: set[int] = set()

    def copy(self) -> DraftTree:
        """Return an independent copy."""
        twin = DraftTree(self.tokens[0])
        twin.tokens, twin.parents, twin.depths = self.tokens[:], self.parents[:], self.depths[:]
        twin.scores, twin.origins = self.scores[:], self.origins[:]
        twin.children = [children.copy() for children in self.children]
        twin.expanded, twin.scored_by_middle = self.expanded.copy(), self.scored_by_middle.copy()
        twin._removed, twin.sources = self._removed.copy(), self.sources[:]
        return twin

    def __len__(self) -> int:
        """Return the number of nodes ever added, root included."""
        return len(self.tokens)

    @property
    def held(self) -> int:
        """Nodes held, root included; fewer than `len` only if some were removed."""
        return len(self.tokens) - len(self._removed)

    def alive(self) -> Iterator[int]:
        """Yield the nodes held, in creation order."""
        every = range(len(self.tokens))
        return (node for node in every if node not in self._removed) if self._removed else iter(every)

    def remove(self, node: int) -> None:
        """Remove a node with its subtree; only the destructive ablation does."""
        self.children[self.parents[node]].pop(self.tokens[node], None)
        doomed = [node]
        while doomed:
            gone = doomed.pop()
            self._removed.add(gone)
            doomed += self.children[gone].values()

    def is_held(self, node: int) -> bool:
        """Return whether a node has not been removed."""
        return node not in self._removed

    def add(self, parent: int, token: int, score: float = UNSCORED, origin: Origin = "small") -> int:
        """Return the child of `parent` with `token`, adding it if missing; an existing child stays as it is."""
        siblings = self.children[parent]
        node = siblings.get(token)
        if node is None:
            node = siblings[token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self.depths[parent] + 1)
            self.scores.append(score)
            self.origins.append(origin)
            self.children.append({})
        return node

    def insert_path(self, start: int, tokens: Sequence[int], cap: int) -> int | None:
        """Add `tokens` as a path under `start`, sharing existing nodes, until the tree holds `cap` nodes.

        Returns:
            The node of the first token, or None if the cap left no room for it.
        """
        first = None
        parent = start
        for token in tokens:
            node = self.children[parent].get(token)
            if node is None:
                if self.held >= cap:
                    return first
                node = self.add(parent, token)
            if first is None:
                first = node
            parent = node
        return first

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root to `node`, both included."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """Return the nodes, root first, on the path of `tokens` from the root."""
        nodes = [0]
        for token in tokens:
            child = self.children[nodes[-1]].get(token)
            if child is None:
                break
            nodes.append(child)
        return nodes

    def visibility(self) -> NDArray[np.bool_]:
        """Return which nodes each node attends to, its ancestors and itself, [nodes, nodes]."""
        size = len(self.tokens)
        visible = np.zeros((size, size), dtype=np.bool_)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                visible[node] = visible[parent]
            visible[node, node] = True
        return visible

    def prune(self, budget: int, max_depth: int | None = None) -> DraftTree:
        """Return the best `budget` nodes (root not counted) with their ancestors, in creation order.

        Nodes are taken by (score descending, depth, id), each with its missing ancestors if the whole chain still fits
        (TreeGraft, Algorithm 3).

        Args:
            budget: most nodes to keep besides the root.
            max_depth: deeper nodes are left out.
        """
        size = len(self.tokens)
        deepest = size if max_depth is None else max_depth
        if size - 1 <= budget and not self._removed and max(self.depths) <= deepest:
            return self
        depths = self.depths
        best_first = [(-self.scores[node], depths[node], node) for node in self.alive() if 0 < depths[node] <= deepest]
        heapify(best_first)  # cheaper than sorting: few of many are taken
        kept = {0}
        while best_first and len(kept) <= budget:
            chain = []
            ancestor = heappop(best_first)[2]
            while ancestor not in kept:
                chain.append(ancestor)
                ancestor = self.parents[ancestor]
            if len(kept) + len(chain) <= budget + 1:
                kept.update(chain)
        return self.subtree(sorted(kept))

    def subtree(self, nodes: list[int]) -> DraftTree:
        """Return a tree of some nodes in creation order, with the root and all their ancestors among them."""
        pruned = DraftTree(self.tokens[0])
        renumbered = {0: 0}
        for node in nodes[1:]:
            parent = renumbered[self.parents[node]]
            renumbered[node] = pruned.add(parent, self.tokens[node], self.scores[node], self.origins[node])
        pruned.scored_by_middle = {renumbered[node] for node in self.scored_by_middle if node in renumbered}
        pruned.sources = nodes
        return pruned

    def by_middle(self, nodes: Iterable[int]) -> int:
        """Return how many of some nodes the middle drafter added."""
        return sum(self.origins[node] == "middle" for node in nodes)

    def source(self, node: int) -> int:
        """Return a node's id in the tree that this one was cut from, or its own if it was not cut."""
        return self.sources[node] if self.sources else node
