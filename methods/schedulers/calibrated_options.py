"""Which parts of calibrated grafting are switched on. Imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from methods.schedulers.edge_artifact import load_edges
from methods.settings import Settings


class CalibratedOptions(BaseModel):
    """What the `options` of a calibrated method may hold: which of its parts are switched on."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    when: Literal["gain", "once"] = "gain"
    """When the middle is called: while the expected gain outweighs its time, or once, at the root, in every round."""
    fusion: bool = True
    """Whether an edge that the middle has scored is judged by look-up's evidence too; else by the middle alone."""
    size: Literal["machine", "budget"] = "machine"
    """How many nodes are sent: as many as are worth their time here, or the likeliest `budget` ones."""
    most: int = Field(default=48, ge=1, le=1024, strict=True)
    """Where the machine sizes trees: most nodes that a round may send, root not counted, whatever they are worth."""

    @model_validator(mode="after")
    def _most_is_the_machines(self) -> Self:
        if self.size == "budget" and "most" in self.model_fields_set:
            raise ValueError(
                "most: nobody reads it with size budget, which sends `budget` nodes; leave one of them out"
            )
        return self


def calibrated_options(settings: Settings) -> CalibratedOptions:
    """Return the options of a calibrated method.

    Raises:
        UserError: an unknown option, or an unusable value.
    """
    return settings.options_as(CalibratedOptions, "treegraft-calibrated")


def check_calibrated(settings: Settings) -> None:
    """Refuse what a calibrated method could not run with.

    Raises:
        UserError: options that are not usable, no artifact, or a broken one.
    """
    calibrated_options(settings)
    load_edges(settings)
