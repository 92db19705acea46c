"""The summary lines of a report, of which tables, CSV and JSON are views."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

from foundation.errors import UserError
from harness.records.verdicts import COUNTED, Verdict
from reports.decomposition import Factor, decompose
from reports.pairing import BASELINE, Pairing, pair_with_baseline, turns_of
from reports.rates import pooled_rates, tokens_per_round
from reports.repetition import CRITERION
from reports.row_summary import Tally
from reports.run_facts import RunFacts
from reports.statistics import (
    MIN_PROMPTS_INTERVAL,
    MIN_PROMPTS_TEST,
    PromptEffect,
    benjamini_hochberg,
    bootstrap_interval,
    geometric_mean,
    holm,
    prompt_effect,
    rank_biserial,
    sign_flip_p,
    total_time_ratio,
)

OVERALL = "overall"
REMEMBERS = "keeps what it learnt from earlier questions (memory: run); its figures depend on the order of questions"

Compared = tuple[Pairing, PromptEffect]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryLine:
    """One method on one task (or overall), of one pair and one clock.

    Every rate comes from the `n` compared prompts; the counts come from all last attempts.
    """

    clock: str
    """The rows' clock."""
    timing: str
    """`measured`, or `modelled (<clock>)`: derived from the rows' clock."""
    pair: str
    """Name of the model pair."""
    task: str
    """Name of the task, embedded questions labelled; or `overall`."""
    method: str
    """Name of the method."""
    engine: str
    """What ran the target's forwards."""
    baseline: str
    """The method that its speedup is over: plain decoding by the same engine."""
    n: int
    """Prompts compared: answered and rated in the method and in the baseline of the same block."""
    dropped: int
    """Prompts that could not be compared."""
    missing: int
    """Questions that the manifest names and no row knows of: the run is unfinished, or its file was cut."""
    speedup: float | None
    """Geometric mean over prompts of the decode speedup."""
    ci_low: float | None
    """Lower end of its 95% bootstrap interval; null for the baseline and below 2 prompts."""
    ci_high: float | None
    """Upper end."""
    total_ratio: float | None
    """Pooled decode time per token, baseline over method."""
    e2e_ratio: float | None
    """Geometric mean over prompts of the end-to-end speedup per committed token."""
    accepted_per_round: float | None
    """A: accepted draft tokens per round; null for external baselines."""
    tokens_per_round: float | None
    """τ: committed tokens per round, pooled over prompts; for external baselines timed tokens per decode forward."""
    tokens_per_round_by_prompt: float | None
    """Mean over prompts of each prompt's own τ: long answers weigh no more than short ones."""
    tokens_per_s: float | None
    """Median over prompts of timed tokens per decode second: context, never compared across machines."""
    calls_per_round: float | None
    """Middle steps per round; null for external baselines."""
    tokens_per_call: float | None
    """Tokens that the neural drafter evaluated per middle step; null where it took none."""
    call_rates: tuple[float, ...] | None
    """For each drafting step, the share of rounds in which the middle drafter was called there (Figure 4)."""
    by_middle_pct: float | None
    """Share of accepted draft tokens that the middle drafter was the first to propose, in percent."""
    p: float | None
    """Raw p-value of a paired sign-flip test; null for the baseline and below 6 prompts."""
    p_holm: float | None
    """The same, Holm-adjusted over all lines of this clock: for claims."""
    p_bh: float | None
    """The same, adjusted by Benjamini and Hochberg: for exploring a grid."""
    rank_biserial: float | None
    """Matched-pairs rank-biserial correlation, from -1 (every prompt loses) to 1; null below 6 prompts."""
    small_pct: float | None
    """Share of decode time in the look-up drafter, in percent; null for external baselines."""
    middle_pct: float | None
    """Share in the neural drafter."""
    scheduler_pct: float | None
    """Share in the scheduler."""
    verify_pct: float | None
    """Share in verification."""
    other_pct: float | None
    """Share in everything else."""
    verdicts: dict[Verdict, int]
    """Answered rows of each verdict; CSV and JSON have a column for each."""
    failed: int
    """Rows that failed; they give no number."""
    marked: int
    """Answered rows that were timed under a disturbance."""
    unrated: int
    """Answered rows without a rate: no timed token, no possible time, or numbers that contradict each other."""
    repetition: int
    """Answered rows that end in a cycle."""
    n_without_repetition: int
    """Prompts compared of which no answer ends in a cycle, the baseline's included."""
    speedup_without_repetition: float | None
    """The speedup on those alone."""
    factors: tuple[Factor, ...] | None
    """Factors of the speedup, in the widest scope of a clock and pair; null elsewhere and for external baselines."""
    notes: tuple[str, ...]
    """What a reader must know about missing values."""

    @property
    def is_baseline(self) -> bool:
        """Whether it is what its engine's other methods are compared with."""
        return self.method == self.baseline

    def flat(self) -> dict[str, Any]:
        """Return its values by column of CSV and JSON, the count of each verdict as one."""
        columns: dict[str, Any] = {}
        for name, value in asdict(self).items():
            columns |= value if name == "verdicts" else {name: value}
        return columns


Comparisons = dict[tuple[str, str], dict[str, list[Compared]]]
"""Per clock and pair, each method's prompts beside the baseline's."""


def by_clock_and_pair(rows: Sequence[Tally]) -> dict[tuple[str, str], list[Tally]]:
    """Return rows by clock and pair, in that order; rows of different ones never meet."""
    groups: defaultdict[tuple[str, str], list[Tally]] = defaultdict(list)
    for row in rows:
        groups[row.clock, row.pair].append(row)
    return dict(sorted(groups.items()))


def comparisons(rows: Sequence[Tally]) -> Comparisons:
    """Return each method's effect on each prompt."""
    return {
        key: {
            method: [(pairing, prompt_effect(pairing)) for pairing in pairings]
            for method, pairings in pair_with_baseline(group, turns_of(group)).items()
        }
        for key, group in by_clock_and_pair(rows).items()
    }


def summarise(
    rows: Sequence[Tally], facts: RunFacts | None = None, compared: Comparisons | None = None
) -> list[SummaryLine]:
    """Return the lines of a report, per clock and pair, tasks alphabetical and then overall.

    Methods stand in the order of the configuration where the manifest has it, else alphabetical, the baseline first.

    Args:
        rows: the last attempts, from `reports.row_summary`, in any order.
        facts: what the manifest adds.
        compared: `comparisons` of the same rows, where already computed.
    """
    facts = facts or RunFacts()
    if not any(row.answered for row in rows):
        raise UserError("rows: none answered, every row failed; see their `error`, fix the cause and run again")
    if not any(row.answered and row.method == BASELINE for row in rows):
        raise UserError(f"rows: no answer of the baseline `{BASELINE}`, so no speedup; run with it among the methods")
    compared = comparisons(rows) if compared is None else compared
    by_clock: defaultdict[str, list[SummaryLine]] = defaultdict(list)
    for key, group in by_clock_and_pair(rows).items():
        by_clock[key[0]] += _group_lines(group, facts, compared[key])
    return [line for lines in by_clock.values() for line in _adjust(lines)]


def timing_label(clock: str) -> str:
    """Return the origin of a clock's times: `measured`, or `modelled (<clock>)`."""
    return "measured" if clock == "wall" else f"modelled ({clock})"


def _group_lines(rows: list[Tally], facts: RunFacts, compared: dict[str, list[Compared]]) -> list[SummaryLine]:
    tasks = sorted({row.task for row in rows})
    scopes = [(task_label([task], facts, task), {task}) for task in tasks]
    planned = {*tasks, *facts.questions}
    if len(planned) > 1:
        scopes.append((task_label(tasks, facts, OVERALL), planned))
    lines = []
    for label, of_tasks in scopes:
        scope: defaultdict[str, list[Tally]] = defaultdict(list)
        for row in rows:
            if row.task in of_tasks:
                scope[row.method].append(row)
        missing = _missing(rows, facts, of_tasks)
        for method in sorted(scope, key=lambda name: method_place(name, facts)):
            own = [one for one in compared[method] if one[0].prompt[0] in of_tasks]
            line = _line(label, scope[method], scope[scope[method][0].baseline], own, missing)
            lines.append(replace(line, notes=(*line.notes, REMEMBERS)) if method in facts.remembering else line)
            if label == scopes[-1][0] and not line.is_baseline:
                lines[-1] = replace(lines[-1], factors=decompose([pairing for pairing, _ in own]))
    return lines


def _missing(rows: Sequence[Tally], facts: RunFacts, tasks: set[str]) -> int:
    present = Counter(task for task, _ in {(row.task, row.question_id) for row in rows})
    return sum(max(0, number - present[task]) for task, number in facts.questions.items() if task in tasks)


def task_label(tasks: Sequence[str], facts: RunFacts, name: str) -> str:
    """Return the label of some tasks in tables: a name, and whether their questions are embedded ones."""
    embedded = facts.embedded.intersection(tasks)
    if not embedded:
        return name
    return f"{name} (embedded)" if len(embedded) == len(tasks) else f"{name} (partly embedded)"


def method_place(name: str, facts: RunFacts) -> tuple[bool, int, str]:
    """Return a sorting key: the baseline, then the configuration's order, then the alphabet."""
    place = facts.methods.index(name) if name in facts.methods else len(facts.methods)
    return name != BASELINE, place, name


def _line(label: str, own: list[Tally], baseline: list[Tally], compared: list[Compared], missing: int) -> SummaryLine:
    method = own[0].method
    pairings = [pairing for pairing, _ in compared]
    answered = [row for row in own if row.answered]
    verdicts = Counter(row.verdict for row in answered)
    prompts = {(row.task, row.question_id) for row in (*baseline, *own)}
    taken = [tokens_per_round(_method_rows([pairing])) for pairing in pairings]
    known = [rate for rate in taken if rate is not None]
    plain = [effect.log_speedup for pairing, effect in compared if not pairing.repetitive]
    line = SummaryLine(
        clock=own[0].clock,
        timing=timing_label(own[0].clock),
        pair=own[0].pair,
        task=label,
        method=method,
        engine=own[0].engine,
        baseline=own[0].baseline,
        n=len(pairings),
        dropped=len(prompts) - len(pairings),
        missing=missing,
        **_effects(compared, is_baseline=own[0].is_baseline),
        **pooled_rates(_method_rows(pairings)),
        tokens_per_round_by_prompt=fmean(known) if known and len(known) == len(taken) else None,
        verdicts={verdict: verdicts[verdict] for verdict in COUNTED},
        failed=len(own) - len(answered),
        marked=sum(row.marked for row in answered),
        unrated=sum(not row.is_rated for row in answered),
        repetition=sum(row.repetitive for row in answered),
        n_without_repetition=len(plain),
        speedup_without_repetition=geometric_mean(plain) if plain else None,
        p_holm=None,
        p_bh=None,
        factors=None,
        notes=(),
    )
    return replace(line, notes=_notes(line, Counter(row.flaw for row in answered if row.flaw)))


def _method_rows(pairings: list[Pairing]) -> list[Tally]:
    return [row for pairing in pairings for answers in pairing.method for row in answers.turns]


def _effects(compared: list[Compared], *, is_baseline: bool) -> dict[str, Any]:
    names = ("speedup", "ci_low", "ci_high", "total_ratio", "e2e_ratio", "tokens_per_s", "p", "rank_biserial")
    if not compared:
        return dict.fromkeys(names)
    effects = [effect for _, effect in compared]
    strata: defaultdict[str, list[float]] = defaultdict(list)
    for effect in effects:
        strata[effect.prompt[0]].append(effect.log_speedup)
    logs = [effect.log_speedup for effect in effects]
    e2e = [effect.log_e2e for effect in effects if effect.log_e2e is not None]
    low, high = (None if is_baseline else bootstrap_interval(strata)) or (None, None)
    return {
        "speedup": geometric_mean(logs),
        "ci_low": low,
        "ci_high": high,
        "total_ratio": total_time_ratio([pairing for pairing, _ in compared]),
        "e2e_ratio": geometric_mean(e2e) if len(e2e) == len(effects) else None,
        "tokens_per_s": median(effect.tokens_per_s for effect in effects),
        "p": None if is_baseline else sign_flip_p(logs),
        "rank_biserial": None if is_baseline else rank_biserial(logs),
    }


def _notes(line: SummaryLine, flaws: Counter[str]) -> tuple[str, ...]:
    notes = []
    if line.repetition or line.n_without_repetition < line.n:
        notes.append(_repetition_note(line))
    if line.missing:
        notes.append(f"questions of the manifest without a row, the run unfinished or its file cut: {line.missing}")
    if not line.n and not line.is_baseline:
        notes.append(f"no answer of its baseline `{line.baseline}` to compare with; run with it among the methods")
    if line.dropped:
        notes.append(f"prompts not answered by both the method and the baseline, left out: {line.dropped}")
    if line.unrated:
        why = ", ".join(f"{flaw}: {count}" for flaw, count in sorted(flaws.items()))
        notes.append(f"rows without a rate, left out: {line.unrated} ({why})")
    if not line.is_baseline and line.n < MIN_PROMPTS_TEST:
        notes.append(f"fewer than {MIN_PROMPTS_TEST} prompts: no p-value")
    if not line.is_baseline and line.n < MIN_PROMPTS_INTERVAL:
        notes.append(f"fewer than {MIN_PROMPTS_INTERVAL} prompts: no interval")
    elif not line.is_baseline and line.n < MIN_PROMPTS_TEST:
        notes.append(f"fewer than {MIN_PROMPTS_TEST} prompts: the interval covers less than 95%")
    return tuple(notes)


def _repetition_note(line: SummaryLine) -> str:
    note = f"answers that {CRITERION} (mark repetition): {line.repetition}"
    if line.is_baseline or line.speedup is None:
        return note
    if line.speedup_without_repetition is None:
        return f"{note}; speedup {line.speedup:.2f}, and no prompt without them"
    without = f"{line.speedup_without_repetition:.2f} without their prompts (n {line.n_without_repetition})"
    return f"{note}; speedup {line.speedup:.2f}, {without}"


def _adjust(lines: list[SummaryLine]) -> list[SummaryLine]:
    raw = [line.p for line in lines if line.p is not None]
    adjusted = iter(zip(holm(raw), benjamini_hochberg(raw), strict=True))
    whole = []
    for line in lines:
        p_holm, p_bh = (None, None) if line.p is None else next(adjusted)
        whole.append(replace(line, p_holm=p_holm, p_bh=p_bh))
    return whole
