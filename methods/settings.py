"""The parameters of a method."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from foundation.errors import UserError
from foundation.registry import unknown_name
from foundation.strict_model import FromList, StrictModel, first_fault

Options = TypeVar("Options", bound=BaseModel)

MOST_STEPS = 32


class _Drafting:
    """Marks a parameter that changes what a given schedule drafts."""


class Settings(StrictModel):
    """A method's parameters; the defaults are the global ones."""

    steps: Annotated[int, _Drafting] = Field(default=5, ge=1, le=MOST_STEPS)
    """Drafting steps a round (D)."""
    width: Annotated[int, _Drafting] = Field(default=10, ge=1, le=64)
    """Frontier size, and first tokens after which a node's look-up stops (W)."""
    budget: Annotated[int, _Drafting] = Field(default=15, ge=1, le=1024)
    """Draft nodes sent to the target a round, root not counted (N)."""
    longest_match: Annotated[int, _Drafting] = Field(default=5, ge=1, le=32)
    """Longest n-gram that the small drafter matches (m)."""
    exhaustion: Annotated[Literal["release", "continue"], _Drafting] = "continue"
    """Whether nodes with fewer than `width` continuations are drafted from again."""
    estimate: Annotated[Literal["counts", "prefill"], _Drafting] = "counts"
    """How the small drafter scores: by continuation counts, or by the target's prefill probabilities."""
    small: Literal["ngram", "neural"] = "ngram"
    """Drafter of small steps: n-gram look-up, or the pair's small neural model."""
    scheduler: str = "never"
    """Scheduler that decides when to call the middle drafter: `never`, `always`, `fixed` by `schedule`, `early`,
    `entropy-confidence`, `candidate-score-gap`, `latency-normalized`, `learned`, `planner`, or a plug-in's."""
    schedule: Annotated[tuple[Literal[0, 1], ...], FromList] | None = None
    """For the fixed scheduler: per drafting step, 1 to call the middle drafter; null is every other step."""
    max_calls: int | None = Field(default=None, ge=0)
    """Most middle calls a round of heuristic and learned schedulers (B0); null is floor(T_tgt / T_mid)."""
    threshold: float | None = Field(default=None, allow_inf_nan=False)
    """A heuristic scheduler's threshold (tau)."""
    call_gain: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Extra tokens per call, for the latency-normalized heuristic; a constant of the pair."""
    artifact: str | None = None
    """Trained artifact of the learned scheduler and the planner: a packaged name, or a folder of `treegraft fit`."""
    signals: Literal["full", "no-context", "no-history", "no-tree", "plus"] = "full"
    """Signals of the learned scheduler: the paper's (full), those without one group, or look-up's too (plus)."""
    look_back: Annotated[int, _Drafting] = Field(default=5, ge=0, le=32)
    """Layers above the frontier that reselection may pick from (L)."""
    reselect: Annotated[Literal["unexpanded", "all", "off"], _Drafting] = "unexpanded"
    """Candidate set of reselection: nodes not yet expanded in the round, all nodes, or no reselection at all."""
    non_destructive: Annotated[bool, _Drafting] = True
    """False deletes children of frontier nodes other than the middle's W best."""
    raise_scores: Annotated[bool, _Drafting] = False
    """Whether a small step may raise an existing score."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Parameters of one family: csd's, an external baseline's or a plug-in's."""

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
        if not isinstance(steps, int) or steps > MOST_STEPS:
            return values  # the field says what is wrong
        return {**values, "schedule": [1 - step % 2 for step in range(steps)]}

    @model_validator(mode="after")
    def _schedule_has_a_bit_a_step(self) -> Self:
        if self.schedule is not None and len(self.schedule) != self.steps:
            raise ValueError(f"has {len(self.schedule)} entries for {self.steps} steps; give schedule one a step")
        return self

    def options_as(self, kind: type[Options], method: str) -> Options:
        """Return `options` as a family's schema.

        Raises:
            UserError: an unknown option, or an invalid value.
        """
        try:
            return kind.model_validate(self.options)
        except ValidationError as error:
            fault = first_fault(error)
            if fault.is_unknown_key:
                raise unknown_name(f"option of {method}", fault.key, kind.model_fields) from error
            given = f" (given: {fault.shown})" if fault.place else ""
            raise UserError(f"options: {fault.line()}{given}") from error

    @property
    def cap(self) -> int:
        """Most nodes held while drafting, root included."""
        return max(self.budget + 1, 1 + self.width + self.steps * self.width**2)


DRAFTING_KEYS = tuple(name for name, field in Settings.model_fields.items() if _Drafting in field.metadata)
"""Parameters that change what a given schedule drafts."""
