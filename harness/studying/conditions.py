"""A study's conditions on recorded runs: profiles, and what traced rounds cost under them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hardware_profiles.profile import Profile
from harness.errors import UserError
from harness.fitting.arrays import Priced, autoregressive_costs, priced_rounds
from harness.fitting.collect import Collector
from harness.flags import Bar
from harness.hardware import changed_profile, named_profile
from harness.latency import latency_with, told
from harness.pair import Pair
from harness.recorded import RecordedRun
from harness.retiming import CLOCK_PREFIX
from harness.studying.plan import Condition, Study
from methods.schedulers.scheduler import Latency
from methods.settings import Settings
from methods.value_system.rounds import Floats
from methods.value_system.traces import TracedAnswer


@dataclass(frozen=True, slots=True)
class Timed:
    """A run's traced rounds under a condition."""

    priced: Priced
    """With what every kind of policy is charged."""
    autoregressive: Floats
    """What the baseline takes at each place, in verifications (T_tgt), [rounds]."""
    latency: Latency
    """T_tgt and T_mid."""


def profiles_of(study: Study, file: str, pair: Pair) -> dict[str, Profile]:
    """Return the profile of each condition.

    Args:
        study: the study.
        file: its file, which errors and sources name.
        pair: the runs', whose latencies a machine gives where a clock names no pair.

    Raises:
        UserError: a clock or machine that is not usable, or without a middle drafter's latencies.
    """
    return {name: _profile(name, condition, file, pair) for name, condition in study.conditions.items()}


def _profile(name: str, condition: Condition, file: str, pair: Pair) -> Profile:
    place = condition.clock.removeprefix(CLOCK_PREFIX)
    try:
        if condition.machine:
            profile = changed_profile(
                place, condition.machine, called=name, file=Path(file).name, origin="machine", pair=pair
            )
        else:
            profile = named_profile(place, pair)
        if "middle" not in profile.forwards:
            raise UserError(f"clock: {place} knows no latency of a middle drafter; name another pair")
    except UserError as error:
        raise UserError(f"{file}: conditions.{name}: {error}") from error
    return profile


def timed_conditions(
    study: Study, recorded: RecordedRun, traces: Path, profiles: Mapping[str, Profile], bar: Bar
) -> Iterator[tuple[str, Timed]]:
    """Yield each condition's name and a run's rounds under it, those drafted alike in a row.

    Traces of one way of drafting are read once, and no more than one condition's rounds are made at a time.

    Args:
        study: the study.
        recorded: the run.
        traces: folder of its traces.
        profiles: of the conditions.
        bar: shows how far tracing is.

    Raises:
        UserError: a run that cannot be traced so.
    """
    ways = list[dict[str, object]]()
    for condition in study.conditions.values():
        if condition.settings not in ways:
            ways.append(condition.settings)
    for way in ways:
        collector = Collector(recorded, traces, way, study.limit)
        answers = collector.collect(bar)
        for name, condition in study.conditions.items():
            if condition.settings == way:
                settings = collector.spec.settings
                latency = told(latency_with(settings, profiles[name], recorded.median_prompt))
                assert latency is not None  # a profile tells it
                yield name, _timed(answers, profiles[name], latency, settings, study.decision_ms)


def _timed(
    answers: Sequence[TracedAnswer],
    profile: Profile,
    latency: Latency,
    settings: Settings,
    decision_ms: float | None,
) -> Timed:
    return Timed(
        priced=priced_rounds(answers, profile, latency, settings, decision_ms),
        autoregressive=autoregressive_costs(answers, profile, latency),
        latency=latency,
    )
