"""Facts of a method, known before any model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from foundation.roles import DrafterRole
from methods.settings import Settings

NO_SMALL = "this pair has no small neural model; give its YAML file one as small: {hub: owner/name}"
"""Error of a method that needs a small neural model if the pair has none."""


class FittedTo(NamedTuple):
    """Pair, clock and settings that a trained artifact was fitted to."""

    pair: str
    """Pair whose text it was fitted on."""
    clock: str
    """Source of its costs."""
    drafting: Mapping[str, Any]
    """Settings of its rounds; empty in older artifacts."""

    def difference(self, pair: str, clock: str, settings: Settings) -> str | None:
        """Return how a use differs from the fit, None if it does not; clock `wall` may be any machine's."""
        if self.pair != pair:
            return f"to pair {self.pair}, not {pair}"
        own = settings.model_dump(mode="json", include={*self.drafting})
        other = sorted(key for key in own if self.drafting[key] != own[key])
        if other:
            return f"with {other[0]} {self.drafting[other[0]]}, not {own[other[0]]}"
        return f"under {self.clock}, not {clock}" if clock not in ("wall", self.clock) else None


@dataclass(frozen=True)
class MethodFacts:
    """The facts of a family of methods; a class names its own as `facts`, and subclasses inherit them.

    The defaults describe a method that needs the target alone. Override the methods here for what depends on settings;
    the checks raise `UserError`.
    """

    drafters: tuple[DrafterRole, ...] = ()
    """Drafting models of the pair that it needs: `middle`, `small` (a neural model; look-up needs none), or both."""
    options: type[BaseModel] | None = None
    """Schema of its `options`; None takes none, or a plug-in reads them itself."""
    visible_rounds: bool = True
    """Whether it has per-round data; external baselines have none."""
    engine: str | None = None
    """The engine that it brings; None runs on the target's."""
    baseline: str = "autoregressive"
    """The method that its speedup is over: plain decoding by the same engine, which every run with it contains."""
    memory: Literal["question", "run"] = "question"
    """How long it keeps what it learnt from decoded text: until the question ends, or for the whole run."""
    reads_gguf: bool = False
    """Whether its engine reads the target's GGUF file itself, decodes greedily on the CPU, and computes with the
    quantised weights: where its tokens part from the baseline's, nothing is shown by it."""

    def needed_drafters(self, settings: Settings) -> tuple[DrafterRole, ...]:
        """Return the neural drafters of the pair that it needs."""
        return self.drafters

    def weighs_times(self, settings: Settings) -> bool:
        """Return whether its schedules depend on the run's latencies, so that another clock changes them."""
        return False

    def parameters(self, settings: Settings) -> frozenset[str] | None:
        """Return the parameters that it reads, None if a plug-in's scheduler may read any."""
        return frozenset() if self.options is None else frozenset({"options"})

    def reader(self, family: str, settings: Settings, key: str) -> str:
        """Return the name, in errors, of what does not read a parameter."""
        return family

    def check(self, family: str, settings: Settings) -> None:
        """Raise UserError for settings that it cannot run with."""
        if self.options is not None:
            settings.options_as(self.options, family)

    def artifact_digest(self, settings: Settings) -> str | None:
        """Return the sha256 of the current files of its trained artifact, None if it reads none."""
        return None

    def fitted_to(self, settings: Settings) -> FittedTo | None:
        """Return what its artifact was fitted to, None if it reads none."""
        return None


FACTS = {"autoregressive": MethodFacts()}
"""By family."""
