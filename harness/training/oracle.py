"""`treegraft oracle`: every schedule of a run's rounds, the best in hindsight, and the gap of a fitted scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from foundation.errors import UserError
from foundation.plain_text import visible
from foundation.progress import Bar
from harness.training.baseline_policies import gap
from harness.training.bootstrap import Gain, gain, prompt_times
from harness.training.distillation import network_margins, planner_margins
from harness.training.fit_scheduler import caption_of, open_run
from harness.training.policy_evaluation import calls_a_round
from harness.training.policy_rollout import Bools, Rounds, Schedules, always, bits_of
from harness.training.q_values import decisions
from harness.training.settings import OracleSettings
from harness.training.trace_collection import Collector
from harness.training.trace_costs import Priced, priced_rounds
from methods.schedulers.artifact import Artifact, load_artifact, load_planner
from methods.settings import Settings

_LOG = logging.getLogger("treegraft")

_SEED = 0
OVERALL = "overall"
BEST_SCHEDULE = "best schedule, in hindsight"
PLANNER = "value-planner"


@dataclass(frozen=True, slots=True)
class Oracle:
    """Results of policies on a run's rounds."""

    caption: str
    """The cost model, latencies and acceptance behind the modelled numbers."""
    lines: list[dict[str, Any]]
    """One a policy and task."""


def oracle(run: Path, settings: OracleSettings, bar: Bar) -> Oracle:
    """Return one line a policy and task, modelled.

    A line holds `task`, `policy`, `schedule` (bits, if fixed), `tokens_per_s`, `committed` and `calls` a round, `gap`
    (verifications' time that a round loses to the best schedule there), and `rounds`, all along the policy's own path;
    and how much faster it is, as a share with its interval, than the faster of never and always calling
    (`over_endpoint`) and than the best single schedule of each task (`over_single`).

    Args:
        run: the folder of a run, whose baseline's greedy answers are traced.
        settings: flags of the command.
        bar: shows how far tracing is.

    Raises:
        UserError: unusable input.
    """
    profile, latency, recorded = open_run(run, settings.clock)
    collector = Collector(recorded, Path(settings.traces) if settings.traces else run / "traces")
    drafting = collector.spec.settings
    answers = collector.collect(bar)
    priced = priced_rounds(answers, profile, latency, drafting, settings.decision_ms)
    fitted = _artifact(settings.artifact, drafting, recorded.pair.name, settings.clock)
    if fitted is not None:
        _warn_of_seen(fitted, {answer.facts["question"] for answer in answers})
    policies = _policies(priced, fitted, drafting)
    tasks = priced.fixed.tasks
    singles = _best_singles(priced.fixed)
    lines = []
    for task in [*map(str, np.unique(tasks)), OVERALL]:
        chosen = np.ones(len(tasks), dtype=np.bool_) if task == OVERALL else tasks == task
        fixed = priced.fixed.part(chosen)
        endpoints = [prompt_times(fixed, always(fixed, one)) for one in (fixed.schedules[0], fixed.schedules[-1])]
        single = prompt_times(fixed, singles[chosen])
        for name, (rounds, policy) in policies.items():
            part = rounds.part(chosen)
            schedules = policy(part, chosen)
            times = prompt_times(part, schedules)
            line = _line(part, task, name, schedules, fixed, latency.target_ms)
            line["over_endpoint"] = _rounded(gain(times, endpoints, _SEED))
            line["over_single"] = _rounded(gain(times, [single], _SEED))
            lines.append(line)
    return Oracle(caption_of(profile, latency, recorded, drafting, settings.decision_ms), lines)


Policy = Callable[[Rounds, Bools], Schedules]


def _artifact(given: str | None, settings: Settings, pair: str, clock: str) -> tuple[str, Artifact] | None:
    """Return the scheduler given by name, or the pair's if it can be loaded with these settings."""
    name = given or settings.artifact
    if name is None:
        return None
    try:
        fitted = load_artifact(name, settings)
    except UserError as error:
        if given is not None:
            raise
        _LOG.warning("%s; going on without the pair's scheduler", error)
        return None
    difference = fitted.fitted_to.difference(pair, clock, settings)
    if difference is not None:
        _LOG.warning("artifact %s was fitted %s", name, difference)
    return name, fitted


def _warn_of_seen(fitted: tuple[str, Artifact], questions: set[str]) -> None:
    name, artifact = fitted
    fitted_to = artifact.card.get("questions_seen")
    seen = sum(question in fitted_to for question in questions) if isinstance(fitted_to, list) else 0
    if seen:
        _LOG.warning("artifact %s was fitted to %d of these %d questions", name, seen, len(questions))


def _best_singles(rounds: Rounds) -> Schedules:
    """Return for each round the fixed schedule that is the fastest on its whole task."""
    schedules = np.empty(len(rounds), dtype=np.int64)
    for task in np.unique(rounds.tasks):
        chosen = rounds.tasks == task
        schedules[chosen] = _best_single(rounds.part(chosen))
    return schedules


def _best_single(rounds: Rounds) -> int:
    return int(np.nanargmax(rounds.rates()))


def _policies(
    priced: Priced, fitted: tuple[str, Artifact] | None, settings: Settings
) -> dict[str, tuple[Rounds, Policy]]:
    """Return policies by name, each with the rounds at its costs.

    A policy maps some of the rounds, and the mask that chose them, to their schedules.
    """
    fixed, rounds = priced.fixed, priced.learned
    policies: dict[str, tuple[Rounds, Policy]] = {
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
            policies[label] = (rounds, _given(rounds.outcome(decisions(values))))
    unbeaten = fixed.without_catching_up()
    policies["best of each round, in hindsight"] = (unbeaten, lambda part, chosen: part.hindsight())
    return policies


def _rounded(gain: Gain) -> list[float | None]:
    return [round(one, 4) if isfinite(one) else None for one in (gain.value, gain.low, gain.high)]


def _given(schedules: Schedules) -> Policy:
    return lambda part, chosen: schedules[chosen]


def _line(part: Rounds, task: str, name: str, schedules: Schedules, fixed: Rounds, target_ms: float) -> dict[str, Any]:
    rows = np.flatnonzero(part.visited(schedules))
    distinct: Sequence[int] = np.unique(schedules).tolist()
    return {
        "task": task,
        "policy": name,
        "schedule": bits_of(distinct[0]) if len(distinct) == 1 else None,
        "tokens_per_s": 1e3 * part.rate(schedules) / target_ms,
        "committed": float(part.committed[rows, schedules[rows]].mean()),
        "calls": calls_a_round(part, schedules),
        "gap": gap(part, schedules, fixed),
        "rounds": len(rows),
    }


def oracle_table(found_out: Oracle) -> str:
    """Return the lines as tables for the terminal: tokens a second by task, then each policy's overall numbers."""
    lines = found_out.lines
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    policies = list(dict.fromkeys(line["policy"] for line in lines))
    by_place = {(line["task"], line["policy"]): line for line in lines}
    speeds = [[policy, *(f"{by_place[task, policy]['tokens_per_s']:.2f}" for task in tasks)] for policy in policies]
    overall = [
        [
            line["policy"],
            f"{line['committed']:.3f}",
            f"{line['calls']:.2f}",
            f"{line['gap']:.3f}",
            _share(line["over_endpoint"]),
            _share(line["over_single"]),
        ]
        for line in (by_place[OVERALL, policy] for policy in policies)
    ]
    headers = ["policy", "committed a round", "calls a round", "gap", "over better endpoint", "over best of each task"]
    best = {task: by_place[task, BEST_SCHEDULE]["schedule"] for task in tasks}
    schedules = [f"{visible(task)} {bits}" for task, bits in best.items() if bits is not None]
    return "\n".join(
        [
            found_out.caption,
            "",
            "Tokens a second:",
            tabulate(speeds, headers=["policy", *map(visible, tasks)], disable_numparse=True),
            "",
            "Overall, along each policy's own path:",
            tabulate(overall, headers=headers, disable_numparse=True),
            "",
            f"Best schedules in hindsight: {', '.join(schedules)}.",
            "gap: verifications' time that a round loses to the best schedule there.",
            "over: how much faster, with its 95% interval (bootstrap over prompts); better endpoint: never or always "
            "calling; best of each task: its best single schedule, in hindsight.",
            *([] if PLANNER in policies else ["The pair has no fitted scheduler; give one with --artifact."]),
        ]
    )


def _share(gain: Sequence[float | None]) -> str:
    value, low, high = ("-" if one is None else f"{100 * one:+.1f}" for one in gain)
    return f"{value}% [{low}, {high}]"
