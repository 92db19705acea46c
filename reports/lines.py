"""Rows to lines: everything a report says, once. Tables, CSV and JSON are views of these lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from harness.errors import UserError
from harness.results import Row
from reports.manifest import RunFacts
from reports.pairing import BASELINE, Pairing, is_rated, pair_with_baseline, turns_asked
from reports.statistics import (
    MIN_PROMPTS_INTERVAL,
    MIN_PROMPTS_TEST,
    bootstrap_interval,
    geometric_mean,
    holm,
    prompt_effect,
    sign_flip_p,
    total_time_ratio,
)

OVERALL = "overall"
SPANS = ("small", "middle", "scheduler", "verify", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
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
    n: int
    """Prompts compared: answered and rated in the method and in the baseline of the same block."""
    dropped: int
    """Prompts asked that could not be compared."""
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
    """A: accepted draft tokens per round; null for outside peers."""
    tokens_per_round: float | None
    """τ: committed tokens per round; for outside peers timed tokens per decode forward."""
    tokens_per_s: float | None
    """Median over prompts of timed tokens per decode second: context, never compared across machines."""
    calls_per_round: float | None
    """Middle steps per round; null for outside peers."""
    tokens_per_call: float | None
    """Tokens that the neural drafter evaluated per middle step; null where it took none."""
    p: float | None
    """Raw p-value of a paired sign-flip test; null for the baseline and below 6 prompts."""
    p_holm: float | None
    """The same, Holm-adjusted over all lines of this clock."""
    small_pct: float | None
    """Share of decode time in the look-up drafter, in percent; null for outside peers."""
    middle_pct: float | None
    """Share in the neural drafter."""
    scheduler_pct: float | None
    """Share in the scheduler."""
    verify_pct: float | None
    """Share in verification."""
    other_pct: float | None
    """Share in everything else."""
    identical: int
    """Rows whose tokens equal the baseline's."""
    tie: int
    """Rows that part from it at an exact tie."""
    numeric: int
    """Rows that part from it within rounding."""
    different: int
    """Rows that part from it otherwise: a bug."""
    unverified: int
    """Rows that nobody could verify."""
    failed: int
    """Rows that failed; they give no number."""
    marked: int
    """Answered rows that were timed under a disturbance."""
    unrated: int
    """Answered rows without a rate: no timed token, or no positive time."""
    notes: tuple[str, ...]
    """What a reader must know about missing values."""


def summarise(rows: Sequence[Row], facts: RunFacts | None = None) -> list[Line]:
    """Return the lines of a report, per clock and pair, tasks alphabetical and then overall.

    Methods stand in the order of the configuration where the manifest has it, else alphabetical,
    the baseline first. The order of the rows does not matter. Rows of different clocks never meet.

    Args:
        rows: last attempts.
        facts: what the manifest adds.

    Raises:
        UserError: no row answered, or none of the baseline did.
    """
    facts = facts or RunFacts()
    if not any(row.status == "ok" for row in rows):
        raise UserError("rows: none answered, every row failed; see their `error`, mend the cause and run again")
    if not any(row.status == "ok" and row.method == BASELINE for row in rows):
        raise UserError(f"rows: no answer of the baseline `{BASELINE}`, so no speedup; run with it among the methods")
    groups: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.clock, row.pair].append(row)
    by_clock: defaultdict[str, list[Line]] = defaultdict(list)
    for (clock, _), group in sorted(groups.items()):
        by_clock[clock] += _group_lines(group, facts)
    return [line for lines in by_clock.values() for line in _adjust(lines)]


def timing_label(clock: str) -> str:
    """Return how a clock's times came about: `measured`, or `modelled (<clock>)`."""
    return "measured" if clock == "wall" else f"modelled ({clock})"


def _group_lines(rows: list[Row], facts: RunFacts) -> list[Line]:
    tasks = sorted({row.task for row in rows})
    scopes = [(_task_label([task], facts, task), [row for row in rows if row.task == task]) for task in tasks]
    if len(tasks) > 1:
        scopes.append((_task_label(tasks, facts, OVERALL), rows))
    lines = []
    for label, scope in scopes:
        methods = sorted({row.method for row in scope}, key=lambda name: _method_place(name, facts))
        lines += [_line(label, scope, method) for method in methods]
    return lines


def _task_label(tasks: Sequence[str], facts: RunFacts, name: str) -> str:
    embedded = facts.embedded.intersection(tasks)
    if not embedded:
        return name
    return f"{name} (embedded)" if len(embedded) == len(tasks) else f"{name} (partly embedded)"


def _method_place(name: str, facts: RunFacts) -> tuple[bool, int, str]:
    place = facts.methods.index(name) if name in facts.methods else len(facts.methods)
    return name != BASELINE, place, name


def _line(label: str, scope: list[Row], method: str) -> Line:
    baseline = [row for row in scope if row.method == BASELINE]
    own = [row for row in scope if row.method == method]
    pairings = pair_with_baseline(baseline, own, turns_asked(scope))
    answered = [row for row in own if row.status == "ok"]
    verdicts = Counter(row.verdict or "unverified" for row in answered)
    asked = {(row.task, row.question_id) for row in (*baseline, *own)}
    line = Line(
        clock=scope[0].clock,
        timing=timing_label(scope[0].clock),
        pair=scope[0].pair,
        task=label,
        method=method,
        n=len(pairings),
        dropped=len(asked) - len(pairings),
        **_effects(pairings, is_baseline=method == BASELINE),
        **_rates([row for pairing in pairings for answers in pairing.method for row in answers.turns]),
        identical=verdicts["identical"],
        tie=verdicts["tie"],
        numeric=verdicts["numeric"],
        different=verdicts["different"],
        unverified=verdicts["unverified"],
        failed=len(own) - len(answered),
        marked=sum(bool(row.marks) for row in answered),
        unrated=sum(not is_rated(row) for row in answered),
        p_holm=None,
        notes=(),
    )
    return replace(line, notes=_notes(line))


def _effects(pairings: list[Pairing], *, is_baseline: bool) -> dict[str, float | None]:
    names = ("speedup", "ci_low", "ci_high", "total_ratio", "e2e_ratio", "tokens_per_s", "p")
    if not pairings:
        return dict.fromkeys(names)
    effects = [prompt_effect(pairing) for pairing in pairings]
    strata: defaultdict[str, list[float]] = defaultdict(list)
    for effect in effects:
        strata[effect.prompt[0]].append(effect.log_speedup)
    logs = [effect.log_speedup for effect in effects]
    low, high = (None if is_baseline else bootstrap_interval(strata)) or (None, None)
    return {
        "speedup": geometric_mean(logs),
        "ci_low": low,
        "ci_high": high,
        "total_ratio": total_time_ratio(pairings),
        "e2e_ratio": geometric_mean([effect.log_e2e for effect in effects]),
        "tokens_per_s": median(effect.tokens_per_s for effect in effects),
        "p": None if is_baseline else sign_flip_p(logs),
    }


def _rates(rows: list[Row]) -> dict[str, float | None]:
    rounds = [row.rounds for row in rows if row.rounds is not None]
    ours = len(rounds) == len(rows)
    number = sum(map(len, rounds)) if ours else 0
    forwards = [row.decode_forwards for row in rows if row.decode_forwards is not None]
    steps = number if ours else sum(forwards) if len(forwards) == len(rows) else 0
    accepted = sum(one.accepted for row in rounds for one in row)
    return {
        "accepted_per_round": accepted / number if number else None,
        "tokens_per_round": sum(row.timed_tokens for row in rows) / steps if steps else None,
        **_calls(rows),
        **_shares(rows),
    }


def _calls(rows: Sequence[Row]) -> dict[str, float | None]:
    rounds = [one for row in rows for one in row.rounds or []]
    calls = sum(sum(one.schedule or []) for one in rounds)
    tokens = sum(forward.tokens for one in rounds for forward in one.forwards if forward.role == "middle")
    return {
        "calls_per_round": calls / len(rounds) if rounds and all(row.rounds is not None for row in rows) else None,
        "tokens_per_call": tokens / calls if calls else None,
    }


def _shares(rows: list[Row]) -> dict[str, float | None]:
    spans = [row.spans for row in rows if row.spans is not None]
    if not rows or len(spans) < len(rows):
        return {f"{part}_pct": None for part in SPANS}
    whole = sum(row.decode_s or 0.0 for row in rows)
    return {f"{part}_pct": 100.0 * sum(getattr(span, f"{part}_s") for span in spans) / whole for part in SPANS}


def _notes(line: Line) -> tuple[str, ...]:
    notes = []
    if line.dropped:
        notes.append(f"prompts not answered by both the method and the baseline, left out: {line.dropped}")
    if line.unrated:
        notes.append(f"rows without a rate (no timed token or no positive time), left out: {line.unrated}")
    if line.method != BASELINE and line.n < MIN_PROMPTS_TEST:
        notes.append(f"fewer than {MIN_PROMPTS_TEST} prompts: no p-value")
    if line.method != BASELINE and line.n < MIN_PROMPTS_INTERVAL:
        notes.append(f"fewer than {MIN_PROMPTS_INTERVAL} prompts: no interval")
    return tuple(notes)


def _adjust(lines: list[Line]) -> list[Line]:
    raw = [line.p for line in lines if line.p is not None]
    adjusted = iter(holm(raw))
    return [line if line.p is None else replace(line, p_holm=next(adjusted)) for line in lines]
