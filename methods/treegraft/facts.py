"""Facts of TreeGraft's methods."""

from __future__ import annotations

from foundation.roles import DrafterRole
from methods.facts import FittedTo, MethodFacts
from methods.schedulers.artifact import artifact_digest, load_artifact
from methods.schedulers.scheduler import OURS, READ_BY, UNCHANGING, make_scheduler
from methods.settings import DRAFTING_KEYS, Settings


class TreeGraftFacts(MethodFacts):
    """The drafters needed and the parameters read depend on the scheduler."""

    def needed_drafters(self, settings: Settings) -> tuple[DrafterRole, ...]:
        """Return the middle if it may be called, and the small neural model if it takes small steps."""
        middle: tuple[DrafterRole, ...] = () if settings.scheduler == "never" else ("middle",)
        return (*middle, "small") if settings.small == "neural" else middle

    def weighs_times(self, settings: Settings) -> bool:
        """Return whether the scheduler may use T_tgt and T_mid, as a plug-in's may."""
        return settings.scheduler not in UNCHANGING

    def parameters(self, settings: Settings) -> frozenset[str] | None:
        """Return what drafting and the scheduler read."""
        if settings.scheduler not in OURS:
            return None
        return frozenset({"scheduler", "small", *DRAFTING_KEYS, *READ_BY.get(settings.scheduler, ())})

    def reader(self, family: str, settings: Settings, key: str) -> str:
        """Return the scheduler, which decides what is read."""
        return f"scheduler {settings.scheduler}"

    def check(self, family: str, settings: Settings) -> None:
        """Refuse an unknown scheduler, or one that lacks a parameter."""
        make_scheduler(settings)

    def artifact_digest(self, settings: Settings) -> str | None:
        """Return the digest of the scheduler's artifact, if it has one."""
        name = _artifact(settings)
        return None if name is None else artifact_digest(name)

    def fitted_to(self, settings: Settings) -> FittedTo | None:
        """Return what the scheduler was fitted to, if it has an artifact."""
        name = _artifact(settings)
        return None if name is None else load_artifact(name, settings).fitted_to


def _artifact(settings: Settings) -> str | None:
    return settings.artifact if "artifact" in READ_BY.get(settings.scheduler, ()) else None


FACTS = {"treegraft": TreeGraftFacts()}
"""By family."""
