"""Whether methods could run with a pair under a clock, found out before any model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hardware_profiles.profile import Profile
from harness.errors import UserError
from harness.pair import Pair
from methods.catalog import NO_SMALL, MethodSpec, needed_drafters
from methods.drafters.cascade import cascade_options
from methods.peer_options import assistant_options, lookup_options
from methods.schedulers.calibrated_options import check_calibrated
from methods.schedulers.scheduler import make_scheduler
from methods.settings import Settings

_CHECKS: dict[str, Callable[[Settings], object]] = {
    "calibrated": check_calibrated,
    "csd": cascade_options,
    "hf-assisted": assistant_options,
    "hf-generate": lookup_options,
    "treegraft": make_scheduler,
}
"""By family, what raises where its settings are not usable."""


def check_methods(pair: Pair, methods: Iterable[MethodSpec], profile: Profile | None) -> None:
    """Refuse methods that could not run.

    Args:
        pair: whose drafters they need.
        methods: what they are.
        profile: of the clock; None is the wall.

    Raises:
        UserError: settings that are not usable, or a drafter that the pair lacks or the profile does not know.
    """
    for spec in methods:
        if spec.family in _CHECKS:
            try:
                _CHECKS[spec.family](spec.settings)
            except UserError as error:
                raise UserError(f"method {spec.name!r}: {error}") from error
        needed = needed_drafters(spec)
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
