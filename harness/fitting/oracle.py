"""`treegraft oracle`: every schedule of a run's rounds, the best in hindsight, how near a fitted scheduler comes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from harness.fitting.arrays import Priced, priced_rounds
from harness.fitting.collect import Collector
from harness.fitting.fit import opened, told_of
from harness.fitting.judging import calls_a_round
from harness.fitting.settings import OracleSettings
from harness.flags import Bar
from methods.schedulers.artifact import fitted_elsewhere, load_artifact, load_planner
from methods.settings import Settings
from methods.value_system.distilling import network_margins, planner_margins
from methods.value_system.rivals import gap
from methods.value_system.rounds import Bools, Rounds, Schedules, always, bits_of
from methods.value_system.values import decisions

_LOG = logging.getLogger("treegraft")

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
    the policy's own path.

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
    priced = priced_rounds(collector.collect(bar), profile, latency, drafting, settings.decision_ms)
    policies = _policies(priced, settings.artifact or drafting.artifact, drafting, recorded.pair.name, settings.clock)
    every = priced.fixed.tasks
    lines = []
    for task in [*map(str, np.unique(every)), OVERALL]:
        chosen = np.ones(len(every), dtype=np.bool_) if task == OVERALL else every == task
        fixed = priced.fixed.part(chosen)
        for name, (rounds, policy) in policies.items():
            part = rounds.part(chosen)
            lines.append(_line(part, task, name, policy(part, chosen), fixed, latency.target_ms))
    return Oracle(told_of(profile, latency, recorded, drafting, settings.decision_ms), lines)


Policy = Callable[[Rounds, Bools], Schedules]


def _policies(
    priced: Priced, artifact: str | None, settings: Settings, pair: str, clock: str
) -> dict[str, tuple[Rounds, Policy]]:
    """Return policies by name, each with the rounds as it is charged.

    Given some of the rounds, and which they are, a policy gives their schedules.
    """
    fixed, rounds = priced.fixed, priced.learned
    found: dict[str, tuple[Rounds, Policy]] = {
        "never": (fixed, lambda part, chosen: always(part, 2**part.steps)),
        "always": (fixed, lambda part, chosen: always(part, 2 ** (part.steps + 1) - 1)),
        BEST_SCHEDULE: (fixed, lambda part, chosen: always(part, int(np.nanargmax(part.rates())))),
    }
    if artifact is not None:
        fitted = load_artifact(artifact, settings)
        known = fitted.pair, fitted.clock, fitted.drafting
        difference = fitted_elsewhere(*known, pair, clock, settings)
        if difference is not None:
            _LOG.warning("artifact %s was fitted %s", artifact, difference)
        margins = {PLANNER: planner_margins(load_planner(artifact, settings), rounds, artifact)}
        for name, network in fitted.variants.items():
            label = "learned scheduler" if name == "full" else f"learned scheduler, {name}"
            margins[label] = network_margins(network, rounds)
        for label, values in margins.items():
            found[label] = (rounds, _known(rounds.outcome(decisions(values))))
    found["best of each round, in hindsight"] = (fixed, lambda part, chosen: part.hindsight())
    return found


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
        [line["policy"], f"{line['committed']:.3f}", f"{line['calls']:.2f}", f"{line['gap']:.3f}"] for line in overall
    ]
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
            tabulate(habits, headers=["policy", "committed a round", "calls a round", "gap"], disable_numparse=True),
            "",
            f"Best schedules in hindsight: {', '.join(schedules)}.",
            "gap: verifications' time that a round loses to the best schedule there.",
            *([] if PLANNER in policies else ["The pair has no fitted scheduler; give one with --artifact."]),
        ]
    )
