"""Per-prompt effects, intervals, tests and corrections.

The unit is the prompt: all turns of a conversation together, repeats averaged first, on the
logarithm of time per committed token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

from reports.pairing import Answers, Pairing, Prompt

CONFIDENCE = 0.95
RESAMPLES = 9_999
MIN_PROMPTS_INTERVAL = 2
MIN_PROMPTS_TEST = 6
_SEED = 20_250_711


@dataclass(frozen=True, slots=True)
class PromptEffect:
    """What a method did to one prompt, against the baseline of the same blocks."""

    prompt: Prompt
    """Task and question id."""
    log_speedup: float
    """Natural logarithm of the baseline's decode time per committed token over the method's."""
    log_e2e: float
    """The same of the end-to-end time per committed token."""
    tokens_per_s: float
    """The method's timed tokens per decode second, geometric mean over repeats."""


def decode_per_token(answers: Answers) -> float:
    """Return decode seconds per timed token of one conversation."""
    return answers.decode_s / answers.timed_tokens


def e2e_per_token(answers: Answers) -> float:
    """Return end-to-end seconds per committed token of one conversation."""
    return answers.e2e_s / answers.committed


def prompt_effect(pairing: Pairing) -> PromptEffect:
    """Reduce a prompt's paired conversations to its effect; repeats are averaged in the logarithm."""
    decode = _mean_log(decode_per_token, pairing.method)
    return PromptEffect(
        prompt=pairing.prompt,
        log_speedup=_mean_log(decode_per_token, pairing.baseline) - decode,
        log_e2e=_mean_log(e2e_per_token, pairing.baseline) - _mean_log(e2e_per_token, pairing.method),
        tokens_per_s=math.exp(-decode),
    )


def _mean_log(cost: Callable[[Answers], float], repeats: Sequence[Answers]) -> float:
    return fmean(math.log(cost(answers)) for answers in repeats)


def geometric_mean(logs: Sequence[float]) -> float:
    """Return the geometric mean of ratios, given their logarithms; every prompt weighs the same."""
    return math.exp(fmean(logs))


def total_time_ratio(pairings: Sequence[Pairing]) -> float:
    """Return the ratio of pooled decode times per token, baseline over method.

    (Σ decode_s ÷ Σ timed tokens) of the baseline ÷ the same of the method, over all prompts and
    repeats. Dividing by each side's own tokens keeps answers of different length comparable, as
    they are in half precision. Long answers weigh more here than in the geometric mean.
    """
    return _pooled([a for p in pairings for a in p.baseline]) / _pooled([a for p in pairings for a in p.method])


def _pooled(conversations: Sequence[Answers]) -> float:
    return math.fsum(a.decode_s for a in conversations) / sum(a.timed_tokens for a in conversations)


def bootstrap_interval(strata: Mapping[str, Sequence[float]]) -> tuple[float, float] | None:
    """Return the 95% paired bootstrap interval of the geometric mean, stratified by task.

    Percentile method, 9,999 resamples of prompts, each task resampled by itself, fixed seed.
    Percentile rather than BCa: both carry over from logarithms to ratios unchanged, but BCa's
    correction is undefined where all prompts agree and erratic for a handful of prompts; the
    price is an interval that is somewhat narrow at fewer than about 20 prompts.
    A task with a single prompt cannot be resampled by itself and joins the smallest other one.

    Args:
        strata: per task, the prompts' log speedups.

    Returns:
        Both ends as ratios; none for fewer than two prompts.
    """
    samples = _collapse([np.asarray(strata[task], dtype=np.float64) for task in sorted(strata) if len(strata[task])])
    if sum(map(len, samples)) < MIN_PROMPTS_INTERVAL:
        return None

    def mean(*resampled: np.ndarray[Any, Any], axis: int = -1) -> np.ndarray[Any, Any]:
        return np.asarray(np.concatenate(resampled, axis=axis).mean(axis=axis))

    interval = stats.bootstrap(
        samples,
        mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return math.exp(float(interval.low)), math.exp(float(interval.high))


def _collapse(samples: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    samples = sorted(samples, key=len)
    while len(samples) > 1 and len(samples[0]) < 2:
        samples = sorted([np.concatenate(samples[:2]), *samples[2:]], key=len)
    return samples


def sign_flip_p(log_ratios: Sequence[float]) -> float | None:
    """Return the two-sided p-value of no effect, by a paired sign-flip permutation test of the mean.

    All sign patterns where there are at most 9,999 (13 prompts), else 9,999 drawn with a fixed
    seed; a drawn p-value is therefore at least 0.0002.

    Args:
        log_ratios: the prompts' log speedups.

    Returns:
        None for fewer than 6 prompts: no sign pattern of five could reach 5%.
    """
    if len(log_ratios) < MIN_PROMPTS_TEST:
        return None
    result = stats.permutation_test(
        (np.asarray(log_ratios, dtype=np.float64),),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(_SEED),
    )
    return float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values, in the order given."""
    if not p_values:
        return []
    return [float(p) for p in multipletests(p_values, method="holm")[1]]
