"""Which parts of calibrated grafting are switched on. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from methods.schedulers.edge_artifact import load_edges
from methods.settings import Settings


class CalibratedOptions(BaseModel):
    """What the `options` of a calibrated method may hold: which of its parts are switched on."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    when: Literal["gain", "once"] = "gain"
    """When the middle is called: while the expected gain outweighs its time, or once, at the root, in every round."""
    fusion: bool = True
    """Whether an edge that the middle has scored is judged by look-up's evidence too."""
    size: Literal["machine", "budget"] = "machine"
    """How many nodes are sent: as many as are worth their time here, or the likeliest `budget` ones."""
    most: int = Field(default=48, ge=1, le=1024)
    """Most nodes that a round may send, root not counted, whatever they are worth."""


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
