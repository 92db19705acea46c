"""The mark `repetition`: an answer that ends in a loop, on which look-up is faster than on text that people ask for."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_CYCLE = 16
TIMES = 4
CRITERION = f"end in a cycle of at most {LONGEST_CYCLE} tokens, repeated {TIMES} times or more"


def ends_in_cycle(token_ids: Sequence[int]) -> bool:
    """Return whether the last tokens are one cycle of at most `LONGEST_CYCLE` tokens, `TIMES` times or more."""
    lengths = range(1, min(LONGEST_CYCLE, len(token_ids) // TIMES) + 1)
    return any(list(token_ids[-TIMES * length :]) == list(token_ids[-length:]) * TIMES for length in lengths)
