"""Preflight: checks methods against pair and clock before any model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from foundation.errors import UserError
from hardware_profiles.profile import Profile
from harness.config.run_config import RunConfig
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


def check_gguf_readers(pair: Pair, methods: Iterable[MethodSpec], config: RunConfig) -> None:
    """Refuse methods whose engine reads a GGUF file itself, where it cannot decode what the others do."""
    for spec in methods:
        if not spec.facts.reads_gguf:
            continue
        engine = spec.facts.engine
        if not pair.target.is_gguf:
            raise UserError(
                f"method {spec.name!r}: {engine} reads GGUF files, and pair {pair.name} has none; "
                "leave it out, or give a pair whose target is a GGUF file"
            )
        if not config.device.startswith("cpu"):
            raise UserError(f"method {spec.name!r}: {engine} decodes on the CPU; leave it out, or give --device cpu")
        if config.temperature > 0:
            raise UserError(
                f"method {spec.name!r}: {engine} draws in its own way; leave it out, or give --temperature 0"
            )
        if config.repetition_penalty != 1:
            raise UserError(
                f"method {spec.name!r}: {engine} penalises repetition in its own way; "
                "leave it out, or give --repetition-penalty 1"
            )


def warn_of_other_uses(pair: Pair, clock: str, methods: Sequence[MethodSpec]) -> None:
    """Log each method whose artifact was fitted to another pair, clock or other drafting settings."""
    for spec in methods:
        fitted = spec.facts.fitted_to(spec.settings)
        difference = None if fitted is None else fitted.difference(pair.name, clock, spec.settings)
        if difference is not None:
            _LOG.warning("method %s: its artifact %s was fitted %s", spec.name, spec.settings.artifact, difference)
