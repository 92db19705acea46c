"""The middle drafter: a neural model that rescores, reselects and grafts (TreeGraft, 2026)."""

from __future__ import annotations

from collections.abc import Sequence

from methods.core.generation import Forward
from methods.core.model import TreeModel
from methods.core.tree import DraftTree
from methods.drafters.neural import NeuralDrafter
from methods.drafters.reselection import Reselect, reselection_candidates


class MiddleDrafter(NeuralDrafter):
    """Improves the shared tree without destroying any of it.

    Only nodes whose distributions the step needs are evaluated: those that have a child, and those that reselection may
    pick. The tree equals that of evaluating all nodes at every call, up to rounding of exactly tied scores.

    Args:
        width: frontier size, and children grafted onto a node (W).
        vocabulary: token ids below it are common to drafter and target.
        look_back: layers above the frontier that reselection may pick from (L).
        reselect: its candidates: nodes not yet expanded in this round (ours), `all` nodes (the public code), or `off`,
            which keeps the frontier.
        non_destructive: False deletes children of frontier nodes other than their W best (an ablation).
    """

    def __init__(
        self,
        model: TreeModel,
        *,
        width: int,
        vocabulary: int,
        look_back: int = 5,
        reselect: Reselect = "unexpanded",
        non_destructive: bool = True,
    ) -> None:
        super().__init__(model, width=width, vocabulary=vocabulary)
        self._look_back = look_back
        self._reselect = reselect
        self._non_destructive = non_destructive
        self._scores: dict[int, float] = {}

    def begin_round(self, context: Sequence[int]) -> None:
        """Start a round whose root is the last token of `context`."""
        super().begin_round(context)
        self._scores = {0: 0.0}

    def extend(self, tree: DraftTree, frontier: Sequence[int], step: int, cap: int) -> tuple[list[int], Forward | None]:
        """Take one middle step: rescore all nodes, reselect, graft; an empty frontier reselects from the whole tree."""
        candidates = self.candidates(tree, frontier)
        self._rescore(tree)
        work = self.forward(tree, self.needed(tree, candidates), step)
        self._rescore(tree)
        if self._reselect != "off":
            frontier = sorted(candidates, key=lambda node: (-self._scores[node], node))[: self._width]
        grafted = self._graft(tree, frontier, cap)
        grafted.sort(key=lambda node: (-tree.scores[node], node))
        return (grafted if step == 1 else grafted[: self._width]), work

    def candidates(self, tree: DraftTree, frontier: Sequence[int]) -> list[int]:
        """Return the nodes that this step may graft onto; the frontier itself if nothing is reselected."""
        return reselection_candidates(tree, frontier, self._reselect, self._look_back)

    def needed(self, tree: DraftTree, candidates: Sequence[int]) -> list[int]:
        """Return the nodes to evaluate, parents first.

        Nodes with a child are needed to rescore it. A candidate whose parent has no distribution cannot be scored
        before the forward, so it is evaluated; of the others, only the W best can be among the W best afterwards.
        """
        known = self.known.rows
        wanted = {node for node in tree.alive() if tree.children[node]}
        if self._reselect == "off":
            wanted.update(candidates)
        else:
            scored = [node for node in candidates if tree.parents[node] in known]
            wanted.update(sorted(scored, key=lambda node: (-self._scores[node], node))[: self._width])
            wanted.update(node for node in candidates if tree.parents[node] not in known)
        return sorted(wanted - known.keys())

    def _rescore(self, tree: DraftTree) -> None:
        """Score, in creation order, every node whose parent has a distribution."""
        new = [node for node in tree.alive() if node not in self._scores and tree.parents[node] in self.known.rows]
        parents = [tree.parents[node] for node in new]
        gained = self.known.log_probabilities(parents, [tree.tokens[node] for node in new])
        for node, parent, log_probability in zip(new, parents, gained, strict=True):
            self._scores[node] = self._scores[parent] + log_probability
        for node, score in self._scores.items():
            tree.scores[node] = score
        tree.scored_by_middle.update(self._scores)

    def _graft(self, tree: DraftTree, frontier: Sequence[int], cap: int) -> list[int]:
        """Add the model's W best next tokens to each frontier node; return those children."""
        grafted: list[int] = []
        doomed: set[int] = set()
        for node, best in zip(frontier, self.known.best(frontier, self._width), strict=True):
            tree.expanded.add(node)
            own: list[int] = []
            for token, log_probability in best:
                child = tree.children[node].get(token)
                if child is None:
                    if tree.held >= cap:
                        continue
                    child = tree.add(node, token, origin="middle")
                    self._scores[child] = tree.scores[child] = self._scores[node] + log_probability
                own.append(child)
            if not self._non_destructive:
                doomed |= set(tree.children[node].values()) - set(own)
            grafted += own
        for node in doomed:  # only now: a frontier node may lie below one
            tree.remove(node)
        return [node for node in grafted if tree.is_held(node)]
