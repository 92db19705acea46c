"""Ranks of methods across tasks: description beside the tables, never a claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from math import comb

from reports.pairing import BASELINE
from reports.statistics import rank_over_tasks
from reports.summary import OVERALL, SummaryLine

LEVEL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The methods of one clock and pair, ranked by their speedup in each task."""

    clock: str
    """The rows' clock."""
    pair: str
    """Name of the model pair."""
    tasks: int
    """Tasks in which every one of the methods has a speedup."""
    mean_ranks: dict[str, float]
    """Mean rank of each method, best first; 1 is the fastest in every task."""
    friedman_p: float
    """Friedman's p-value that all rank alike."""
    apart: list[tuple[str, str]]
    """Methods that Nemenyi's test tells apart at 5%, the faster first."""
    note: str
    """The limits of so few tasks."""


def rank_methods(lines: Sequence[SummaryLine]) -> list[Ranking]:
    """Return a ranking per clock and pair with at least 3 methods, the baseline among them, and 2 tasks.

    Methods of other engines are left out: their speedups are over another baseline.
    """
    rankings = []
    for (clock, pair), group in groupby(lines, key=lambda line: (line.clock, line.pair)):
        of_tasks = [line for line in group if _is_ranked(line)]
        methods = list(dict.fromkeys(line.method for line in of_tasks))
        tasks: dict[str, dict[str, float]] = {}
        for line in of_tasks:
            tasks.setdefault(line.task, {})[line.method] = line.speedup or 0.0
        whole = [task for task in tasks.values() if len(task) == len(methods)]
        ranks = rank_over_tasks([[task[method] for method in methods] for task in whole])
        if ranks is None:
            continue
        mean_ranks = dict(sorted(zip(methods, ranks.mean_ranks, strict=True), key=lambda entry: entry[1]))
        place = {method: index for index, method in enumerate(methods)}
        p_values = {(a, b): ranks.nemenyi_p[place[a]][place[b]] for a, b in combinations(mean_ranks, 2)}
        rankings.append(
            Ranking(
                clock=clock,
                pair=pair,
                tasks=len(whole),
                mean_ranks=mean_ranks,
                friedman_p=ranks.friedman_p,
                apart=[two for two, p in p_values.items() if p < LEVEL],
                note=_power_note(len(whole), len(methods)),
            )
        )
    return rankings


def _is_ranked(line: SummaryLine) -> bool:
    return line.task.partition(" (")[0] != OVERALL and line.speedup is not None and line.baseline == BASELINE


def _power_note(tasks: int, methods: int) -> str:
    """Say whether a paired test over the tasks could ever separate two of the methods, Holm-adjusted."""
    smallest, pairs = 2.0 / 2**tasks, comb(methods, 2)
    needed = LEVEL / pairs
    if smallest <= needed:
        return "description only: tasks are few and not a sample"
    return (
        f"description only: over {tasks} tasks a paired test has no p below {smallest:.3f}, "
        f"and Holm over {pairs} pairs asks for {needed:.3f}"
    )
