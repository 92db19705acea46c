"""Reliability of methods' scores: expected calibration error and reliability diagrams of draft edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from harness.records.schema import BINS, Bin, EdgeTally, added, expected_error
from reports.columns import EMPTY, Table
from reports.row_summary import Tally
from reports.run_facts import RunFacts
from reports.summary import by_clock_and_pair, method_place, task_label, timing_label

FEWEST = 20
"""Edges below which a bin shows no share."""

Grouping = Literal["none", "origin", "task"]

HEADERS = ("method", "scored by", "edges", "error", *(f"{(place + 0.5) / BINS:.2f}" for place in range(BINS)))
RELIABILITY_LEGEND = (
    "Draft edges that were sent and whose parent was accepted. scored by: who proposed and scored them; both: proposed "
    "by the small drafter, scored by the middle one too. error: expected calibration error, the mean distance of "
    "believed and accepted shares over ten bins. Then the accepted share, by believed probability "
    f"({EMPTY}: fewer than {FEWEST} edges). Edges are sent for high scores, which lets their scores look too high."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityLine:
    """One method's edges, all or some of them."""

    clock: str
    """The rows' clock."""
    pair: str
    """Name of the model pair."""
    method: str
    """Name of the method."""
    by: Grouping
    """The grouping."""
    group: str
    """`all`, who scored them (`small`, `middle`, `both`), or a task's label."""
    edges: int
    """Edges that the target's text reached."""
    error: float
    """Expected calibration error."""
    bins: tuple[Bin, ...]
    """The diagram."""


def reliability_lines(rows: Sequence[Tally], facts: RunFacts) -> list[ReliabilityLine]:
    """Return lines of every method that scored edges: all of them, by origin, by task."""
    return [
        ReliabilityLine(
            clock=clock,
            pair=pair,
            method=method,
            by=by,
            group=group,
            edges=sum(one.edges for one in bins),
            error=expected_error(bins),
            bins=tuple(bins),
        )
        for (clock, pair), own in by_clock_and_pair(rows).items()
        for method in sorted({row.method for row in own}, key=lambda name: method_place(name, facts))
        for by, group, bins in _groups([row for row in own if row.method == method and row.is_rated], facts)
    ]


def _groups(rows: Sequence[Tally], facts: RunFacts) -> Iterable[tuple[Grouping, str, Sequence[Bin]]]:
    tallies = [(row.task, row.edges) for row in rows if row.edges]
    if not tallies:
        return
    by_origin = added(edges for _, edges in tallies)
    yield "none", "all", _merged(by_origin)
    for origin, bins in by_origin.items():
        yield "origin", origin, bins
    for task in sorted({task for task, _ in tallies}):
        yield "task", task_label([task], facts, task), _merged(added(edges for own, edges in tallies if own == task))


def _merged(tally: EdgeTally) -> Sequence[Bin]:
    (bins,) = added({"all": bins} for bins in tally.values()).values()
    return bins


def reliability_blocks(lines: Sequence[ReliabilityLine]) -> Iterable[Table]:
    """Yield two tables a clock and pair: reliability diagrams by origin, and errors by task."""
    for (clock, pair), group in groupby(lines, key=lambda line: (line.clock, line.pair)):
        own, title = list(group), f"pair {pair} · {timing_label(clock)}"
        body = [_diagram(line) for line in own if line.by != "task"]
        yield Table(f"Whether scores mean what they say: {title}", HEADERS, body, [RELIABILITY_LEGEND])
        tasks = sorted({line.group for line in own if line.by == "task"})
        if len(tasks) > 1:
            errors = {(line.method, line.group): f"{line.error:.3f}" for line in own if line.by == "task"}
            methods = dict.fromkeys(line.method for line in own)
            by_task = [[method, *(errors.get((method, task), EMPTY) for task in tasks)] for method in methods]
            yield Table(f"Error of scores by task: {title}", ("method", *tasks), by_task, [])


def _diagram(line: ReliabilityLine) -> list[str]:
    shares = [f"{one.accepted / one.edges:.2f}" if one.edges >= FEWEST else EMPTY for one in line.bins]
    return [line.method, line.group, str(line.edges), f"{line.error:.3f}", *shares]
