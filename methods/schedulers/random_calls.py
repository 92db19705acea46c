"""A scheduler that calls by chance: it starts rounds for traces where no other policy would."""

from __future__ import annotations

import random

from methods.schedulers.scheduler import DraftState, Latency, Scheduler, register_scheduler
from methods.settings import Settings

_SHARE = 0.25


@register_scheduler("random")
class RandomCalls(Scheduler):
    """Calls in a quarter of the steps; prompts of one length see the same draws.

    Args:
        settings: the method's parameters; none matters.
    """

    def __init__(self, settings: Settings) -> None:
        self._random = random.Random(0)

    def begin(self, prompt_tokens: int, latency: Latency | None) -> None:
        """Start a prompt, and the draws."""
        super().begin(prompt_tokens, latency)
        self._random = random.Random(prompt_tokens)

    def should_call(self, state: DraftState) -> bool:
        """Return a draw."""
        return self._random.random() < _SHARE
