"""One method in two runs: how its speedup moved, and the verdict."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from reports.pairing import Pairing
from reports.rates import pooled_rates
from reports.row_summary import Tally
from reports.row_validation import NOT_IDENTICAL
from reports.statistics import (
    MIN_PROMPTS_TEST,
    MOST_PROMPTS_NEEDED,
    bootstrap_interval,
    geometric_mean,
    prompt_effect,
    prompts_needed,
)
from reports.summary import timing_label

Mode = Literal["wall", "replay"]
GateVerdict = Literal["ok", "regression", "inconclusive"]

MARGINS: dict[Mode, float] = {"wall": 0.05, "replay": 0.0}
"""Default accepted loss; replayed times have no noise to allow for."""
BOUNDS = 0.90
"""A two-sided 90% interval: each end is a one-sided 95% bound."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """One method in both runs. Ratios are HEAD ÷ BASE; above 1 HEAD is faster."""

    clock: str
    """The rows' clock."""
    timing: str
    """`measured`, or `modelled (<clock>)`."""
    method: str
    """Name of the method."""
    n: int
    """Prompts compared: answered and rated in both runs, by the method and by its baseline."""
    dropped: int
    """Prompts of either run that could not be compared."""
    marked: int
    """Rows timed under a disturbance: the method's and its baseline's, in both runs."""
    repetition: int
    """The method's answers in both runs that end in a cycle."""
    speedup_base: float | None
    """Speedup over the baseline in BASE, on the prompts compared; this and what derives from it null without any."""
    speedup_head: float | None
    """The same in HEAD."""
    ratio: float | None
    """Geometric mean over prompts of the speedup in HEAD over the speedup in BASE."""
    low: float | None
    """One-sided 95% lower bound of the ratio; null in replay, which draws nothing, and below 2 prompts."""
    high: float | None
    """One-sided 95% upper bound."""
    raw_ratio: float | None
    """Decode time per token in BASE over HEAD: context alone, the machine's drift is in it."""
    tokens_per_round_base: float | None
    """τ in BASE."""
    tokens_per_round_head: float | None
    """τ in HEAD."""
    verdict: GateVerdict
    """Whether the loss is inside the margin."""
    reason: str
    """Why it is not; empty for ok."""


def gate_line(
    method: str,
    base: Sequence[Tally],
    head: Sequence[Tally],
    pairings: Sequence[tuple[Pairing, Pairing]],
    mode: Mode,
    margin: float,
) -> GateLine | None:
    """Return a method's line; None without a prompt to compare, unless that is a fault of HEAD's.

    Args:
        method: its name.
        base: the method's and the baseline's rows in BASE, of one clock.
        head: the same in HEAD.
        pairings: each prompt that both runs answered, in BASE and in HEAD.
        mode: `wall` for measured times, `replay` for modelled ones.
        margin: largest accepted loss, as a fraction.
    """
    faults = _faults(method, base, head)
    if not (pairings or faults):
        return None
    effects = [(prompt_effect(before), prompt_effect(after)) for before, after in pairings]
    logs = [after.log_speedup - before.log_speedup for before, after in effects]
    strata = [before.prompt[0] for before, _ in effects]
    by_task: defaultdict[str, list[float]] = defaultdict(list)
    for task, log in zip(strata, logs, strict=True):
        by_task[task].append(log)
    low, high = (None if mode == "replay" else bootstrap_interval(by_task, BOUNDS)) or (None, None)
    tokens = [_tokens_per_round([side[place] for side in pairings]) for place in (0, 1)]
    verdict: GateVerdict
    if faults:
        verdict, reason = "regression", ", ".join(faults)
    elif mode == "replay":
        verdict, reason = _exact_verdict(geometric_mean(logs), tokens, margin)
    else:
        verdict, reason = _verdict(logs, strata, low, high, margin)
    everyone = [*base, *head]
    return GateLine(
        clock=everyone[0].clock,
        timing=timing_label(everyone[0].clock),
        method=method,
        n=len(pairings),
        dropped=len({(row.task, row.question_id) for row in everyone}) - len(pairings),
        marked=sum(row.marked for row in everyone),
        repetition=sum(row.repetitive for row in everyone if row.method == method and row.answered),
        speedup_base=_mean([before.log_speedup for before, _ in effects]),
        speedup_head=_mean([after.log_speedup for _, after in effects]),
        ratio=_mean(logs),
        low=low,
        high=high,
        raw_ratio=_mean([math.log(after.tokens_per_s / before.tokens_per_s) for before, after in effects]),
        tokens_per_round_base=tokens[0],
        tokens_per_round_head=tokens[1],
        verdict=verdict,
        reason=reason,
    )


def _mean(logs: Sequence[float]) -> float | None:
    return geometric_mean(logs) if logs else None


def _tokens_per_round(pairings: Sequence[Pairing]) -> float | None:
    rows = [row for pairing in pairings for answers in pairing.method for row in answers.turns]
    rate: float | None = pooled_rates(rows)["tokens_per_round"]
    return rate


def _faults(method: str, base: Sequence[Tally], head: Sequence[Tally]) -> list[str]:
    """Return faults that no speed makes up for: answers lost or changed in HEAD."""
    answered = {_place(row) for row in base if row.method == method and row.answered}
    own = [row for row in head if row.method == method]
    expected = {_place(row) for row in head if row.method != method}
    missing = len((answered & expected) - {_place(row) for row in own})
    failed = sum(not row.answered and _place(row) in answered for row in own)
    different = sum(row.answered and (row.verdict == "different" or row.flaw == NOT_IDENTICAL) for row in own)
    counts = {
        "answers of BASE failed in HEAD": failed,
        "answers of BASE are missing in HEAD, beside its baseline's": missing,
        "answers of HEAD are not the baseline's": different,
    }
    return [f"{count} {fault}" for fault, count in counts.items() if count]


def _place(row: Tally) -> tuple[str, int, int]:
    return row.task, row.question_id, row.turn


def _exact_verdict(ratio: float, tokens: Sequence[float | None], margin: float) -> tuple[GateVerdict, str]:
    """Return the verdict on replayed times: without noise, every loss of speed or acceptance counts."""
    least = (1.0 - margin) * (1.0 - _ROUNDING)
    losses = [f"speedup {ratio:.4f} of BASE's"] if ratio < least else []
    before, after = tokens
    if before is not None and after is not None and after / before < least:
        losses.append(f"tokens per round {after / before:.4f} of BASE's")
    return ("regression", ", ".join(losses)) if losses else ("ok", "")


def _verdict(
    logs: Sequence[float], strata: Sequence[str], low: float | None, high: float | None, margin: float
) -> tuple[GateVerdict, str]:
    least = 1.0 - margin
    if low is None or high is None or len(logs) < MIN_PROMPTS_TEST:
        return "inconclusive", f"needs about {MIN_PROMPTS_TEST} prompts at least"
    if low >= least * (1.0 - _ROUNDING):
        return "ok", ""
    if high < least:
        return "regression", f"slower by more than {100 * margin:g}%"
    needed = _needed(logs, strata, math.log(least))
    return "inconclusive", f"needs about {needed} prompts" if needed else f"needs over {MOST_PROMPTS_NEEDED:,} prompts"


def _needed(logs: Sequence[float], strata: Sequence[str], bound: float) -> int | None:
    """Return the prompts that pass an unchanged HEAD; if those are there, the prompts that confirm the change."""
    unchanged = prompts_needed(logs, strata, bound, 0.0)
    if unchanged is not None and unchanged > len(logs):
        return unchanged
    return prompts_needed(logs, strata, bound, fmean(logs))
