"""`treegraft oracle`: every schedule of a run's rounds, the best in hindsight, how near a fitted scheduler comes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from harness.errors import UserError
from harness.fitting.arrays import Priced, priced_rounds
from harness.fitting.collect import Collector
from harness.fitting.fit import opened, told_of
from harness.fitting.gains import Gain, gain, prompt_times
from harness.fitting.judging import calls_a_round
from harness.fitting.settings import OracleSettings
from harness.flags import Bar
from methods.schedulers.artifact import Artifact, fitted_elsewhere, load_artifact, load_planner
from methods.settings import Settings
from methods.value_system.distilling import network_margins, planner_margins
from methods.value_system.rivals import gap
from methods.value_system.rounds import Bools, Rounds, Schedules, always, bits_of
from methods.value_system.values import decisions

_LOG = logging.getLogger("treegraft")

_SEED = 0
OVERALL = "overall"
BEST_SCHEDULE = "best schedule, in hindsight"
PLANNER = "value-planner"


@dataclass(frozen=True, slots=True)
class Oracle:
    """What policies reach on a run's rounds."""

    caption: str
    """That it is modelled, and of what."""
    lines: list[dict[str, Any]]
    """One a policy and task."""


def oracle(run: Path, settings: OracleSettings, bar: Bar) -> Oracle:
    """Return one line a policy and task, modelled.

    A line holds `task`, `policy`, `schedule` (bits, where it is always the same), `tokens_per_s`, `committed` and
    `calls` a round, `gap` (verifications' time that a round loses to the best schedule there), and `rounds`, all along
    the policy's own path; and how much faster it is, as a share with its interval, than the faster of never and always
    calling (`over_endpoint`) and than the best single schedule of each task (`over_single`).

    Args:
        run: the folder of a run; the baseline's greedy answers are traced.
        settings: what is asked.
        bar: shows how far tracing is.

    Raises:
        UserError: unusable input.
    """
    profile, latency, recorded = opened(run, settings.clock)
    collector = Collector(recorded, Path(settings.traces) if settings.traces else run / "traces")
    drafting = collector.spec.settings
    answers = collector.collect(bar)
    priced = priced_rounds(answers, profile, latency, drafting, settings.decision_ms)
    fitted = _artifact(settings.artifact, drafting, recorded.pair.name, settings.clock)
    if fitted is not None:
        _tell_seen(fitted, {answer.facts["question"] for answer in answers})
    policies = _policies(priced, fitted, drafting)
    every = priced.fixed.tasks
    singles = _best_singles(priced.fixed)
    lines = []
    for task in [*map(str, np.unique(every)), OVERALL]:
        chosen = np.ones(len(every), dtype=np.bool_) if task == OVERALL else every == task
        fixed = priced.fixed.part(chosen)
        endpoints = [prompt_times(fixed, always(fixed, one)) for one in (fixed.schedules[0], fixed.schedules[-1])]
        single = prompt_times(fixed, singles[chosen])
        for name, (rounds, policy) in policies.items():
            part = rounds.part(chosen)
            schedules = policy(part, chosen)
            times = prompt_times(part, schedules)
            lines.append(
                {
                    **_line(part, task, name, schedules, fixed, latency.target_ms),
                    "over_endpoint": _shown(gain(times, endpoints, _SEED)),
                    "over_single": _shown(gain(times, [single], _SEED)),
                }
            )
    return Oracle(told_of(profile, latency, recorded, drafting, settings.decision_ms), lines)


Policy = Callable[[Rounds, Bools], Schedules]


def _artifact(asked: str | None, settings: Settings, pair: str, clock: str) -> tuple[str, Artifact] | None:
    """Return the scheduler that was asked for, or the pair's where it is one for these settings.

    Raises:
        UserError: what was asked for is not usable.
    """
    name = asked or settings.artifact
    if name is None:
        return None
    try:
        fitted = load_artifact(name, settings)
    except UserError as error:
        if asked is not None:
            raise
        _LOG.warning("%s; going on without the pair's scheduler", error)
        return None
    difference = fitted_elsewhere(fitted.pair, fitted.clock, fitted.drafting, pair, clock, settings)
    if difference is not None:
        _LOG.warning("artifact %s was fitted %s", name, difference)
    return name, fitted


def _tell_seen(fitted: tuple[str, Artifact], questions: set[str]) -> None:
    name, artifact = fitted
    fitted_to = artifact.card.get("questions_seen")
    seen = sum(question in fitted_to for question in questions) if isinstance(fitted_to, list) else 0
    if seen:
        _LOG.warning("artifact %s was fitted to %d of these %d questions", name, seen, len(questions))


def _best_singles(rounds: Rounds) -> Schedules:
    """Return for each round the schedule that, always taken, is the fastest on all of its task."""
    found = np.empty(len(rounds), dtype=np.int64)
    for task in np.unique(rounds.tasks):
        chosen = rounds.tasks == task
        found[chosen] = _best_single(rounds.part(chosen))
    return found


def _best_single(rounds: Rounds) -> int:
    return int(np.nanargmax(rounds.rates()))


def _policies(
    priced: Priced, fitted: tuple[str, Artifact] | None, settings: Settings
) -> dict[str, tuple[Rounds, Policy]]:
    """Return policies by name, each with the rounds as it is charged.

    Given some of the rounds, and which they are, a policy gives their schedules.
    """
    fixed, rounds = priced.fixed, priced.learned
    found: dict[str, tuple[Rounds, Policy]] = {
        "never": (fixed, lambda part, chosen: always(part, 2**part.steps)),
        "always": (fixed, lambda part, chosen: always(part, 2 ** (part.steps + 1) - 1)),
        BEST_SCHEDULE: (fixed, lambda part, chosen: always(part, _best_single(part))),
    }
    if fitted is not None:
        origin, artifact = fitted
        margins = {PLANNER: planner_margins(load_planner(origin, settings), rounds, origin)}
        for name, network in artifact.variants.items():
            label = "learned scheduler" if name == "full" else f"learned scheduler, {name}"
            margins[label] = network_margins(network, rounds)
        for label, values in margins.items():
            found[label] = (rounds, _known(rounds.outcome(decisions(values))))
    unbeaten = fixed.without_catching_up()
    found["best of each round, in hindsight"] = (unbeaten, lambda part, chosen: part.hindsight())
    return found


def _shown(found: Gain) -> list[float | None]:
    return [round(one, 4) if isfinite(one) else None for one in (found.value, found.low, found.high)]


def _known(schedules: Schedules) -> Policy:
    return lambda part, chosen: schedules[chosen]


def _line(part: Rounds, task: str, name: str, schedules: Schedules, fixed: Rounds, target_ms: float) -> dict[str, Any]:
    rows = np.flatnonzero(part.visited(schedules))
    known: Sequence[int] = np.unique(schedules).tolist()
    return {
        "task": task,
        "policy": name,
        "schedule": bits_of(known[0]) if len(known) == 1 else None,
        "tokens_per_s": 1e3 * part.rate(schedules) / target_ms,
        "committed": float(part.committed[rows, schedules[rows]].mean()),
        "calls": calls_a_round(part, schedules),
        "gap": gap(part, schedules, fixed),
        "rounds": len(rows),
    }


def oracle_table(found_out: Oracle) -> str:
    """Return the lines as tables for the terminal: tokens a second by task, then what each policy does overall."""
    lines = found_out.lines
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    policies = list(dict.fromkeys(line["policy"] for line in lines))
    found = {(line["task"], line["policy"]): line for line in lines}
    speeds = [[policy, *(f"{found[task, policy]['tokens_per_s']:.2f}" for task in tasks)] for policy in policies]
    overall = [found[OVERALL, policy] for policy in policies]
    habits = [
        [
            line["policy"],
            f"{line['committed']:.3f}",
            f"{line['calls']:.2f}",
            f"{line['gap']:.3f}",
            _share(line["over_endpoint"]),
            _share(line["over_single"]),
        ]
        for line in overall
    ]
    told = ["policy", "committed a round", "calls a round", "gap", "over better endpoint", "over best of each task"]
    schedules = [
        f"{task} {line['schedule']}" for task in tasks if (line := found[task, BEST_SCHEDULE])["schedule"] is not None
    ]
    return "\n".join(
        [
            found_out.caption,
            "",
            "Tokens a second:",
            tabulate(speeds, headers=["policy", *tasks], disable_numparse=True),
            "",
            "Overall, along each policy's own path:",
            tabulate(habits, headers=told, disable_numparse=True),
            "",
            f"Best schedules in hindsight: {', '.join(schedules)}.",
            "gap: verifications' time that a round loses to the best schedule there.",
            "over: how much faster, with its 95% interval (bootstrap over prompts); better endpoint: never or always "
            "calling; best of each task: its best single schedule, in hindsight.",
            *([] if PLANNER in policies else ["The pair has no fitted scheduler; give one with --artifact."]),
        ]
    )


def _share(found: Sequence[float | None]) -> str:
    value, low, high = ("-" if one is None else f"{100 * one:+.1f}" for one in found)
    return f"{value}% [{low}, {high}]"
