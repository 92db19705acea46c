"""Max-Gram: a statistical copy drafter (Cascade Speculative Drafting, Chen et al., 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foundation.roles import DrafterRole
from methods.core.generation import Forward

_GROW_BY = 1024  # tokens


class MaxGram:
    """Continues a text by copying what follows the earliest occurrence of its longest recurring suffix.

    For every earlier position it keeps the length of the suffix that ends there and equals the text's own. A new token
    shifts that vector by one place, so search is exact in O(text) whatever repeats; a draft's vectors are dropped with
    it. `bigrams` continue a token that does not recur.
    """

    role: DrafterRole = "small"

    def __init__(self, bigrams: Mapping[int, int] | None = None) -> None:
        self._bigrams = bigrams or {}
        self._tokens: NDArray[np.int64] = np.empty(_GROW_BY, dtype=np.int64)
        self._committed = 0
        self._matches: list[NDArray[np.int32]] = []  # of the committed text, and behind each token of a draft
        self.begin([])

    def begin(self, context: Sequence[int], capacity: int = 0) -> list[Forward]:
        """Forget the last prompt; read the new one."""
        self._committed = 0
        self._matches = [np.empty(0, dtype=np.int32)]
        self.advance(context)
        return []

    def begin_round(self, context: Sequence[int]) -> None:
        """Do nothing: the text follows the context."""

    def advance(self, new: Sequence[int], accepted: Sequence[int] = ()) -> None:
        """Append committed tokens to the text; drop the draft."""
        del self._matches[1:]
        for token in new:
            self._append(token)
            del self._matches[0]
            self._committed += 1

    def propose(self, draft: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens behind the committed text and `draft`.

        If a copy reaches the end of the text, the text with that copy is searched again.
        """
        self._read(draft)
        proposed: list[int] = []
        while len(proposed) < count:
            new = self._continuation(count - len(proposed))
            if not new:
                break
            proposed += new
            if len(proposed) < count:
                for token in new:
                    self._append(token)
        return proposed

    @property
    def _length(self) -> int:
        return self._committed + len(self._matches) - 1

    def _read(self, draft: Sequence[int]) -> None:
        """Append `draft` to the text, keeping what it shares with the draft before."""
        before: list[int] = self._tokens[self._committed : self._length].tolist()
        shared = 0
        while shared < min(len(before), len(draft)) and before[shared] == draft[shared]:
            shared += 1
        del self._matches[shared + 1 :]
        for token in draft[shared:]:
            self._append(token)

    def _append(self, token: int) -> None:
        end = self._length
        if end == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.empty_like(self._tokens)])
        matches = np.ones(end, dtype=np.int32)
        matches[1:] += self._matches[-1]
        matches *= self._tokens[:end] == token
        self._tokens[end] = token
        self._matches.append(matches)

    def _continuation(self, count: int) -> list[int]:
        """Return up to `count` tokens copied from the text, or else a bigram's."""
        end, matches = self._length, self._matches[-1]
        if matches.any():
            source = int(matches.argmax()) + 1  # behind the first of the longest
            copied: list[int] = self._tokens[source : min(end, source + count)].tolist()
            return copied
        following = self._bigrams.get(int(self._tokens[end - 1])) if end else None
        return [] if following is None else [following]
