"""Options of calibrated grafting, which switch its parts on and off."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from foundation.strict_model import StrictModel


class CalibratedOptions(StrictModel):
    """`options` of a calibrated method."""

    when: Literal["gain", "once"] = "gain"
    """When the middle is called: while the expected gain outweighs its cost, or once a round, at the root."""
    fusion: bool = True
    """Whether an edge scored by the middle is scored by look-up's evidence too; else by the middle alone."""
    size: Literal["machine", "budget"] = "machine"
    """Nodes sent: as many as are worth their cost on this machine, or the `budget` likeliest."""
    most: int = Field(default=48, ge=1, le=1024, strict=True)
    """With size machine: most nodes sent a round, root not counted."""

    @model_validator(mode="after")
    def _most_is_the_machines(self) -> Self:
        if self.size == "budget" and "most" in self.model_fields_set:
            raise ValueError("most: is not read with size budget, which sends `budget` nodes; leave one of them out")
        return self
