"""An n-gram index over the committed context, growing with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class NgramIndex:
    """Where each n-gram of the context occurs, for n from 1 to `longest`.

    Args:
        longest: longest n-gram indexed.

    Attributes:
        tokens: the context, one id a position.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.tokens: list[int] = []
        self._ends: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(longest)]

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the context."""
        context = self.tokens
        for token in tokens:
            context.append(token)
            end = len(context)
            for size, ends in enumerate(self._ends[:end], start=1):
                key = tuple(context[end - size :])
                positions = ends.get(key)
                if positions is None:
                    ends[key] = [end]
                else:
                    positions.append(end)

    def continuations(self, ngram: Sequence[int], room: int, limit: int) -> list[int]:
        """Return where the most recent occurrences of `ngram` are continued, most recent first.

        Args:
            ngram: 1 to `longest` tokens.
            room: tokens that must stand behind an occurrence; at least 1, so that the context's own
                end never matches itself.
            limit: most positions returned.

        Returns:
            Positions in `tokens` of the token behind each occurrence.
        """
        ends = self._ends[len(ngram) - 1].get(tuple(ngram))
        if ends is None:
            return []
        latest = len(self.tokens) - room
        stop = len(ends)
        while stop and ends[stop - 1] > latest:
            stop -= 1
        return ends[max(0, stop - limit) : stop][::-1]
