"""A study's conditions on recorded runs: profiles, and the costs of traced rounds under them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import UserError
from foundation.progress import Bar
from hardware_profiles.profile import Profile
from harness.clocks.cost_model import CLOCK_PREFIX
from harness.clocks.latency import latency_with
from harness.clocks.named_profiles import changed_profile, named_profile
from harness.models.pair import Pair
from harness.replay.recorded_run import RecordedRun
from harness.training.policy_rollout import Floats
from harness.training.study.study_file import Condition, Study
from harness.training.trace_collection import Collector
from harness.training.trace_costs import Priced, autoregressive_costs, priced_rounds
from methods.latency import Latency


@dataclass(frozen=True, slots=True)
class Timed:
    """A run's traced rounds under a condition."""

    priced: Priced
    """With the costs of every kind of policy."""
    autoregressive: Floats
    """The baseline's time at each place, in verifications (T_tgt), [rounds]."""
    latency: Latency
    """T_tgt and T_mid."""


def profiles_of(study: Study, file: str, pair: Pair) -> dict[str, Profile]:
    """Return the profile of each condition.

    Args:
        study: the study.
        file: its file, for errors and sources.
        pair: the runs', for machines named without one.
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
    """Yield each condition's name and a run's rounds under it, grouped by drafting settings.

    The traces of a group are read once, and only one condition's rounds are in memory at a time.

    Args:
        study: the study.
        recorded: the run.
        traces: folder of its traces.
        profiles: of the conditions.
        bar: shows how far tracing is.
    """
    groups = list[dict[str, object]]()
    for condition in study.conditions.values():
        if condition.settings not in groups:
            groups.append(condition.settings)
    for group in groups:
        collector = Collector(recorded, traces, group, study.limit)
        answers, settings = collector.collect(bar), collector.spec.settings
        for name, condition in study.conditions.items():
            if condition.settings == group:
                profile = profiles[name]
                latency = latency_with(settings, profile, recorded.median_prompt)
                priced = priced_rounds(answers, profile, latency, settings, study.decision_ms)
                yield name, Timed(priced, autoregressive_costs(answers, profile, latency), latency)
