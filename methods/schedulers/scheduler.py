"""The scheduler interface: decide, step by step, whether to call the middle drafter."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from foundation.errors import UserError
from foundation.registry import Registry, unknown_name
from methods.core.generation import Forward
from methods.core.tree import DraftTree
from methods.drafters.ngram_index import Evidence
from methods.latency import Latency
from methods.settings import Settings


@dataclass(slots=True)
class DraftState:
    """A round while it is drafted."""

    tree: DraftTree
    """The tree so far."""
    frontier: list[int]
    """Nodes that the next step drafts from."""
    step: int = 1
    """The next step, from 1."""
    calls: list[int] = field(default_factory=list)
    """Per step taken, 1 if the middle drafter was called."""
    forwards: list[Forward] = field(default_factory=list)
    """The drafters' forwards and look-ups so far."""
    root_shares: Callable[[], Sequence[float]] = tuple
    """Looks up the root's continuation shares, best first; see `NgramDrafter.root_shares`."""
    root_evidence: Callable[[], Sequence[Evidence]] = tuple
    """Looks up, once a round, the evidence for the root's continuations, longest match first."""

    def fork(self) -> DraftState:
        """Return an independent copy."""
        return replace(
            self,
            tree=self.tree.copy(),
            frontier=list(self.frontier),
            calls=list(self.calls),
            forwards=list(self.forwards),
        )


class Scheduler(ABC):
    """Decides whether the next step is a middle step.

    Attributes:
        prompt_tokens: tokens of the prompt, template included.
        rounds: rounds of this prompt so far.
        calls: middle calls in them.
        accepted: draft tokens accepted in them.
    """

    prompt_tokens = rounds = calls = accepted = 0

    def begin(self, prompt_tokens: int, latency: Latency | None) -> None:
        """Start a prompt, keeping nothing of the last one.

        Args:
            prompt_tokens: its tokens, template included.
            latency: verify latency and draft latency of the run, None if unknown.
        """
        self.prompt_tokens = prompt_tokens
        self.rounds = self.calls = self.accepted = 0

    @abstractmethod
    def should_call(self, state: DraftState) -> bool:
        """Return True to call the middle drafter in step `state.step`."""

    def end_round(self, calls: int, accepted: int) -> None:
        """Count a finished round.

        Args:
            calls: middle calls in it.
            accepted: draft tokens accepted.
        """
        self.rounds += 1
        self.calls += calls
        self.accepted += accepted


class FixedSchedule(Scheduler):
    """Calls the middle drafter in the steps whose bit is 1."""

    def __init__(self, bits: Sequence[int]) -> None:
        self._bits = bits

    def should_call(self, state: DraftState) -> bool:
        """Return the step's bit."""
        return bool(self._bits[state.step - 1])


class BoundedScheduler(Scheduler):
    """Calls if `wants_call` does, at most B0 times a round: `max_calls`, else floor(T_tgt / T_mid).

    Args:
        settings: the method's parameters.
    """

    def __init__(self, settings: Settings) -> None:
        self._name = settings.scheduler
        self._given_most = settings.max_calls

    def begin(self, prompt_tokens: int, latency: Latency | None) -> None:
        """Start a prompt.

        Raises:
            UserError: T_tgt and T_mid are unknown.
        """
        super().begin(prompt_tokens, latency)
        if latency is None:
            raise UserError(f"scheduler {self._name}: T_tgt and T_mid are not known; give latency: [T, M] in ms")
        self.latency = latency
        self.most_calls = most_calls(self._given_most, latency)

    def should_call(self, state: DraftState) -> bool:
        """Return whether a call is wanted and the bound allows one more."""
        return sum(state.calls) < self.most_calls and self.wants_call(state)

    @abstractmethod
    def wants_call(self, state: DraftState) -> bool:
        """Return whether a call is wanted in step `state.step`."""


def most_calls(given: int | None, latency: Latency) -> int:
    """Return B0, the most middle calls a round."""
    return int(latency.target_ms / latency.middle_ms) if given is None else given


SCHEDULERS: Registry[Callable[[Settings], Scheduler]] = Registry("scheduler", "treegraft.schedulers")
"""Makers of schedulers by name; each takes the method's settings."""

register_scheduler = SCHEDULERS.register

UNCHANGING = ("never", "always", "fixed")
"""Those that call in the same steps of every round, whatever the latencies."""

READ_BY = {
    "fixed": ("schedule",),
    "early": ("max_calls",),
    "entropy-confidence": ("max_calls", "threshold"),
    "candidate-score-gap": ("max_calls", "threshold"),
    "latency-normalized": ("max_calls", "threshold", "call_gain"),
    "learned": ("max_calls", "artifact", "signals"),
    "planner": ("max_calls", "artifact"),
}
"""The scheduler parameters that each of ours reads."""

_MODULES = {
    "early": "methods.schedulers.heuristics",
    "entropy-confidence": "methods.schedulers.heuristics",
    "candidate-score-gap": "methods.schedulers.heuristics",
    "latency-normalized": "methods.schedulers.heuristics",
    "learned": "methods.schedulers.learned",
    "planner": "methods.schedulers.learned",
}

OURS = (*UNCHANGING, *_MODULES)
"""All schedulers of this package."""


@register_scheduler("never")
def _never(settings: Settings) -> Scheduler:
    return FixedSchedule([0] * settings.steps)


@register_scheduler("always")
def _always(settings: Settings) -> Scheduler:
    return FixedSchedule([1] * settings.steps)


@register_scheduler("fixed")
def _fixed(settings: Settings) -> Scheduler:
    assert settings.schedule is not None  # settings spell it out
    return FixedSchedule(settings.schedule)


def make_scheduler(settings: Settings) -> Scheduler:
    """Return the scheduler that settings name; raises UserError if it is unknown or lacks a parameter."""
    name = settings.scheduler
    if name in _MODULES:
        importlib.import_module(_MODULES[name])
    if name not in SCHEDULERS.names():
        raise unknown_name("scheduler", name, {*SCHEDULERS.names(), *_MODULES})
    return SCHEDULERS.get(name)(settings)
