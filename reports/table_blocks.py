"""Cells of the tables for people, whatever their markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.records.verdicts import COUNTED, VERDICTS
from reports.contrasts import Contrast
from reports.decomposition import FACTORS, Factor
from reports.pairing import BASELINE
from reports.ranks import Ranking
from reports.rates import SPANS
from reports.summary import SummaryLine

EMPTY = "–"
HEADERS = (
    "method",
    "speedup [95% CI]",
    "total",
    "e2e",
    "A",
    "τ",
    "tok/s",
    "p (Holm)",
    "verdicts",
    "fail",
    "mark",
    "n",
)
SHARE_HEADERS = ("method", *(f"{part} %" for part in SPANS), "calls", "tokens a call", "n")
CONTRAST_HEADERS = ("method", "against", "decode speedup [95% CI]", "p (Holm)", "n")
FACTOR_HEADERS = ("method", "speedup", *(f"{name} [95% CI]" for name in FACTORS))
LEGEND = (
    f"speedup: geometric mean over prompts of decode time per committed token, {BASELINE} ÷ method; "
    "95% paired bootstrap.",
    "total: the same of times and tokens summed first. e2e: the same as speedup, prefill included.",
    "A: accepted draft tokens per round. τ: committed tokens per round. "
    "tok/s: median over prompts, under the rows' clock.",
    "p: paired sign-flip test, in brackets Holm-adjusted over lines of one clock. Over 2,000 prompts: Student's t.",
    "verdicts: " + ", ".join(f"{VERDICTS[name].sign} {name}" for name in COUNTED) + "; ref: the baseline.",
    "fail: failed rows. mark: rows timed under a disturbance. n: prompts compared (/ asked, where some are left out).",
    "small, middle: drafting. verify: target forward, draws, commit. External baselines: τ is per forward.",
    "Method against method: the same, without the baseline; Holm over that table.",
    "calls: of the middle drafter, per round. tokens a call: what it evaluated each time.",
    "step: share of rounds that called the middle drafter there. by small, by middle: who was the first to propose the",
    "accepted draft tokens.",
    "acceptance: tokens per round, over the baseline's. width: what its wider verification took. drafting: then both",
    "drafters and the scheduler. overhead: then the rest. Factors of the speedup: the four multiply to it.",
)


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    title: str
    headers: tuple[str, ...]
    body: list[list[str]]
    notes: list[str]
    """What a reader must know about missing values, each with the methods it holds for."""


def blocks(lines: Sequence[SummaryLine], contrasts: Sequence[Contrast], *, wide: bool = False) -> Iterable[Table]:
    """Yield the tables of a report: one a task, and up to four more on the last scope of each pair.

    Args:
        lines: the report's summary.
        contrasts: methods against each other.
        wide: with the columns that a terminal has no room for.
    """
    for (timing, pair), of_pair in groupby(lines, key=lambda line: (line.timing, line.pair)):
        scopes = [list(block) for _, block in groupby(of_pair, key=lambda line: line.task)]
        titles = [f"{block[0].task} · pair {pair} · {timing}" for block in scopes]
        for title, block in zip(titles, scopes, strict=True):
            body = [[*_cells(line), *([number(line.rank_biserial, "+.2f")] if wide else [])] for line in block]
            yield Table(title, (*HEADERS, *(["r"] if wide else [])), body, _notes(block))
        against = [_contrast_cells(one) for one in contrasts if (one.timing, one.pair) == (timing, pair)]
        if against:
            yield Table(f"Method against method: {titles[-1]}", CONTRAST_HEADERS, against, [])
        shares = [_share_cells(line) for line in scopes[-1]]
        yield Table(f"Where decode time went: {titles[-1]}", SHARE_HEADERS, shares, [])
        scheduled = [line for line in scopes[-1] if line.call_rates]
        if scheduled:
            yield _schedule_block(titles[-1], scheduled)
        own = [(line.method, number(line.speedup, ".2f"), line.factors) for line in scopes[-1]]
        explained = [[method, speedup, *map(_factor, factors)] for method, speedup, factors in own if factors]
        if explained:
            yield Table(f"What made the speedup: {titles[-1]}", FACTOR_HEADERS, explained, [])


def _cells(line: SummaryLine) -> list[str]:
    return [
        line.method,
        _speedup(line),
        number(line.total_ratio, ".2f"),
        number(line.e2e_ratio, ".2f"),
        number(line.accepted_per_round, ".2f"),
        number(line.tokens_per_round, ".2f"),
        number(line.tokens_per_s, ".1f"),
        EMPTY if line.p is None else f"{p_value(line.p)} ({p_value(line.p_holm)})",
        _verdicts(line),
        str(line.failed),
        str(line.marked),
        _n(line),
    ]


def _share_cells(line: SummaryLine) -> list[str]:
    shares = (line.small_pct, line.middle_pct, line.scheduler_pct, line.verify_pct, line.other_pct)
    calls = (number(line.calls_per_round, ".2f"), number(line.tokens_per_call, ".1f"))
    return [line.method, *(number(share, ".1f") for share in shares), *calls, _n(line)]


def _schedule_block(title: str, lines: Sequence[SummaryLine]) -> Table:
    steps = max(len(line.call_rates or ()) for line in lines)
    body = []
    for line in lines:
        rates = [number(rate, ".2f") for rate in line.call_rates or ()]
        middle = line.by_middle_pct
        small = None if middle is None else 100.0 - middle
        rates += [EMPTY] * (steps - len(rates))
        body.append([line.method, *rates, number(small, ".1f"), number(middle, ".1f")])
    headers = ("method", *(f"step {step}" for step in range(1, steps + 1)), "by small %", "by middle %")
    return Table(f"Who drafted: {title}", headers, body, [])


def _n(line: SummaryLine) -> str:
    """Return the prompts compared, and of how many where some were left out."""
    return f"{line.n}/{line.n + line.dropped}" if line.dropped else str(line.n)


def _speedup(line: SummaryLine) -> str:
    value = number(line.speedup, ".2f")
    return value if line.ci_low is None else f"{value} [{line.ci_low:.2f}, {line.ci_high:.2f}]"


def _contrast_cells(one: Contrast) -> list[str]:
    ratio = f"{one.ratio:.3f}"
    interval = "" if one.ci_low is None else f" [{one.ci_low:.3f}, {one.ci_high:.3f}]"
    p = EMPTY if one.p is None else f"{p_value(one.p)} ({p_value(one.p_holm)})"
    return [one.method, one.against, ratio + interval, p, str(one.n)]


def _factor(factor: Factor) -> str:
    value = f"{factor.value:.3f}"
    return value if factor.ci_low is None else f"{value} [{factor.ci_low:.3f}, {factor.ci_high:.3f}]"


def number(value: float | None, spec: str) -> str:
    """Return a number as a cell, a missing one as a dash."""
    return EMPTY if value is None else format(value, spec)


def p_value(value: float | None) -> str:
    """Return a p-value as a cell, without its leading zero."""
    if value is None:
        return EMPTY
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def _verdicts(line: SummaryLine) -> str:
    if line.method == BASELINE:
        return "ref"
    return " ".join(f"{count}{VERDICTS[name].sign}" for name, count in line.verdicts.items() if count) or EMPTY


def _notes(block: Sequence[SummaryLine]) -> list[str]:
    """Return one line a note, naming its methods."""
    methods: dict[str, list[str]] = {}
    for line in block:
        for note in line.notes:
            methods.setdefault(note, []).append(line.method)
    return [f"Note: {note} ({', '.join(names)})" for note, names in methods.items()]


WIDE_LEGEND = ("r: matched-pairs rank-biserial correlation, from -1 (every prompt loses) to 1 (every prompt gains).",)


def ranking_text(ranking: Ranking) -> str:
    """Return a ranking in one line."""
    ranks = ", ".join(f"{method} {rank:.1f}" for method, rank in ranking.mean_ranks.items())
    apart = ", ".join(f"{one} from {other}" for one, other in ranking.apart) or "none"
    return (
        f"Mean ranks over {ranking.tasks} tasks: {ranks}. Friedman p {p_value(ranking.friedman_p)}; "
        f"Nemenyi at 5% tells apart: {apart}. {ranking.note[0].upper()}{ranking.note[1:]}."
    )
