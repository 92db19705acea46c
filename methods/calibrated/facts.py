"""Facts of calibrated grafting."""

from __future__ import annotations

from methods.calibrated.artifact import edges_digest, load_edges
from methods.calibrated.options import CalibratedOptions
from methods.facts import FittedTo, MethodFacts
from methods.settings import Settings


class CalibratedFacts(MethodFacts):
    """It needs a trained artifact, and uses that artifact's costs instead of the run's latencies."""

    def parameters(self, settings: Settings) -> frozenset[str] | None:
        """Return what it reads: `budget` only if the machine does not size its trees."""
        read = {"artifact", "options", "steps", "width"}
        return frozenset({*read, "budget"} if settings.options.get("size") == "budget" else read)

    def reader(self, family: str, settings: Settings, key: str) -> str:
        """Return the family, and for `budget` the option that ignores it."""
        return f"{family} of size machine" if key == "budget" else family

    def check(self, family: str, settings: Settings) -> None:
        """Refuse invalid options, and a missing or invalid artifact."""
        super().check("treegraft-calibrated", settings)
        load_edges(settings)

    def artifact_digest(self, settings: Settings) -> str | None:
        """Return the digest of its edge artifact."""
        return None if settings.artifact is None else edges_digest(settings.artifact)

    def fitted_to(self, settings: Settings) -> FittedTo | None:
        """Return pair, clock and settings of its edge artifact's fit."""
        return None if settings.artifact is None else load_edges(settings).fitted_to


FACTS = {"calibrated": CalibratedFacts(drafters=("middle",), options=CalibratedOptions)}
"""By family."""
