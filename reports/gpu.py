"""Energy and state of the GPUs by method: joules per committed token, clocks, heat, throttling and sharing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median

from reports.columns import EMPTY, Column, Table, legend, table, value, with_interval
from reports.gpu_use import GpuUse
from reports.pairing import Answers, Pairing
from reports.row_summary import Tally
from reports.run_facts import RunFacts
from reports.statistics import bootstrap_interval, geometric_mean
from reports.summary import Comparisons, by_clock_and_pair, method_place, timing_label


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLine:
    """One method over all tasks of one clock and pair. Intervals are 95% bootstrap intervals, null below 2 prompts."""

    clock: str
    """The rows' clock."""
    timing: str
    """`measured`, or `modelled (<clock>)`."""
    pair: str
    """Name of the model pair."""
    method: str
    """Name of the method."""
    n: int
    """Prompts compared: the method's answers and the baseline's of the same block have joules."""
    joules_per_token: float | None
    """Geometric mean over prompts: joules of the boards over the whole answer ÷ committed tokens."""
    ci_low: float | None
    """Lower end of its interval."""
    ci_high: float | None
    """Upper end."""
    saving: float | None
    """Geometric mean over prompts of the baseline's joules per token ÷ the method's: above 1 needs less."""
    saving_low: float | None
    """Lower end of its interval; null for the baseline."""
    saving_high: float | None
    """Upper end."""
    counted: int
    """Answered rows whose joules come from energy counters alone."""
    integrated: int
    """Answered rows whose joules come from power samples, in part at least."""
    lacking: int
    """Answered rows without joules."""
    watts: float | None
    """Median over answered rows of the mean power."""
    sm_mhz: float | None
    """Lowest clock of the multiprocessors in any answered row."""
    celsius: float | None
    """Highest temperature in any answered row."""
    throttled: int
    """Answered rows timed while a GPU was slowed down."""
    throttled_of: int
    """Answered rows with data on throttling."""
    shared: int
    """Answered rows timed while another process computed on a GPU."""
    shared_of: int
    """Answered rows with data on other processes."""


def gpu_lines(rows: Sequence[Tally], compared: Comparisons, facts: RunFacts) -> list[GpuLine]:
    """Return a line a method, in the order of the configuration, for each clock and pair with GPU telemetry."""
    lines = []
    for key, group in by_clock_and_pair(rows).items():
        if any(row.gpu is not None for row in group):
            for method in sorted({row.method for row in group}, key=lambda name: method_place(name, facts)):
                answered = [row for row in group if row.method == method and row.answered]
                lines.append(_line(key, method, answered, [pairing for pairing, _ in compared[key].get(method, [])]))
    return lines


def gpu_blocks(lines: Sequence[GpuLine]) -> Iterable[Table]:
    """Yield a table a clock and pair."""
    for (timing, pair), of_pair in groupby(lines, key=lambda line: (line.timing, line.pair)):
        yield table(f"Energy and state of the GPUs · pair {pair} · {timing}", GPU_COLUMNS, of_pair, [GPU_LEGEND])


def _line(key: tuple[str, str], method: str, answered: list[Tally], pairings: list[Pairing]) -> GpuLine:
    costs: defaultdict[str, list[float]] = defaultdict(list)
    savings: defaultdict[str, list[float]] = defaultdict(list)
    for pairing in pairings:
        both = [(_log_cost(b), _log_cost(m)) for b, m in zip(pairing.baseline, pairing.method, strict=True)]
        whole = [(b, m) for b, m in both if b is not None and m is not None]
        if whole:
            costs[pairing.prompt[0]].append(fmean(m for _, m in whole))
            savings[pairing.prompt[0]].append(fmean(b - m for b, m in whole))
    low, high = bootstrap_interval(costs) or (None, None)
    own_baseline = any(row.is_baseline for row in answered)
    saving_low, saving_high = (None if own_baseline else bootstrap_interval(savings)) or (None, None)
    uses = [row.gpu for row in answered if row.gpu is not None]
    counted = sum(use.counted for use in uses)
    integrated = sum(use.joules is not None for use in uses) - counted
    return GpuLine(
        clock=key[0],
        timing=timing_label(key[0]),
        pair=key[1],
        method=method,
        n=sum(map(len, costs.values())),
        joules_per_token=_mean(costs),
        ci_low=low,
        ci_high=high,
        saving=_mean(savings),
        saving_low=saving_low,
        saving_high=saving_high,
        counted=counted,
        integrated=integrated,
        lacking=len(answered) - counted - integrated,
        watts=_over(uses, "watts", median),
        sm_mhz=_over(uses, "sm_mhz", min),
        celsius=_over(uses, "celsius", max),
        throttled=sum(use.throttled is True for use in uses),
        throttled_of=sum(use.throttled is not None for use in uses),
        shared=sum(use.shared is True for use in uses),
        shared_of=sum(use.shared is not None for use in uses),
    )


def _log_cost(answers: Answers) -> float | None:
    """Return the logarithm of a conversation's joules per committed token, None where a turn has no joules."""
    joules = [row.gpu.joules for row in answers.turns if row.gpu is not None and row.gpu.joules is not None]
    return math.log(math.fsum(joules) / answers.committed) if len(joules) == len(answers.turns) else None


def _mean(by_task: dict[str, list[float]]) -> float | None:
    logs = [log for of_task in by_task.values() for log in of_task]
    return geometric_mean(logs) if logs else None


def _over(uses: Sequence[GpuUse], name: str, reduce: Callable[[list[float]], float]) -> float | None:
    values = [value for use in uses if (value := getattr(use, name)) is not None]
    return reduce(values) if values else None


def _share(count: int, known: int) -> str:
    return f"{count}/{known}" if known else EMPTY


GPU_COLUMNS: tuple[Column[GpuLine], ...] = (
    Column("method", lambda line: line.method),
    Column(
        "J/token [95% CI]",
        lambda line: with_interval(line.joules_per_token, line.ci_low, line.ci_high, ".3g"),
        "J/token: joules of whole boards, idle share and prefill included, per committed token; geometric mean of "
        "prompts.",
    ),
    Column(
        "saving [95% CI]",
        lambda line: with_interval(line.saving, line.saving_low, line.saving_high, ".2f"),
        "saving: J/token of the engine's baseline ÷ the method's.",
    ),
    Column(
        "counter",
        lambda line: f"{line.counted}/{line.counted + line.integrated}",
        "counter: answers whose joules are from energy counters / all with.",
    ),
    value("W", "watts", ".0f", "W: median of mean power."),
    value("MHz", "sm_mhz", ".0f", "MHz: lowest clock."),
    value("°C", "celsius", ".0f", "°C: highest temperature."),
    Column(
        "slowed",
        lambda line: _share(line.throttled, line.throttled_of),
        "slowed: answers timed while a GPU was throttled / that tell.",
    ),
    Column(
        "shared",
        lambda line: _share(line.shared, line.shared_of),
        "shared: while another process computed on one / that tell.",
    ),
    value("lack", "lacking", "d", "lack: answers without joules."),
    value("n", "n", "d"),
)
(GPU_LEGEND,) = legend(GPU_COLUMNS)
