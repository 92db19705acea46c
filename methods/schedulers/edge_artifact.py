"""What calibrated grafting was fitted to be: its edge model, what things cost on a machine, and a card. No torch."""

from __future__ import annotations

import hashlib
from functools import cached_property
from math import log
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from harness.errors import UserError
from methods.drafters.edge_model import EdgeModel
from methods.schedulers.artifact import EDGES_FILE, parsed, read_artifact_file, write_part
from methods.settings import Settings

EDGE_KEYS = ("steps", "width")
"""The settings that decide what calibrated grafting drafts, beside its artifact and options."""


class CostTable(BaseModel):
    """What forwards behind some context take, in units of a verification of one token there."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    context: int = Field(ge=1)
    """Tokens of the context."""
    verifications: list[PositiveFloat] = Field(min_length=2)
    """Of 1, 2, … tokens, with the work beside the forward; what comes behind the last is extrapolated."""
    calls: list[PositiveFloat] = Field(min_length=2)
    """Of the middle drafter on 1, 2, … tokens, with the work beside the forward."""

    def verification(self, tokens: int) -> float:
        """Return the time of a verification."""
        return _at(self.verifications, tokens)

    def call(self, tokens: int) -> float:
        """Return the time of a middle call."""
        return _at(self.calls, tokens)

    @cached_property
    def least_call(self) -> float:
        """The least that any call takes."""
        return min(self.calls)

    @cached_property
    def least_node(self) -> float:
        """The least that one more node costs, averaged over a tree that grows from the root."""
        first = self.verifications[0]
        slopes = [(cost - first) / nodes for nodes, cost in enumerate(self.verifications[1:], 1)]
        return max(min(slopes), 1e-4)


class EdgeArtifact(BaseModel):
    """What `treegraft fit --method treegraft-calibrated` writes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    schema_version: Literal[1] = 1
    """Version of this schema."""
    pair: str
    """The pair on whose text it was fitted."""
    clock: str
    """Where costs came from."""
    drafting: dict[str, Any] = Field(default_factory=dict)
    """Settings of the rounds that it was fitted to; older ones do not tell them."""
    edges: EdgeModel
    """Acceptance of edges."""
    costs: list[CostTable] = Field(min_length=1)
    """The machine, for contexts of several lengths."""
    rate: float = Field(ge=1e-3, le=1e3, strict=True)
    """Committed tokens a unit of time that were reached on the fit questions."""
    worth: float = Field(ge=0, le=1e3, strict=True)
    """Tokens that come with one that the middle drafter finds: look-up may go on behind it; at 0 it is never called."""
    card: dict[str, Any]
    """Data, recipe, figures and versions."""

    def costs_at(self, context: int) -> CostTable:
        """Return the table of the nearest context, by ratio."""
        return min(self.costs, key=lambda table: abs(log(table.context / context)))


def load_edges(settings: Settings) -> EdgeArtifact:
    """Return the edge artifact that a method's settings name.

    Raises:
        UserError: there is none, or it is broken.
    """
    if settings.artifact is None:
        raise UserError(
            "treegraft-calibrated: this pair has no fitted artifact; make one with treegraft fit "
            "--method treegraft-calibrated, and give artifact: FOLDER"
        )
    artifact: EdgeArtifact = parsed(EdgeArtifact, settings.artifact, EDGES_FILE)
    return artifact


def edges_digest(name: str) -> str:
    """Return the sha256 of an edge artifact.

    Raises:
        UserError: there is none of that name.
    """
    return hashlib.sha256(read_artifact_file(name, EDGES_FILE).encode()).hexdigest()


def write_edges(folder: Path, artifact: EdgeArtifact) -> None:
    """Write the artifact into a folder that exists.

    Raises:
        UserError: it cannot be written.
    """
    write_part(folder / EDGES_FILE, artifact)


def _at(costs: list[float], tokens: int) -> float:
    if tokens <= len(costs):
        return costs[max(tokens, 1) - 1]
    return costs[-1] + (tokens - len(costs)) * max(0.0, costs[-1] - costs[0]) / (len(costs) - 1)
