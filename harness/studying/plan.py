"""A study as a YAML file: conditions, and which of them a scheduler is fitted under. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from hardware_profiles.profile import NAME
from harness.config import read_keys
from harness.errors import UserError
from harness.registry import unknown_name
from methods.schedulers.artifact import DRAFTING_KEYS

SETTINGS_KEYS = (*DRAFTING_KEYS, "max_calls")
"""The settings that a condition may give: those that decide what is drafted, and B0."""

_EXAMPLE = "conditions: {h100: {clock: profile:h100-roofline/qwen3-32b-0.6b}}"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Condition(_Part):
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


class Axis(_Part):
    """What the conditions differ in along a figure."""

    key: str
    """A number of the machine that every condition gives."""
    label: str
    """What the figure calls it, with its unit."""


class Study(_Part):
    """What is compared with what."""

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
    """Read a study's file.

    Raises:
        UserError: the file cannot be read, or a key or value is not known; the line names it.
    """
    values = read_keys(path, _EXAMPLE)
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        errors = error.errors()
        # A mistyped key is also one that is missing, and is to be told as what it is.
        first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            above = where.rpartition(".")[0]
            unknown = unknown_name("key", str(first["loc"][-1]), _known_at(first["loc"]))
            raise UserError(f"{path}: {above}{': ' if above else ''}{unknown}") from error
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{path}: {where}{': ' if where else ''}{message}") from error


def _known_at(place: tuple[int | str, ...]) -> Iterable[str]:
    parts: dict[int, type[BaseModel]] = {1: Study, 2: Axis}
    return parts.get(len(place), Condition).model_fields
