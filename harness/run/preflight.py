"""Preflight: checks methods against pair and clock before any model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from foundation.errors import UserError
from hardware_profiles.profile import Profile
from harness.models.pair import Pair
from methods.catalog import MethodSpec
from methods.facts import NO_SMALL

_LOG = logging.getLogger("treegraft")


def check_methods(pair: Pair, methods: Iterable[MethodSpec], profile: Profile | None) -> None:
    """Refuse unusable settings, and drafters that the pair or the clock's profile (None: wall) lacks."""
    for spec in methods:
        try:
            spec.facts.check(spec.family, spec.settings)
        except UserError as error:
            raise UserError(f"method {spec.name!r}: {error}") from error
        needed = spec.needed_drafters
        if "middle" in needed and pair.middle is None:
            raise UserError(f"method {spec.name!r}: pair {pair.name}: {pair.no_middle}")
        if "small" in needed and pair.small is None:
            raise UserError(f"method {spec.name!r}: {NO_SMALL}")
        if profile is not None and "small" in needed and "small" not in profile.forwards:
            raise UserError(
                f"method {spec.name!r}: profile {profile.name} knows no small neural model's times; leave it out"
            )
        if profile is not None and "middle" in needed and "middle" not in profile.forwards:
            raise UserError(f"method {spec.name!r}: profile {profile.name} knows no middle's times; give another clock")


def warn_of_other_uses(pair: Pair, clock: str, methods: Sequence[MethodSpec]) -> None:
    """Log each method whose artifact was fitted to another pair, clock or other drafting settings."""
    for spec in methods:
        fitted = spec.facts.fitted_to(spec.settings)
        difference = None if fitted is None else fitted.difference(pair.name, clock, spec.settings)
        if difference is not None:
            _LOG.warning("method %s: its artifact %s was fitted %s", spec.name, spec.settings.artifact, difference)
