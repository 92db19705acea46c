"""What `treegraft fit` and `treegraft oracle` are asked for. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class FitSettings(BaseModel):
    """Every flag of the command, by key."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

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


class OracleSettings(BaseModel):
    """Every flag of the command, by key."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    clock: str
    """`profile:NAME`: what forwards and the work around them cost."""
    traces: str | None = None
    """Folder of traced rounds, from which a stopped command goes on; null is RUN/traces."""
    artifact: str | None = None
    """A fitted scheduler to judge, by name or folder; null is the pair's."""
    decision_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """What a decision of the fitted scheduler takes where the clock charges less; null keeps to the clock."""
