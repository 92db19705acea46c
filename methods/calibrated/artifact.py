"""The trained artifact of calibrated grafting: edge model, a machine's costs, and a card."""

from __future__ import annotations

import hashlib
from functools import cached_property
from math import log
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat

from foundation.errors import UserError
from foundation.strict_model import FiniteModel
from methods.artifacts.files import EDGES_FILE, read_artifact_file, read_part, write_part
from methods.calibrated.edge_model import EdgeModel
from methods.facts import FittedTo
from methods.settings import Settings

EDGE_KEYS = ("steps", "width")
"""Settings that decide what calibrated grafting drafts, besides its artifact and options."""


class CostTable(FiniteModel):
    """Costs of forwards behind some context, in units of a one-token verification there."""

    context: int = Field(ge=1)
    """Context length in tokens."""
    verifications: list[PositiveFloat] = Field(min_length=2)
    """Of 1, 2, … tokens, with the work around the forward; larger ones are extrapolated."""
    calls: list[PositiveFloat] = Field(min_length=2)
    """Of the middle drafter on 1, 2, … tokens, with the work around the forward."""

    def verification(self, tokens: int) -> float:
        """Return the cost of a verification."""
        return _at(self.verifications, tokens)

    def call(self, tokens: int) -> float:
        """Return the cost of a middle call."""
        return _at(self.calls, tokens)

    @cached_property
    def least_call(self) -> float:
        """The least cost of any call."""
        return min(self.calls)

    @cached_property
    def least_node(self) -> float:
        """The least cost of one more node, averaged over a tree that grows from the root."""
        first = self.verifications[0]
        slopes = [(cost - first) / nodes for nodes, cost in enumerate(self.verifications[1:], 1)]
        return max(min(slopes), 1e-4)


class EdgeArtifact(FiniteModel):
    """The file that `treegraft fit --method treegraft-calibrated` writes."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    pair: str
    """Pair whose text it was fitted on."""
    clock: str
    """Source of the costs."""
    drafting: dict[str, Any] = Field(default_factory=dict)
    """Settings of the rounds it was fitted on; empty in older artifacts."""
    edges: EdgeModel
    """The edge model."""
    costs: list[CostTable] = Field(min_length=1)
    """Costs on the machine, for several context lengths."""
    rate: float = Field(ge=1e-3, le=1e3, strict=True)
    """Committed tokens per unit of time on the dev split."""
    worth: float = Field(ge=0, le=1e3, strict=True)
    """Tokens gained per token that the middle drafter finds, look-up behind it included; at 0 it is never called."""
    card: dict[str, Any]
    """Data, recipe, figures and versions."""

    @property
    def fitted_to(self) -> FittedTo:
        """Pair, clock and settings of its fit."""
        return FittedTo(self.pair, self.clock, self.drafting)

    def costs_at(self, context: int) -> CostTable:
        """Return the table of the nearest context, by ratio."""
        return min(self.costs, key=lambda table: abs(log(table.context / context)))


def load_edges(settings: Settings) -> EdgeArtifact:
    """Return the edge artifact that a method's settings name; raises UserError if it is missing or invalid."""
    if settings.artifact is None:
        raise UserError(
            "treegraft-calibrated: this pair has no fitted artifact; make one with treegraft fit "
            "--method treegraft-calibrated, and give artifact: FOLDER"
        )
    return read_part(EdgeArtifact, settings.artifact, EDGES_FILE)


def edges_digest(name: str) -> str:
    """Return the sha256 of an edge artifact; raises UserError if it is missing."""
    return hashlib.sha256(read_artifact_file(name, EDGES_FILE).encode()).hexdigest()


def write_edges(folder: Path, artifact: EdgeArtifact) -> None:
    """Write the artifact into an existing folder; raises UserError if that fails."""
    write_part(folder / EDGES_FILE, artifact)


def _at(costs: list[float], tokens: int) -> float:
    if tokens <= len(costs):
        return costs[max(tokens, 1) - 1]
    return costs[-1] + (tokens - len(costs)) * max(0.0, costs[-1] - costs[0]) / (len(costs) - 1)
