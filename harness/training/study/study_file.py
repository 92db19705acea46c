"""A study as a YAML file: conditions, and which of them a scheduler is fitted under."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    NonNegativeFloat,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from foundation.errors import UserError
from foundation.plain_yaml import read_keys
from foundation.registry import unknown_name
from foundation.strict_model import FiniteModel, first_fault
from hardware_profiles.profile import NAME
from methods.settings import DRAFTING_KEYS

SETTINGS_KEYS = (*DRAFTING_KEYS, "max_calls")
"""Settings that a condition may give: those that determine what is drafted, and B0."""

_EXAMPLE = "conditions: {h100: {clock: profile:h100-roofline/qwen3-32b-0.6b}}"


class Condition(FiniteModel):
    """A machine, a pair's latencies on it, and how trees are drafted there."""

    clock: str
    """`profile:NAME` or `profile:MACHINE/PAIR`: what forwards and the work around them cost."""
    machine: dict[str, Any] = Field(default_factory=dict)
    """What differs from the clock's packaged machine, by the machine's keys."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Drafting settings over those of the pair and the runs."""

    @field_validator("clock")
    @classmethod
    def _clock_is_a_profile(cls, value: str) -> str:
        if not value.startswith("profile:"):
            raise ValueError("costs come from a profile; give profile:NAME")
        return value


class Axis(FiniteModel):
    """What the conditions differ in along a figure."""

    key: str
    """A number of the machine that every condition gives."""
    label: str
    """What the figure calls it, with its unit."""


class Study(FiniteModel):
    """A study's conditions and policies."""

    about: str
    """What the study asks, in a sentence."""
    conditions: dict[Annotated[str, StringConstraints(pattern=NAME)], Condition] = Field(min_length=1)
    """By name, in the order of the tables."""
    fitted: Literal["own", "first", "each"] = "own"
    """Which learned schedulers run under a condition beside the one fitted there: none, the one of the first condition
    on the same clock, or those of all conditions."""
    schedules: list[Annotated[str, StringConstraints(pattern="^[01]+$")]] = Field(default_factory=list)
    """Fixed schedules that run under each condition, one bit a step, 1 to call the middle drafter."""
    decision_ms: NonNegativeFloat | None = None
    """What a decision of the learned scheduler takes where the clock charges less; null keeps to the clock."""
    limit: int | None = Field(default=None, ge=1)
    """Most questions a task of either run, those with the lowest ids; null takes all."""
    axis: Axis | None = None
    """For figures."""

    @model_validator(mode="after")
    def _conditions_fit_together(self) -> Self:
        for name, condition in self.conditions.items():
            strangers = sorted(condition.settings.keys() - {*SETTINGS_KEYS})
            if strangers:
                unknown = unknown_name("key", strangers[0], SETTINGS_KEYS)
                raise ValueError(f"conditions.{name}.settings: {unknown}")
            if self.axis is not None and not isinstance(condition.machine.get(self.axis.key), int | float):
                raise ValueError(f"conditions.{name}.machine: gives no number {self.axis.key}, which the axis names")
        steps = {condition.settings.get("steps") for condition in self.conditions.values()}
        if self.fitted != "own" and len(steps) > 1:
            raise ValueError("conditions: differ in steps, and no scheduler knows two of them; give fitted: own")
        return self

    def fitted_for(self, name: str) -> list[str]:
        """Return the conditions whose schedulers run under a condition, its own first."""
        clock = self.conditions[name].clock
        sharing = [other for other, condition in self.conditions.items() if condition.clock == clock]
        others = {"own": [], "first": sharing[:1], "each": list(self.conditions)}[self.fitted]
        return [name, *(other for other in others if other != name)]


def load_study(path: Path) -> Study:
    """Read a study's file."""
    try:
        return Study.model_validate(read_keys(path, _EXAMPLE))
    except ValidationError as error:
        fault = first_fault(error)
        if fault.is_unknown_key:
            above = ".".join(map(str, fault.place[:-1]))
            unknown = unknown_name("key", str(fault.place[-1]), _known_at(fault.place))
            raise UserError(f"{path}: {above}{': ' if above else ''}{unknown}") from error
        raise UserError(f"{path}: {fault.line()}") from error


def _known_at(place: tuple[int | str, ...]) -> Iterable[str]:
    parts: dict[int, type[BaseModel]] = {1: Study, 2: Axis}
    return parts.get(len(place), Condition).model_fields
