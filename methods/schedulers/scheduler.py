"""What a scheduler is: it decides, step by step, whether to call the middle drafter."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from harness.errors import UserError
from harness.registry import Registry, unknown_name
from methods.core.tree import DraftTree
from methods.drafters.ngram_index import Evidence
from methods.settings import Settings


class Latency(NamedTuple):
    """What schedulers are told about time."""

    target_ms: float
    """T_tgt: a verification."""
    middle_ms: float
    """T_mid: a middle step."""


def _nothing_found() -> Sequence[Any]:
    return ()


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
    """For each step taken, 1 where the middle drafter was called."""
    root_shares: Callable[[], Sequence[float]] = _nothing_found
    """Looks up the root's continuation shares, best first; see `NgramDrafter.root_shares`."""
    root_evidence: Callable[[], Sequence[Evidence]] = _nothing_found
    """Looks up, once a round, what the context says for the root's continuations, longest match first."""

    def fork(self) -> DraftState:
        """Return a copy that can be drafted further by itself."""
        return replace(self, tree=self.tree.copy(), frontier=list(self.frontier), calls=list(self.calls))


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
        """Start a prompt; nothing of the last one may count any more.

        Args:
            prompt_tokens: its tokens, template included.
            latency: of this run, where it is known.
        """
        self.prompt_tokens = prompt_tokens
        self.rounds = self.calls = self.accepted = 0

    @abstractmethod
    def should_call(self, state: DraftState) -> bool:
        """Return True to call the middle drafter in step `state.step`."""

    def end_round(self, calls: int, accepted: int) -> None:
        """Learn how a round ended.

        Args:
            calls: middle calls in it.
            accepted: draft tokens accepted.
        """
        self.rounds += 1
        self.calls += calls
        self.accepted += accepted


class FixedSchedule(Scheduler):
    """Calls the middle drafter in the steps that the schedule marks.

    Args:
        bits: one a step, 1 to call.
    """

    def __init__(self, bits: Sequence[int]) -> None:
        self._bits = bits

    def should_call(self, state: DraftState) -> bool:
        """Return the step's bit."""
        return bool(self._bits[state.step - 1])


class BoundedScheduler(Scheduler):
    """Calls where `wants_call` says so, at most B0 times a round: `max_calls`, else floor(T_tgt / T_mid).

    Args:
        settings: the method's parameters.
    """

    def __init__(self, settings: Settings) -> None:
        self._name = settings.scheduler
        self._given_most = settings.max_calls

    def begin(self, prompt_tokens: int, latency: Latency | None) -> None:
        """Start a prompt.

        Raises:
            UserError: nobody told T_tgt and T_mid.
        """
        super().begin(prompt_tokens, latency)
        if latency is None:
            raise UserError(f"scheduler {self._name}: T_tgt and T_mid are not known; give latency: [T, M] in ms")
        self.latency = latency
        self.most_calls = most_calls(self._given_most, latency)

    def should_call(self, state: DraftState) -> bool:
        """Return whether a call is wanted and one is left."""
        return sum(state.calls) < self.most_calls and self.wants_call(state)

    @abstractmethod
    def wants_call(self, state: DraftState) -> bool:
        """Return whether a call is wanted in step `state.step`."""


def most_calls(given: int | None, latency: Latency) -> int:
    """Return B0, the most middle calls of a round."""
    return int(latency.target_ms / latency.middle_ms) if given is None else given


SCHEDULERS: Registry[Callable[[Settings], Scheduler]] = Registry("scheduler", "treegraft.schedulers")
"""Makers of schedulers by name; each is given the method's settings."""

register_scheduler = SCHEDULERS.register

_MODULES = {
    "early": "methods.schedulers.heuristics",
    "entropy-confidence": "methods.schedulers.heuristics",
    "candidate-score-gap": "methods.schedulers.heuristics",
    "latency-normalized": "methods.schedulers.heuristics",
    "learned": "methods.schedulers.learned",
    "planner": "methods.schedulers.learned",
}


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
    """Return the scheduler that a method's settings name.

    Raises:
        UserError: an unknown scheduler, or one that lacks a parameter.
    """
    name = settings.scheduler
    if name in _MODULES:
        importlib.import_module(_MODULES[name])
    if name not in SCHEDULERS.names():
        raise unknown_name("scheduler", name, {*SCHEDULERS.names(), *_MODULES})
    return SCHEDULERS.get(name)(settings)
