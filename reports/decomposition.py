"""Decomposition of a method's decode speedup into factors whose product it is, exactly."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from reports.pairing import Answers, Pairing
from reports.statistics import bootstrap_interval, geometric_mean

FACTORS = ("acceptance", "width", "drafting", "overhead")


@dataclass(frozen=True, slots=True)
class Factor:
    """One cause's part in a speedup: above 1 a gain, below 1 a loss."""

    name: str
    """One of `FACTORS`."""
    value: float
    """Geometric mean over prompts."""
    ci_low: float | None
    """Lower end of its 95% bootstrap interval; null below 2 prompts."""
    ci_high: float | None
    """Upper end."""


def decompose(pairings: Sequence[Pairing]) -> tuple[Factor, ...] | None:
    """Return the factors of a method's speedup over the baseline, in order; None without per-round data or pairings.

    A round of the baseline takes its verification and its overhead. The method commits more tokens a round
    (`acceptance`); its verification is wider (`width`), then drafting is added (`drafting`: both drafters and the
    scheduler), then its own overhead takes the baseline's place (`overhead`). The order matters a little, so it is
    always this one.
    """
    by_prompt = [(pairing.prompt, _factor_logs(pairing)) for pairing in pairings]
    if not by_prompt or any(logs is None for _, logs in by_prompt):
        return None
    factors = []
    for place, name in enumerate(FACTORS):
        strata: defaultdict[str, list[float]] = defaultdict(list)
        for (task, _), logs in by_prompt:
            strata[task].append(logs[place])  # type: ignore[index]  # none is None
        low, high = bootstrap_interval(strata) or (None, None)
        factors.append(Factor(name, geometric_mean([log for logs in strata.values() for log in logs]), low, high))
    return tuple(factors)


def _factor_logs(pairing: Pairing) -> list[float] | None:
    rows = [row for answers in (*pairing.baseline, *pairing.method) for row in answers.turns]
    if not all(row.rounds and row.spans is not None for row in rows):
        return None
    logs = [_repeat_logs(baseline, method) for baseline, method in zip(pairing.baseline, pairing.method, strict=True)]
    return [fmean(column) for column in zip(*logs, strict=True)]


def _repeat_logs(baseline: Answers, method: Answers) -> list[float]:
    verify_before, drafting_before, overhead_before, tokens_before = _round(baseline)
    overhead_before += drafting_before  # it drafts nothing, so this is 0; if not, the factors multiply all the same
    verify, drafting, overhead, tokens = _round(method)
    steps = (
        verify_before + overhead_before,
        verify + overhead_before,
        verify + overhead_before + drafting,
        verify + overhead + drafting,
    )
    costs = [math.log(before / after) for before, after in pairwise(steps)]
    return [math.log(tokens / tokens_before), *costs]


def _round(answers: Answers) -> tuple[float, float, float, float]:
    """Return seconds of verification, drafting and all else, and timed tokens, a round."""
    spans = [row.spans for row in answers.turns if row.spans is not None]
    rounds = sum(row.rounds or 0 for row in answers.turns)
    verify = math.fsum(span.verify_s for span in spans)
    drafting = math.fsum(span.small_s + span.middle_s + span.scheduler_s for span in spans)
    overhead = answers.decode_s - verify - drafting
    return verify / rounds, drafting / rounds, overhead / rounds, answers.timed_tokens / rounds
