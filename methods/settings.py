"""The parameters of a method, and where each value comes from. Imports no torch."""

from __future__ import annotations

from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from harness.errors import UserError
from harness.registry import unknown_name

Options = TypeVar("Options", bound=BaseModel)


class Settings(BaseModel):
    """A method's parameters; the defaults are the global ones."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    steps: int = Field(default=5, ge=1, le=32)
    """Drafting steps a round (D)."""
    width: int = Field(default=10, ge=1, le=64)
    """Frontier size, and first tokens after which a node's look-up stops (W)."""
    budget: int = Field(default=15, ge=1, le=1024)
    """Draft nodes sent to the target a round, root not counted (N)."""
    longest_match: int = Field(default=5, ge=1, le=32)
    """Longest n-gram that the small drafter matches (m)."""
    exhaustion: Literal["release", "continue"] = "continue"
    """Whether nodes with fewer than `width` continuations are drafted from again."""
    estimate: Literal["counts", "prefill"] = "counts"
    """How the small drafter scores: by continuation counts, or by the target's prefill probabilities."""
    small: Literal["ngram", "neural"] = "ngram"
    """Who takes small steps: n-gram look-up, or the pair's small neural model."""
    scheduler: str = "never"
    """Who decides when the middle drafter is called: `never`, `always`, `fixed` by `schedule`, `early`,
    `entropy-confidence`, `candidate-score-gap`, `latency-normalized`, `learned`, `planner`, or a plug-in's."""
    schedule: tuple[Literal[0, 1], ...] | None = None
    """For the fixed scheduler: per drafting step, 1 to call the middle drafter; null is every other step."""
    max_calls: int | None = Field(default=None, ge=0)
    """Most middle calls a round of heuristic and learned schedulers (B0); null is floor(T_tgt / T_mid)."""
    threshold: float | None = Field(default=None, allow_inf_nan=False)
    """A heuristic scheduler's threshold (tau)."""
    call_gain: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Extra tokens that a call brings, as the latency-normalized heuristic is told; a constant of the pair."""
    artifact: str | None = None
    """What the learned scheduler and the planner were fitted to be: a packaged name, or a folder of `treegraft fit`."""
    signals: Literal["full", "no-context", "no-history", "no-tree", "plus"] = "full"
    """Which signals the learned scheduler sees: the paper's (full), those without a group, or look-up's besides."""
    look_back: int = Field(default=5, ge=0, le=32)
    """Layers above the frontier that reselection may pick from (L)."""
    reselect: Literal["unexpanded", "all", "off"] = "unexpanded"
    """Whom reselection may pick: nodes not yet expanded in the round, all nodes, or nobody."""
    non_destructive: bool = True
    """False deletes what the frontier's nodes had beside the middle's W best."""
    raise_scores: bool = False
    """Whether a small step may raise a score that is already there."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Parameters of a family's own: csd's, a peer's or a plug-in's."""

    @field_validator(
        "steps",
        "width",
        "budget",
        "longest_match",
        "max_calls",
        "threshold",
        "call_gain",
        "look_back",
        mode="before",
    )
    @classmethod
    def _numbers_are_no_switches(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("is a switch, not a number; give a number")
        return value

    @field_validator("reselect", mode="before")
    @classmethod
    def _yaml_reads_off_as_false(cls, value: object) -> object:
        return "off" if value is False else value

    @model_validator(mode="before")
    @classmethod
    def _fixed_schedules_are_spelled_out(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("scheduler") != "fixed" or values.get("schedule") is not None:
            return values
        steps = values.get("steps", cls.model_fields["steps"].default)
        return {**values, "schedule": [1 - step % 2 for step in range(steps)]} if isinstance(steps, int) else values

    @model_validator(mode="after")
    def _schedule_has_a_bit_a_step(self) -> Self:
        if self.schedule is not None and len(self.schedule) != self.steps:
            raise ValueError(f"has {len(self.schedule)} entries for {self.steps} steps; give schedule one a step")
        return self

    def options_as(self, kind: type[Options], method: str) -> Options:
        """Return `options` as what a family makes of them.

        Raises:
            UserError: an unknown option, or an unusable value.
        """
        try:
            return kind.model_validate(self.options)
        except ValidationError as error:
            first = error.errors()[0]
            reason = first["msg"].removeprefix("Value error, ")
            if not first["loc"]:
                raise UserError(f"options: {reason}") from error
            key = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                raise unknown_name(f"option of {method}", key, kind.model_fields) from error
            raise UserError(f"options: {key}: {reason} (given: {first['input']!r})") from error

    @property
    def cap(self) -> int:
        """Most nodes held while drafting, root included."""
        return max(self.budget + 1, 1 + self.width + self.steps * self.width**2)
