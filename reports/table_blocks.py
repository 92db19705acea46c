"""The tables of a report, column by column, whatever their markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from harness.records.verdicts import COUNTED, VERDICTS
from reports.columns import EMPTY, Column, Table, compared, legend, number, p_value, table, value, with_interval
from reports.contrasts import Contrast
from reports.decomposition import FACTORS
from reports.pairing import BASELINE
from reports.ranks import Ranking
from reports.rates import SPANS
from reports.summary import SummaryLine


def _p_values(line: SummaryLine | Contrast) -> str:
    return EMPTY if line.p is None else f"{p_value(line.p)} ({p_value(line.p_holm)})"


def _verdicts(line: SummaryLine) -> str:
    if line.method == BASELINE:
        return _REFERENCE.sign
    return " ".join(f"{count}{VERDICTS[name].sign}" for name, count in line.verdicts.items() if count) or EMPTY


def _step(place: int) -> Column[SummaryLine]:
    def cell(line: SummaryLine) -> str:
        rates = line.call_rates or ()
        return number(rates[place], ".2f") if place < len(rates) else EMPTY

    return Column(f"step {place + 1}", cell)


def _factor(place: int) -> Column[SummaryLine]:
    def cell(line: SummaryLine) -> str:
        factor = (line.factors or ())[place]
        return with_interval(factor.value, factor.ci_low, factor.ci_high, ".3f")

    return Column(f"{FACTORS[place]} [95% CI]", cell)


def _by_small(line: SummaryLine) -> str:
    return EMPTY if line.by_middle_pct is None else f"{100.0 - line.by_middle_pct:.1f}"


_REFERENCE = VERDICTS["reference"]
_SIGNS = ", ".join(f"{VERDICTS[name].sign} {name}" for name in COUNTED)
_SPEEDUP = "geometric mean over prompts of decode time per committed token, baseline ÷ method; 95% paired bootstrap."
_P = "paired sign-flip test, in brackets Holm-adjusted over lines of one clock. Over 2,000 prompts: Student's t."
_TAU_BY_PROMPT = "mean of the prompts' own τ, where τ sums tokens and rounds over prompts first.\n"
_R = "matched-pairs rank-biserial correlation, from -1 (every prompt loses) to 1 (every prompt gains)."

METHOD: Column[SummaryLine] = Column("method", lambda line: line.method)
ENGINE: Column[SummaryLine] = Column("engine", lambda line: line.engine)
N: Column[SummaryLine] = Column(
    "n", lambda line: compared(line.n, line.dropped), "n: prompts compared (/ asked, where some are left out).\n"
)
COLUMNS: tuple[Column[SummaryLine], ...] = (
    Column(
        "speedup [95% CI]",
        lambda line: with_interval(line.speedup, line.ci_low, line.ci_high, ".2f"),
        f"speedup: {_SPEEDUP}\n",
    ),
    value("total", "total_ratio", ".2f", "total: the same of times and tokens summed first."),
    value("e2e", "e2e_ratio", ".2f", "e2e: the same as speedup, prefill included.\n"),
    value("A", "accepted_per_round", ".2f", "A: accepted draft tokens per round."),
    value("τ", "tokens_per_round", ".2f", "τ: committed tokens per round."),
    value("tok/s", "tokens_per_s", ".1f", "tok/s: median over prompts, under the rows' clock.\n"),
    Column("p (Holm)", _p_values, f"p: {_P}\n"),
    Column("verdicts", _verdicts, f"verdicts: {_SIGNS}; {_REFERENCE.sign}: {_REFERENCE.meaning}.\n"),
    value("fail", "failed", "d", "fail: failed rows."),
    value("mark", "marked", "d", "mark: rows timed under a disturbance."),
    N,
)
WIDE_COLUMNS = (
    value("τ/prompt", "tokens_per_round_by_prompt", ".2f", f"τ/prompt: {_TAU_BY_PROMPT}"),
    value("r", "rank_biserial", "+.2f", f"r: {_R}"),
)
CONTRAST_COLUMNS: tuple[Column[Contrast], ...] = (
    Column("method", lambda one: one.method),
    Column("against", lambda one: one.against),
    Column("decode speedup [95% CI]", lambda one: with_interval(one.ratio, one.ci_low, one.ci_high, ".3f")),
    Column("p (Holm)", _p_values),
    value("n", "n", "d"),
)
CALL_COLUMNS = (
    value("calls", "calls_per_round", ".2f", "calls: of the middle drafter, per round."),
    value("tokens a call", "tokens_per_call", ".1f", "tokens a call: what it evaluated each time."),
)
SHARE_COLUMNS = (METHOD, *(value(f"{part} %", f"{part}_pct", ".1f") for part in SPANS), *CALL_COLUMNS, N)
ORIGIN_COLUMNS = (Column("by small %", _by_small), value("by middle %", "by_middle_pct", ".1f"))
FACTOR_COLUMNS = (METHOD, value("speedup", "speedup", ".2f"), *map(_factor, range(len(FACTORS))))
LEGEND = (
    *legend(COLUMNS),
    "engine: what runs the target; each has a baseline of its own, and two engines meet in tok/s alone.",
    "small, middle: drafting. verify: target forward, draws, commit. External baselines: τ is per forward.",
    "Method against method: the same, without the baseline; Holm over that table.",
    *legend(CALL_COLUMNS),
    "step: share of rounds that called the middle drafter there. by small, by middle: who was the first to propose the",
    "accepted draft tokens.",
    "acceptance: tokens per round, over the baseline's. width: what its wider verification took. drafting: then both",
    "drafters and the scheduler. overhead: then the rest. Factors of the speedup: the four multiply to it.",
)
WIDE_LEGEND = legend(WIDE_COLUMNS)


def blocks(lines: Sequence[SummaryLine], contrasts: Sequence[Contrast], *, wide: bool = False) -> Iterable[Table]:
    """Yield the tables of a report: one a task, and up to four more on the last scope of each pair.

    Args:
        lines: the report's summary.
        contrasts: methods against each other.
        wide: with the columns that a terminal has no room for.
    """
    engine = (ENGINE,) if len({line.engine for line in lines}) > 1 else ()
    columns = (METHOD, *engine, *COLUMNS, *(WIDE_COLUMNS if wide else ()))
    for (timing, pair), of_pair in groupby(lines, key=lambda line: (line.timing, line.pair)):
        scopes = [list(block) for _, block in groupby(of_pair, key=lambda line: line.task)]
        titles = [f"{block[0].task} · pair {pair} · {timing}" for block in scopes]
        for title, block in zip(titles, scopes, strict=True):
            yield table(title, columns, block, _notes(block))
        title, last = titles[-1], scopes[-1]
        against = [one for one in contrasts if (one.timing, one.pair) == (timing, pair)]
        if against:
            yield table(f"Method against method: {title}", CONTRAST_COLUMNS, against)
        yield table(f"Where decode time went: {title}", SHARE_COLUMNS, last)
        scheduled = [line for line in last if line.call_rates]
        if scheduled:
            steps = range(max(len(line.call_rates or ()) for line in scheduled))
            yield table(f"Who drafted: {title}", (METHOD, *map(_step, steps), *ORIGIN_COLUMNS), scheduled)
        explained = [line for line in last if line.factors]
        if explained:
            yield table(f"What made the speedup: {title}", FACTOR_COLUMNS, explained)


def _notes(block: Sequence[SummaryLine]) -> list[str]:
    """Return one line a note, naming its methods."""
    methods: dict[str, list[str]] = {}
    for line in block:
        for note in line.notes:
            methods.setdefault(note, []).append(line.method)
    return [f"Note: {note} ({', '.join(names)})" for note, names in methods.items()]


def ranking_text(ranking: Ranking) -> str:
    """Return a ranking in one line."""
    ranks = ", ".join(f"{method} {rank:.1f}" for method, rank in ranking.mean_ranks.items())
    apart = ", ".join(f"{one} from {other}" for one, other in ranking.apart) or "none"
    return (
        f"Mean ranks over {ranking.tasks} tasks: {ranks}. Friedman p {p_value(ranking.friedman_p)}; "
        f"Nemenyi at 5% tells apart: {apart}. {ranking.note[0].upper()}{ranking.note[1:]}."
    )
