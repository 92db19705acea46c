"""The small drafter: training-free n-gram look-up in the context."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from foundation.roles import DrafterRole
from methods.core.generation import Forward
from methods.core.tree import UNSCORED, DraftTree
from methods.drafters.drafter import Estimate, SmallDrafter
from methods.drafters.ngram_index import Evidence, NgramIndex
from methods.settings import Settings

if TYPE_CHECKING:
    from methods.method import Models

Exhaustion = Literal["release", "continue"]


def counts_estimate(position: int, match: int, count: int, total: int) -> float:
    """Return the log share, discounted for short matches (ours; the best of eleven forms on the dev split)."""
    return math.log(count / total * min(0.8, 0.12 * match))


class Continuation(NamedTuple):
    """One distinct continuation found for a node."""

    position: int
    """Position of its first token in the context, at its most recent occurrence."""
    tokens: tuple[int, ...]
    """Its tokens."""
    match: int
    """Length of the longest n-gram in front of it."""
    estimate: float
    """Estimated log-probability of its first token."""


class NgramDrafter(SmallDrafter):
    """Grows a tree by look-up in one prompt's context.

    Args:
        longest: longest n-gram matched (m).
        width: frontier size, and first tokens after which a node's search stops (W).
        exhaustion: `continue` drafts again from nodes with fewer than W continuations; `release` does not, and guesses
            the most frequent token where a draft finds nothing.
        raise_scores: whether a scored node may get a better score (as in the public code, even above the middle's).
    """

    role: DrafterRole = "small"
    scores_by_estimate: ClassVar[bool] = True
    is_traceable: ClassVar[bool] = True

    def __init__(
        self, longest: int, width: int, exhaustion: Exhaustion, estimate: Estimate, *, raise_scores: bool = False
    ) -> None:
        self._longest = longest
        self._width = width
        self._exhaustion = exhaustion
        self._estimate = estimate
        self._raise_scores = raise_scores
        self._index = NgramIndex(longest)

    @classmethod
    def for_settings(cls, models: Models, settings: Settings, estimate: Estimate | None) -> Self:
        """Return the look-up drafter of a method."""
        return cls(
            settings.longest_match,
            settings.width,
            settings.exhaustion,
            estimate or counts_estimate,
            raise_scores=settings.raise_scores,
        )

    def begin(self, context: Sequence[int], capacity: int = 0) -> list[Forward]:
        """Forget the last prompt; index the new context."""
        self._index = NgramIndex(self._longest)
        self._index.extend(context)
        return []

    def begin_round(self, context: Sequence[int]) -> None:
        """Do nothing: the index follows the context."""

    def advance(self, new: Sequence[int], accepted: Sequence[int] = ()) -> None:
        """Append committed tokens to the context."""
        self._index.extend(new)

    def fits(self, tree: DraftTree, frontier: Sequence[int]) -> bool:
        """Return True: look-up has no context limit."""
        return True

    def extend(self, tree: DraftTree, frontier: Sequence[int], step: int, cap: int) -> tuple[list[int], Forward | None]:
        """Insert continuations under each frontier node; see `TreeDrafter.extend`."""
        work = Forward("small", step, len(frontier), len(self._index.tokens)) if frontier else None
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
            return [], work
        nodes = sorted(candidates, key=lambda node: (-candidates[node], -tree.scores[node], node))
        return (nodes if step == 1 else nodes[: self._width]), work

    def root_shares(self, tree: DraftTree) -> list[float]:
        """Return the shares of the root's continuations at its longest match, best first, times match / longest."""
        window = self._window(tree, 0)
        for match in range(min(self._longest, len(window)), 0, -1):
            positions = self._index.continuations(window[-match:], self._longest, self._width)
            if positions:
                counts = Counter(self._index.tokens[position] for position in positions).values()
                return [count / len(positions) * match / self._longest for count in sorted(counts, reverse=True)]
        return []

    def root_evidence(self, tree: DraftTree) -> list[Evidence]:
        """Return the evidence for each token that followed the root's n-grams, longest match first."""
        return self._index.evidence(self._window(tree, 0), self._width)

    def _window(self, tree: DraftTree, node: int) -> list[int]:
        """Return the last `longest` tokens up to `node`: the context without its last token, then the path."""
        path: list[int] = []
        while node >= 0 and len(path) < self._longest:
            path.append(tree.tokens[node])
            node = tree.parents[node]
        path.reverse()
        before_root = len(self._index.tokens) - 1
        return self._index.tokens[max(0, before_root - self._longest + len(path)) : before_root] + path

    def _search(self, window: list[int], covered: set[int], room: int) -> tuple[list[Continuation], int]:
        """Return a node's continuations, best first, and the number of first tokens covered with its children."""
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
        """Add the context's most frequent token, the most recent of tied ones (`release` only)."""
        context = self._index.tokens
        frequency = Counter(context)
        latest = {token: position for position, token in enumerate(context)}
        token = max(frequency, key=lambda token: (frequency[token], latest[token]))
        tree.add(0, token, 0.0)
