"""Settings of `treegraft fit`, `treegraft oracle` and `treegraft study`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from foundation.strict_model import StrictModel


class FitSettings(StrictModel):
    """Every flag of the command, by key."""

    clock: str
    """`profile:NAME`: what forwards and the work around them cost."""
    out: str
    """Folder of the finished scheduler."""
    method: Literal["treegraft", "treegraft-calibrated"] = "treegraft"
    """What to fit: the scheduler of treegraft, or the edge model of treegraft-calibrated."""
    traces: str | None = None
    """Folder of traced rounds, from which a stopped command goes on; null is RUN/traces. For treegraft alone."""
    decision_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """What a decision of the fitted scheduler takes where the clock charges less; null keeps to the clock."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Folds and fits derive from it."""


class OracleSettings(StrictModel):
    """Every flag of the command, by key."""

    clock: str
    """`profile:NAME`: what forwards and the work around them cost."""
    traces: str | None = None
    """Folder of traced rounds, from which a stopped command goes on; null is RUN/traces."""
    artifact: str | None = None
    """A fitted scheduler to evaluate, by name or folder; null is the pair's."""
    decision_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """What a decision of the fitted scheduler takes where the clock charges less; null keeps to the clock."""


class StudySettings(StrictModel):
    """Every flag of the command, by key."""

    fit: str
    """Folder of a greedy run on questions for fitting."""
    on: str
    """Folder of a greedy run of the same pair on other questions, to evaluate on."""
    fit_traces: str | None = None
    """Folder of the first run's traced rounds, from which a stopped command goes on; null is its traces/."""
    traces: str | None = None
    """The same of the other run."""
    figure: str | None = None
    """An SVG file for speedups along the study's axis."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Folds, fits and resamples derive from it."""
