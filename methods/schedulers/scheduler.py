"""What a scheduler is: it decides, step by step, whether to call the middle drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.registry import unknown_name
from methods.core.tree import DraftTree
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
    """For each step taken, 1 where the middle drafter was called."""


class Scheduler(Protocol):
    """Decides whether the next step is a middle step."""

    def should_call(self, state: DraftState) -> bool:
        """Return True to call the middle drafter in step `state.step`."""
        ...


class FixedSchedule:
    """Calls the middle drafter in the steps that the schedule marks.

    Args:
        bits: one a step, 1 to call.
    """

    def __init__(self, bits: Sequence[int]) -> None:
        self._bits = bits

    def should_call(self, state: DraftState) -> bool:
        """Return the step's bit."""
        return bool(self._bits[state.step - 1])


def make_scheduler(settings: Settings) -> Scheduler:
    """Return the scheduler that a method's settings name.

    Raises:
        UserError: an unknown scheduler, or a fixed one without its schedule.
    """
    if settings.scheduler == "fixed":
        assert settings.schedule is not None  # settings spell it out
        return FixedSchedule(settings.schedule)
    constant = {"never": 0, "always": 1}
    if settings.scheduler not in constant:
        raise unknown_name("scheduler", settings.scheduler, [*constant, "fixed"])
    return FixedSchedule([constant[settings.scheduler]] * settings.steps)
