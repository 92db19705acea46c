"""An n-gram index over the committed context, growing with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Evidence(NamedTuple):
    """What the context says for one token behind a window."""

    token: int
    """The token."""
    match: int
    """Tokens of the longest n-gram that it followed."""
    times: int
    """Of the occurrences looked at, those that it followed."""
    total: int
    """Occurrences of that n-gram looked at."""
    age: int
    """Tokens since it last followed."""


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

    def evidence(self, window: Sequence[int], limit: int, known: int | None = None) -> list[Evidence]:
        """Return what followed the window's n-grams, longest match first, then by count, then the most recent.

        Args:
            window: the last tokens, `longest` of them where there are as many.
            limit: most occurrences looked at for each n; the search ends once as many tokens were found.
            known: the longest match of the window without its last token, which spares looking for much longer ones.
        """
        tokens, size, window = self.tokens, len(self.tokens), tuple(window)
        found: dict[int, Evidence] = {}
        occurrences = 0
        most = min(self.longest, len(window)) if known is None else min(self.longest, len(window), known + 1)
        for match in range(most, 0, -1):
            ends = self._ends[match - 1].get(window[-match:])
            if ends is None:
                continue
            stop = len(ends) - (ends[-1] == size)  # nothing stands behind the context's own end
            if stop == occurrences < limit:  # those of the longer match again, which tell nothing new
                continue
            positions = ends[max(0, stop - limit) : stop][::-1]
            occurrences = len(positions)
            seen: dict[int, list[int]] = {}  # by token: how often, and its age; the most recent come first
            for position in positions:
                token = tokens[position]
                if token in seen:
                    seen[token][0] += 1
                else:
                    seen[token] = [1, size - position]
            counts = seen.items() if len(seen) == 1 else sorted(seen.items(), key=_times, reverse=True)
            for token, (times, age) in counts:
                if token not in found:
                    found[token] = Evidence(token, match, times, occurrences, age)
            if len(found) >= limit:
                break
        return list(found.values())


def _times(counted: tuple[int, list[int]]) -> int:
    return counted[1][0]
