"""An n-gram index over the committed context, growing with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Evidence(NamedTuple):
    """The context's evidence for one token behind a window."""

    token: int
    match: int
    """Tokens of the longest n-gram that it followed."""
    times: int
    """Occurrences that it followed, of those read."""
    total: int
    """Occurrences of that n-gram read."""
    age: int
    """Tokens since it last followed."""


class NgramIndex:
    """Positions of each n-gram of the context (`tokens`), for n from 1 to `longest`."""

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
        """Return the positions in `tokens` behind the `limit` most recent occurrences of `ngram`, most recent first.

        At least `room` tokens stand behind an occurrence; 1 keeps the context's own end from matching itself.
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

        At most `limit` occurrences are read per n; the search ends once as many tokens are found. `known`, the longest
        match of the window without its last token, bounds the match.
        """
        tokens, size, window = self.tokens, len(self.tokens), tuple(window)
        found: dict[int, Evidence] = {}
        occurrences = 0
        most = min(self.longest, len(window)) if known is None else min(self.longest, len(window), known + 1)
        for match in range(most, 0, -1):
            ends = self._ends[match - 1].get(window[-match:])
            if ends is None:
                continue
            stop = len(ends) - (ends[-1] == size)  # nothing follows the context's own end
            if stop == occurrences < limit:  # the same ones as for the longer match
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
