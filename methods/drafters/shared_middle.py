"""The middle drafter of many schedules at once: what one of them evaluates, all can read."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from methods.core.tree import DraftTree
from methods.drafters.evaluated import EvaluatedNodes
from methods.drafters.middle import MiddleDrafter
from methods.drafters.neural import NeuralDrafter


class _OwnNodes(EvaluatedNodes):
    """What one schedule has evaluated, as places in the union of all schedules' trees.

    Args:
        union: the union of the trees.
        evaluated: what was evaluated of it.
    """

    def __init__(self, union: DraftTree, evaluated: EvaluatedNodes) -> None:
        self.unseen = evaluated.unseen
        self.rows: dict[int, int] = {}
        self._union = union
        self._evaluated = evaluated
        self._ids = [0]

    def fork(self) -> _OwnNodes:
        """Return a copy that goes its own way."""
        twin = copy.copy(self)
        twin.rows, twin._ids = self.rows.copy(), self._ids.copy()
        return twin

    def ids(self, tree: DraftTree, nodes: Iterable[int]) -> list[int]:
        """Return the union's nodes that stand for nodes of a schedule's tree."""
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
    """A middle drafter that forks where schedules part, over one cache.

    Each fork proposes what a drafter of its own would, and counts the forwards which that would run; what others
    evaluated already is not evaluated again. `prepare` evaluates for several forks in one forward.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._union = DraftTree(0)
        self._evaluator = NeuralDrafter(*args, width=keywords["width"], vocabulary=keywords["vocabulary"])

    def begin_round(self, context: Sequence[int]) -> None:
        """Start a round whose root is the last token of `context`."""
        super().begin_round(context)
        self._union = DraftTree(context[-1])
        self._evaluator.begin_round(context)
        self._own = _OwnNodes(self._union, self._evaluator.nodes)
        self._nodes = self._own

    def fork(self) -> SharedMiddle:
        """Return the drafter of a schedule that parts from this one's here."""
        twin = copy.copy(self)
        twin._scores = self._scores.copy()
        twin._own = twin._nodes = self._own.fork()
        return twin

    def wanted(self, tree: DraftTree, frontier: Sequence[int]) -> list[int]:
        """Return the union's nodes that a middle step on this tree needs evaluated; the tree is rescored."""
        candidates = self.candidates(tree, frontier)
        self._rescore(tree)
        return self._own.ids(tree, self.needed(tree, candidates))

    def prepare(self, wanted: Iterable[int]) -> None:
        """Evaluate nodes of the union, those that are not yet, in one forward."""
        missing = sorted({*wanted} - self._evaluator.nodes.rows.keys())
        self._evaluator.evaluate(self._union, missing)

    def evaluate(self, tree: DraftTree, nodes: Sequence[int]) -> int:
        """See that nodes are evaluated; return the size of the forward that this schedule alone would have run."""
        if not nodes:
            return 0
        self.prepare(self._own.ids(tree, nodes))
        first = not self._own.rows
        self._own.take(nodes)
        return len(nodes) + (self._own.unseen if first else 0)

    def see(self, context: Sequence[int]) -> None:
        """Drop what the round evaluated; take the committed tokens before the last one into the cache, if they fit."""
        self.model.commit([])
        if len(context) <= self.model.max_positions:
            self.model.prefill(self._known(context[self.model.length : -1]))
