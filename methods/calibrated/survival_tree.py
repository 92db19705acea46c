"""A draft tree grown best-first by survival: the probability that the target's text passes through a node."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush, heappushpop, nlargest
from math import exp
from typing import NamedTuple

from methods.calibrated.edge_model import NOTHING, EdgeModel, Recent, log_sigmoid, sigmoid
from methods.core.tree import DraftTree, Origin
from methods.drafters.ngram_index import Evidence, NgramIndex


class LookedUp(NamedTuple):
    """Look-up's result behind a node."""

    evidence: list[Evidence]
    """Longest match first."""
    logits: dict[int, float]
    """Each token's logit by look-up alone."""

    @property
    def longest(self) -> int:
        """Tokens of the longest match; 0 if nothing was found."""
        return self.evidence[0].match if self.evidence else 0

    @property
    def best(self) -> float:
        """The highest logit."""
        return max(self.logits.values(), default=NOTHING)


class SurvivalTree:
    """One round's tree; scores are log survival, so a node's is never above its parent's.

    Args:
        context: committed tokens; the last is the root.
        floor: log survival below which a node is not worth its cost.
        sent: most nodes that will be sent, root not counted; less likely ones are not added.
        most: most nodes, root included.
        deepest: greatest depth of a node.
        width: occurrences read per n-gram.

    Attributes:
        found: look-up's results, by node.
        looked_up: nodes looked up since it was last set to 0.
    """

    def __init__(
        self,
        context: Sequence[int],
        index: NgramIndex,
        model: EdgeModel,
        recent: Recent,
        *,
        floor: float,
        sent: int,
        most: int,
        deepest: int,
        width: int,
    ) -> None:
        self.tree = DraftTree(context[-1])
        self.found: dict[int, LookedUp] = {}
        self.looked_up = 0
        self._index, self._model, self._recent = index, model, recent
        self._floor, self._sent, self._most, self._deepest, self._width = floor, sent, most, deepest, width
        self._best: list[float] = []  # a heap of the scores of the nodes that would be sent
        self._proposed: list[tuple[int, int, float]] = []  # by the middle drafter: parent, token, gain
        self._windows: list[tuple[int, ...]] = [tuple(context[-index.longest :])]
        self._gains: list[float] = [0.0]  # of each node's edge, in log-probability
        self._waiting: list[tuple[float, int]] = [(0.0, 0)]  # nodes not looked up, the likeliest first

    def grow(self) -> None:
        """Look up the likeliest nodes until none left is worth it."""
        while self._waiting and self._has_place(-self._waiting[0][0]):
            self._look_up(heappop(self._waiting)[1])

    def calls_for(self, evaluated: Collection[int], deepest: int) -> list[tuple[float, int]]:
        """Return the expected gain in accepted length of evaluating each other node up to `deepest`, best first."""
        tree, model = self.tree, self._model
        last = min(self._deepest - 1, deepest)
        gains = [
            (exp(tree.scores[node]) * sigmoid(model.missed_logit(found.best, tree.depths[node], self._recent)), node)
            for node, found in self.found.items()
            if node not in evaluated and tree.depths[node] <= last
        ]
        return sorted(gains, key=lambda gain: (-gain[0], gain[1]))

    def fuse(self, node: int, proposals: Sequence[tuple[int, float]], fusion: bool) -> None:
        """Score the edges of an evaluated node by both drafters' evidence; without `fusion`, by the middle alone.

        `proposals` are tokens with the middle's log-probabilities, all that look-up found among them. `settle` follows
        once all evaluated nodes are fused.
        """
        tree, depth = self.tree, self.tree.depths[node]
        copied = self.found[node].logits
        best = max(copied.values(), default=NOTHING)
        second = max((logit for logit in copied.values() if logit < best), default=NOTHING)
        alone = sum(logit == best for logit in copied.values()) == 1
        for token, log_probability in proposals:
            gain = log_probability
            if fusion:
                own = copied.get(token)
                rival = second if own == best and alone else best
                gain = log_sigmoid(self._model.fused_logit(log_probability, own, rival, depth, self._recent))
            child = tree.children[node].get(token)
            if child is not None:
                self._gains[child] = gain
                tree.scored_by_middle.add(child)
            elif depth < self._deepest:
                self._proposed.append((node, token, gain))

    def settle(self) -> None:
        """Recompute all scores, add the middle drafter's proposals, and rebuild the queue of nodes to look up."""
        scores, parents = self.tree.scores, self.tree.parents
        for node in range(1, len(self.tree)):
            scores[node] = scores[parents[node]] + self._gains[node]
        self._best = nlargest(self._sent, scores[1:])
        heapify(self._best)
        # Likeliest first, since places are limited.
        self._proposed.sort(key=lambda one: -scores[one[0]] - one[2])
        for node, token, gain in self._proposed:
            if self._has_place(scores[node] + gain):
                known = token in self.found[node].logits
                self.tree.scored_by_middle.add(self._add(node, token, gain, "small" if known else "middle"))
        self._proposed = []
        self._waiting = [
            (-scores[node], node)
            for node in range(len(self.tree))
            if node not in self.found and scores[node] >= self._floor
        ]
        heapify(self._waiting)

    def by_survival(self) -> list[int]:
        """Return all nodes but the root, the likeliest first, parents before children."""
        scores, depths = self.tree.scores, self.tree.depths
        return sorted(range(1, len(self.tree)), key=lambda node: (-scores[node], depths[node], node))

    def _look_up(self, node: int) -> None:
        self.looked_up += 1
        tree, depth = self.tree, self.tree.depths[node]
        before = self.found[tree.parents[node]].longest if node else None
        evidence = self._index.evidence(self._windows[node], self._width, before)
        logits = self._model.copied_logits(evidence, depth, self._recent)
        self.found[node] = LookedUp(evidence, logits)
        if depth == self._deepest:
            return
        for token, logit in logits.items():
            gain = log_sigmoid(logit)
            if self._has_place(tree.scores[node] + gain) and token not in tree.children[node]:
                self._add(node, token, gain, "small")

    def _has_place(self, score: float) -> bool:
        if score < self._floor:
            return False
        likely = len(self._best) < self._sent or score > self._best[0]
        return likely and len(self.tree) < self._most

    def _add(self, parent: int, token: int, gain: float, origin: Origin) -> int:
        score = self.tree.scores[parent] + gain
        node = self.tree.add(parent, token, score, origin)
        self._gains.append(gain)
        (heappush if len(self._best) < self._sent else heappushpop)(self._best, score)
        self._windows.append((*self._windows[parent], token)[-self._index.longest :])
        heappush(self._waiting, (-score, node))
        return node
