"""The middle drafter of many schedules at once, which share evaluated nodes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from methods.core.tree import DraftTree
from methods.drafters.evaluated_nodes import EvaluatedNodes
from methods.drafters.middle import MiddleDrafter
from methods.drafters.neural import NeuralDrafter


class BranchNodes:
    """One schedule's evaluated nodes, as nodes of the union of all schedules' trees.

    A middle step reads it like `EvaluatedNodes`.

    Args:
        union: the union of the trees.
        evaluated: its evaluated nodes.
    """

    def __init__(self, union: DraftTree, evaluated: EvaluatedNodes) -> None:
        self.unseen = evaluated.unseen
        self.rows: dict[int, int] = {}
        self._union = union
        self._evaluated = evaluated
        self._ids = [0]

    def fork(self) -> BranchNodes:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin.rows, twin._ids = self.rows.copy(), self._ids.copy()
        return twin

    def ids(self, tree: DraftTree, nodes: Iterable[int]) -> list[int]:
        """Return the union's nodes for nodes of a schedule's tree."""
        for node in range(len(self._ids), len(tree)):
            self._ids.append(self._union.add(self._ids[tree.parents[node]], tree.tokens[node]))
        return [self._ids[node] for node in nodes]

    def take(self, nodes: Sequence[int]) -> None:
        """Count nodes, evaluated in the union, as evaluated by this schedule."""
        for node in nodes:
            self.rows[node] = self._evaluated.rows[self._ids[node]]

    def log_probabilities(self, nodes: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return log p(token | path to node); see `EvaluatedNodes`."""
        return self._evaluated.log_probabilities([self._ids[node] for node in nodes], tokens)

    def best(self, nodes: Sequence[int], count: int) -> list[list[tuple[int, float]]]:
        """Return each node's best next tokens; see `EvaluatedNodes`."""
        return self._evaluated.best([self._ids[node] for node in nodes], count)


class SharedMiddle(MiddleDrafter):
    """A middle drafter that forks with its schedule, over one cache.

    Each fork proposes and counts forwards like a drafter of its own, but nodes that others evaluated are not evaluated
    again. `prepare` evaluates for several forks in one forward.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._union = DraftTree(0)
        self.branch = BranchNodes(self._union, self.nodes)
        self._evaluator = NeuralDrafter(*args, width=keywords["width"], vocabulary=keywords["vocabulary"])

    @property
    def known(self) -> BranchNodes:
        """This schedule's evaluated nodes."""
        return self.branch

    def begin_round(self, context: Sequence[int]) -> None:
        """Start a round whose root is the last token of `context`."""
        super().begin_round(context)
        self._union = DraftTree(context[-1])
        self._evaluator.begin_round(context)
        self.branch = BranchNodes(self._union, self._evaluator.nodes)

    def fork(self) -> SharedMiddle:
        """Return the drafter of a schedule that departs from this one here."""
        twin = copy.copy(self)
        twin._scores = self._scores.copy()
        twin.branch = self.branch.fork()
        return twin

    def wanted(self, tree: DraftTree, frontier: Sequence[int]) -> list[int]:
        """Return the union's nodes that a middle step on this tree needs evaluated; the tree is rescored."""
        candidates = self.candidates(tree, frontier)
        self._rescore(tree)
        return self.branch.ids(tree, self.needed(tree, candidates))

    def prepare(self, wanted: Iterable[int]) -> None:
        """Evaluate the missing ones of some nodes of the union, in one forward."""
        missing = sorted({*wanted} - self._evaluator.nodes.rows.keys())
        self._evaluator.evaluate(self._union, missing)

    def evaluate(self, tree: DraftTree, nodes: Sequence[int]) -> int:
        """Evaluate nodes where missing; return the size of the forward that this schedule alone would have run."""
        if not nodes:
            return 0
        self.prepare(self.branch.ids(tree, nodes))
        first = not self.branch.rows
        self.branch.take(nodes)
        return len(nodes) + (self.branch.unseen if first else 0)

    def see(self, context: Sequence[int]) -> None:
        """Drop the round's evaluations; take the committed tokens before the last one into the cache, if they fit."""
        self.model.commit([])
        if len(context) <= self.model.max_positions:
            self.model.prefill(self._known(context[self.model.length : -1]))
