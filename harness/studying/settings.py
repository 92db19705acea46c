"""What `treegraft study` is asked for. Imports no torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class StudySettings(BaseModel):
    """Every flag of the command, by key."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    fit: str
    """Folder of a greedy run on questions for fitting."""
    on: str
    """Folder of a greedy run of the same pair on other questions, to be judged on."""
    fit_traces: str | None = None
    """Folder of the first run's traced rounds, from which a stopped command goes on; null is its traces/."""
    traces: str | None = None
    """The same of the other run."""
    figure: str | None = None
    """An SVG file for speedups along the study's axis."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Folds, fits and resamples derive from it."""
