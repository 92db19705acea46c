"""The small drafter: training-free n-gram look-up in the context."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from methods.core.tree import UNSCORED, DraftTree
from methods.drafters.ngram_index import Evidence, NgramIndex

Exhaustion = Literal["release", "continue"]

Estimate = Callable[[int, int, int, int], float]
"""Log-probability of a continuation from (position of its first token, match length, count, total)."""


def counts_estimate(position: int, match: int, count: int, total: int) -> float:
    """Return log of the continuation's share, discounted the more the shorter its match (ours).

    Chosen among eleven forms on fit questions; it also beat the target's prefill probabilities there.
    """
    return math.log(count / total * min(0.8, 0.12 * match))


class Continuation(NamedTuple):
    """One distinct suffix found for a node."""

    position: int
    """Position in the context of its first token, at its most recent occurrence."""
    tokens: tuple[int, ...]
    """The suffix."""
    match: int
    """Length of the longest n-gram it was found with."""
    estimate: float
    """Estimated log-probability of its first token."""


class NgramDrafter:
    """Grows a tree by look-up; holds the index of one prompt's context.

    Args:
        longest: longest n-gram matched (m).
        width: frontier size, and first tokens after which a node's search stops (W).
        exhaustion: `release`: nodes with fewer than W continuations are not drafted from again, and a
            draft that finds nothing guesses the most frequent token; `continue`: they are, and it does not.
        estimate: scores a continuation.
        raise_scores: whether a node that has a score may get a better one (the public code does, and so can
            raise the middle drafter's).
    """

    def __init__(
        self, longest: int, width: int, exhaustion: Exhaustion, estimate: Estimate, *, raise_scores: bool = False
    ) -> None:
        self._longest = longest
        self._width = width
        self._exhaustion = exhaustion
        self._estimate = estimate
        self._raise_scores = raise_scores
        self._index = NgramIndex(longest)

    def begin(self, context: Sequence[int]) -> None:
        """Forget the last prompt; index the new context."""
        self._index = NgramIndex(self._longest)
        self._index.extend(context)

    def advance(self, tokens: Sequence[int]) -> None:
        """Append committed tokens to the context."""
        self._index.extend(tokens)

    def extend(self, tree: DraftTree, frontier: Sequence[int], step: int, cap: int) -> list[int]:
        """Take one small step: insert continuations under each frontier node.

        Args:
            tree: the draft tree, rooted in the context's last token.
            frontier: nodes to draft from.
            step: drafting step, from 1.
            cap: most nodes that the tree may hold.

        Returns:
            The next frontier.
        """
        room = max(1, self._longest - (step - 1))
        candidates: dict[int, int] = {}  # the next frontier's nodes, with their match length in this step
        for node in frontier:
            children = tree.children[node]
            found, covered = self._search(self._window(tree, node), set(children), room)
            matches: dict[int, int] = {}
            for continuation in found:
                child = tree.insert_path(node, continuation.tokens, cap)
                if child is None:
                    continue
                if self._raise_scores or tree.scores[child] == UNSCORED:
                    tree.scores[child] = max(tree.scores[child], tree.scores[node] + continuation.estimate)
                matches.setdefault(child, continuation.match)
            if covered >= self._width or self._exhaustion == "continue" or node in tree.expanded:
                for child in children.values():
                    candidates[child] = matches.get(child, 0)
        if step == 1 and len(tree) == 1 and self._exhaustion == "release":
            self._guess(tree)
            return []
        nodes = sorted(candidates, key=lambda node: (-candidates[node], -tree.scores[node], node))
        return nodes if step == 1 else nodes[: self._width]

    def root_shares(self, tree: DraftTree) -> list[float]:
        """Return how the root went on where its longest match occurred: shares, best first, times match / longest.

        Nothing was found: none. What a first small step would insert is looked at, no more.
        """
        window = self._window(tree, 0)
        for match in range(min(self._longest, len(window)), 0, -1):
            positions = self._index.continuations(window[-match:], self._longest, self._width)
            if positions:
                counts = Counter(self._index.tokens[position] for position in positions).values()
                return [count / len(positions) * match / self._longest for count in sorted(counts, reverse=True)]
        return []

    def root_evidence(self, tree: DraftTree) -> list[Evidence]:
        """Return what the context says for each token that followed the root's n-grams, longest match first."""
        return self._index.evidence(self._window(tree, 0), self._width)

    def _window(self, tree: DraftTree, node: int) -> list[int]:
        """Return the last `longest` tokens up to and with `node`: the context without its last token, then the path."""
        path: list[int] = []
        while node >= 0 and len(path) < self._longest:
            path.append(tree.tokens[node])
            node = tree.parents[node]
        path.reverse()
        before_root = len(self._index.tokens) - 1
        return self._index.tokens[max(0, before_root - self._longest + len(path)) : before_root] + path

    def _search(self, window: list[int], covered: set[int], room: int) -> tuple[list[Continuation], int]:
        """Return a node's continuations, best first, and how many first tokens are covered with its children."""
        context = self._index.tokens
        found: dict[tuple[int, ...], Continuation] = {}
        seen: set[int] = set()
        for match in range(min(self._longest, len(window)), 0, -1):
            positions = self._index.continuations(window[-match:], room, self._width)
            new = [position for position in positions if position not in seen]
            shares = Counter(context[position] for position in positions) if new else {}
            seen.update(new)
            for position in new:
                tokens = tuple(context[position : position + room])
                if tokens not in found:
                    score = self._estimate(position, match, shares[tokens[0]], len(positions))
                    found[tokens] = Continuation(position, tokens, match, score)
                    covered.add(tokens[0])
            if len(covered) >= self._width:
                break
        return list(found.values()), len(covered)

    def _guess(self, tree: DraftTree) -> None:
        """Add the context's most frequent token, the most recent of the tied (`release` only)."""
        context = self._index.tokens
        frequency = Counter(context)
        latest = {token: position for position, token in enumerate(context)}
        token = max(frequency, key=lambda token: (frequency[token], latest[token]))
        tree.add(0, token, 0.0)
