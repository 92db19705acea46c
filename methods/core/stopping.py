"""Where an answer ends: one rule for every method, external baselines included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from methods.core.generation import Finish
from methods.core.sampling import DecodingParams


class Decoder(Protocol):
    """The part of a tokenizer that stop strings need."""

    def decode(self, token_ids: list[int], /) -> str:
        """Return the text of `token_ids`."""


class Stopper:
    """Cuts new tokens at the first end-of-sequence token, completed stop string or length limit.

    What a token costs does not grow with the answer: stop strings are looked for in a tail as long as the longest.

    Raises:
        ValueError: stop strings without a `decoder`, the tokenizer.
    """

    def __init__(self, params: DecodingParams, decoder: Decoder | None) -> None:
        if params.stop and decoder is None:
            raise ValueError("stop strings need a tokenizer")
        self._params = params
        self._decoder = decoder
        # A stop string spans at most one token a byte; a few more in front keep multi-byte characters whole.
        self._tail = max((len(text.encode()) for text in params.stop), default=0) + 4

    def cut(self, committed: Sequence[int], new: Sequence[int]) -> tuple[list[int], Finish | None]:
        """Return the part of `new` to commit, the ending token included, and why decoding ends, None if it goes on."""
        kept: list[int] = []
        for token in new:
            kept.append(token)
            if token in self._params.eos_ids:
                return kept, "eos"
            if self._completes_stop(committed, kept):
                return kept, "stop"
            if len(committed) + len(kept) >= self._params.max_new_tokens:
                return kept, "length"
        return kept, None

    def _completes_stop(self, committed: Sequence[int], kept: list[int]) -> bool:
        if not self._params.stop or self._decoder is None:
            return False
        tail = [*committed[-self._tail :], *kept[-self._tail :]][-self._tail :]
        text = self._decoder.decode(tail)
        return any(stop in text for stop in self._params.stop)
