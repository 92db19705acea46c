"""`treegraft oracle`: every schedule of a run's rounds, the best in hindsight, how near a fitted scheduler comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from harness.fitting.arrays import timed_rounds
from harness.fitting.collect import Collector
from harness.fitting.fit import opened
from harness.fitting.judging import calls_a_round
from harness.fitting.settings import OracleSettings
from harness.flags import Bar
from methods.schedulers.artifact import load_artifact, load_planner
from methods.settings import Settings
from methods.value_system.distilling import network_margins, planner_margins
from methods.value_system.rivals import gap
from methods.value_system.rounds import Bools, Rounds, Schedules, always, bits_of
from methods.value_system.values import decisions

OVERALL = "overall"


def oracle(run: Path, settings: OracleSettings, bar: Bar) -> list[dict[str, Any]]:
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
    rounds = timed_rounds(collector.collect(bar), profile, latency, drafting)
    policies = _policies(rounds, settings.artifact or drafting.artifact, drafting)
    tasks = [str(task) for task in np.unique(rounds.tasks)]
    lines = []
    for task in [*tasks, OVERALL]:
        chosen = np.ones(len(rounds), dtype=np.bool_) if task == OVERALL else rounds.tasks == task
        part = rounds.part(chosen)
        for name, policy in policies.items():
            lines.append(_line(part, task, name, policy(part, chosen), latency.target_ms))
    return lines


Policy = Callable[[Rounds, Bools], Schedules]


def _policies(rounds: Rounds, artifact: str | None, settings: Settings) -> dict[str, Policy]:
    """Return policies by name: given some of the rounds, and which they are, each gives their schedules."""
    found: dict[str, Policy] = {
        "never": lambda part, chosen: always(part, 2**part.steps),
        "always": lambda part, chosen: always(part, 2 ** (part.steps + 1) - 1),
        "best schedule, in hindsight": lambda part, chosen: always(part, int(np.nanargmax(part.rates()))),
    }
    if artifact is not None:
        margins = {"value-planner": planner_margins(load_planner(artifact), rounds)}
        for name, network in load_artifact(artifact, settings).variants.items():
            label = "learned scheduler" if name == "full" else f"learned scheduler, {name}"
            margins[label] = network_margins(network, rounds)
        for label, values in margins.items():
            found[label] = _known(rounds.outcome(decisions(values)))
    found["best of each round, in hindsight"] = lambda part, chosen: part.hindsight()
    return found


def _known(schedules: Schedules) -> Policy:
    return lambda part, chosen: schedules[chosen]


def _line(part: Rounds, task: str, name: str, schedules: Schedules, target_ms: float) -> dict[str, Any]:
    rows = np.flatnonzero(part.visited(schedules))
    known: Sequence[int] = np.unique(schedules).tolist()
    return {
        "task": task,
        "policy": name,
        "schedule": bits_of(known[0]) if len(known) == 1 else None,
        "tokens_per_s": 1e3 * part.rate(schedules) / target_ms,
        "committed": float(part.committed[rows, schedules[rows]].mean()),
        "calls": calls_a_round(part, schedules),
        "gap": gap(part, schedules),
        "rounds": len(rows),
    }


def oracle_table(lines: Sequence[dict[str, Any]]) -> str:
    """Return the lines as tables for the terminal: tokens a second by task, then what each policy does overall."""
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    policies = list(dict.fromkeys(line["policy"] for line in lines))
    found = {(line["task"], line["policy"]): line for line in lines}
    speeds = [[policy, *(f"{found[task, policy]['tokens_per_s']:.2f}" for task in tasks)] for policy in policies]
    overall = [found[OVERALL, policy] for policy in policies]
    habits = [
        [line["policy"], f"{line['committed']:.3f}", f"{line['calls']:.2f}", f"{line['gap']:.3f}"] for line in overall
    ]
    schedules = [
        f"{task} {line['schedule']}" for task in tasks if (line := found[task, policies[2]])["schedule"] is not None
    ]
    return "\n".join(
        [
            "Tokens a second, modelled:",
            tabulate(speeds, headers=["policy", *tasks], disable_numparse=True),
            "",
            "Overall, along each policy's own path:",
            tabulate(habits, headers=["policy", "committed a round", "calls a round", "gap"], disable_numparse=True),
            "",
            f"Best schedules in hindsight: {', '.join(schedules)}.",
            "gap: verifications' time that a round loses to the best schedule there.",
        ]
    )
