"""Per-prompt effects, intervals, tests, corrections, effect sizes and ranks.

The unit is the prompt: all turns of a conversation together, repeats averaged first, on the logarithm of time per
committed token.
"""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from reports.pairing import Answers, Pairing, PromptId

CONFIDENCE = 0.95
POWER = 0.8
RESAMPLES = 9_999
DRAWS = 10_000_000  # resamples × prompts that one interval may draw: a fraction of a second
MANY_PROMPTS = 2_000  # beyond, resampling and permuting take seconds and agree with Student's t
MOST_PROMPTS_NEEDED = 10_000
MIN_PROMPTS_INTERVAL = 2
MIN_PROMPTS_TEST = 6
MIN_PROMPTS_STRATUM = 4  # of two or three, resamples reach too short a way: three tasks of two cover 75%
_CERTAIN = 1e3  # standard deviations of a difference that one prompt proves
_SEED = 20_250_711

Samples = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class PromptEffect:
    """A method's effect on one prompt, against the baseline of the same blocks."""

    prompt: PromptId
    """Task and question id."""
    log_speedup: float
    """Natural logarithm of the baseline's decode time per committed token over the method's."""
    log_e2e: float | None
    """The same of the end-to-end time per committed token; null where one is unknown."""
    tokens_per_s: float
    """The method's timed tokens per decode second, geometric mean over repeats."""


def decode_per_token(answers: Answers) -> float:
    """Return decode seconds per timed token of one conversation."""
    return answers.decode_s / answers.timed_tokens


def e2e_per_token(answers: Answers) -> float:
    """Return end-to-end seconds per committed token of one conversation that has them."""
    assert answers.e2e_s is not None
    return answers.e2e_s / answers.committed


def prompt_effect(pairing: Pairing) -> PromptEffect:
    """Reduce a prompt's paired conversations to its effect; repeats are averaged in the logarithm."""
    decode = _mean_log(decode_per_token, pairing.method)
    log_e2e = None
    if all(answers.e2e_s is not None for answers in (*pairing.baseline, *pairing.method)):
        log_e2e = _mean_log(e2e_per_token, pairing.baseline) - _mean_log(e2e_per_token, pairing.method)
    speedup = _mean_log(decode_per_token, pairing.baseline) - decode
    return PromptEffect(pairing.prompt, speedup, log_e2e, tokens_per_s=math.exp(-decode))


def _mean_log(cost: Callable[[Answers], float], repeats: Sequence[Answers]) -> float:
    return fmean(math.log(cost(answers)) for answers in repeats)


def geometric_mean(logs: Sequence[float]) -> float:
    """Return the geometric mean of ratios, given their logarithms; every prompt weighs the same."""
    return math.exp(fmean(logs))


def total_time_ratio(pairings: Sequence[Pairing]) -> float:
    """Return the ratio of pooled decode times per token, baseline over method.

    (Σ decode_s ÷ Σ timed tokens) of the baseline ÷ the same of the method, over all prompts and repeats. Dividing by
    each side's own tokens keeps answers of different length comparable, as in half precision. Long answers weigh more
    here than in the geometric mean.
    """
    return _pooled([a for p in pairings for a in p.baseline]) / _pooled([a for p in pairings for a in p.method])


def _pooled(conversations: Sequence[Answers]) -> float:
    return math.fsum(a.decode_s for a in conversations) / sum(a.timed_tokens for a in conversations)


def bootstrap_interval(
    strata: Mapping[str, Sequence[float]], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return both ends, as ratios, of the paired bootstrap interval of the geometric mean, stratified by task.

    Expanded percentile method (Hesterberg 2015, section 3.2, here for strata): the level is raised so that a percentile
    interval, which is too narrow for few prompts, gets the width of a t interval. Without it the 95% interval of 6
    prompts covers 86%, with it 93%. 9,999 resamples of prompts, fewer beyond 1,000 prompts, each task resampled by
    itself, fixed seed. A task with fewer than 4 prompts is too small to be resampled by itself and joins the smallest
    other one. Beyond 2,000 prompts the t interval, to which it converges. None for fewer than two prompts.

    Args:
        strata: per task, the prompts' log speedups.
        confidence: of the two-sided interval; 0.90 gives two one-sided 95% bounds.
    """
    of_tasks = [np.asarray(strata[task], dtype=np.float64) for task in sorted(strata) if len(strata[task])]
    samples = _collapse(of_tasks, MIN_PROMPTS_STRATUM)
    n = sum(map(len, samples))
    if n < MIN_PROMPTS_INTERVAL:
        return None
    if n > MANY_PROMPTS:
        middle, half = float(np.concatenate(samples).mean()), _t_width(samples, confidence) / n
        return math.exp(middle - half), math.exp(middle + half)

    def mean(*resampled: Samples, axis: int = -1) -> Samples:
        return np.asarray(np.concatenate(resampled, axis=axis).mean(axis=axis))

    interval = stats.bootstrap(
        samples,
        mean,
        n_resamples=min(RESAMPLES, DRAWS // n),
        batch=max(1, DRAWS // 5 // n),
        confidence_level=_expanded(samples, confidence),
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return math.exp(float(interval.low)), math.exp(float(interval.high))


def _expanded(samples: Sequence[Samples], confidence: float) -> float:
    """Return the level whose percentile interval is as wide as a t interval of the stratified mean."""
    resampled = math.fsum(len(sample) * float(np.var(sample)) for sample in samples)
    if resampled == 0.0:
        return confidence
    return float(2.0 * stats.norm.cdf(_t_width(samples, confidence) / math.sqrt(resampled)) - 1.0)


def _t_width(samples: Sequence[Samples], confidence: float) -> float:
    """Return half a t interval of the stratified sum."""
    variances = [len(sample) * float(np.var(sample, ddof=1)) for sample in samples]
    total = math.fsum(variances)
    if total == 0.0:
        return 0.0
    # Welch and Satterthwaite's degrees of freedom: tasks differ in spread.
    freedom = total**2 / math.fsum(v**2 / (len(sample) - 1) for v, sample in zip(variances, samples, strict=True))
    return float(stats.t.ppf((1.0 + confidence) / 2.0, freedom)) * math.sqrt(total)


def _collapse(samples: list[Samples], fewest: int) -> list[Samples]:
    samples = sorted(samples, key=len)
    while len(samples) > 1 and len(samples[0]) < fewest:
        samples = sorted([np.concatenate(samples[:2]), *samples[2:]], key=len)
    return samples


def sign_flip_p(log_ratios: Sequence[float]) -> float | None:
    """Return the two-sided p-value of no effect, by a paired sign-flip permutation test of prompts' mean log ratio.

    All sign patterns where there are at most 9,999 (13 prompts), else 9,999 drawn with a fixed seed; a drawn p-value is
    therefore at least 0.0002. Beyond 2,000 prompts the t-test, to which it converges. None for fewer than 6 prompts: no
    sign pattern of five could reach 5%.
    """
    if len(log_ratios) < MIN_PROMPTS_TEST:
        return None
    sample = np.asarray(log_ratios, dtype=np.float64)
    if len(sample) > MANY_PROMPTS:
        with warnings.catch_warnings():  # nearly equal prompts lose precision in a p that is 0 all the same
            warnings.simplefilter("ignore", RuntimeWarning)
            return 1.0 if np.ptp(sample) == 0.0 == sample[0] else float(stats.ttest_1samp(sample, 0.0).pvalue)
    result = stats.permutation_test(
        (sample,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, DRAWS // 5 // len(sample)),
        rng=np.random.default_rng(_SEED),
    )
    return float(result.pvalue)


def rank_biserial(log_ratios: Sequence[float]) -> float | None:
    """Return the matched-pairs rank-biserial correlation: 1 where every prompt gains, -1 where every one loses.

    Ranks of the absolute log ratios for the method minus those against it, over all; prompts without any difference are
    left out (Kerby 2014, through pingouin). None for fewer than 6 prompts, and where none differs.
    """
    import pingouin

    if len(log_ratios) < MIN_PROMPTS_TEST or not any(log_ratios):
        return None
    table = pingouin.wilcoxon(np.asarray(log_ratios, dtype=np.float64), method="asymptotic")
    return float(table["RBC"].iloc[0])


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values, in the order given: for a table's claims."""
    return _adjusted(p_values, "holm")


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return Benjamini and Hochberg's adjusted p-values, in the order given: for exploratory grids."""
    return _adjusted(p_values, "fdr_bh")


def _adjusted(p_values: Sequence[float], method: str) -> list[float]:
    if not p_values:
        return []
    gc.freeze()  # statsmodels collects garbage first, which takes seconds where hundred thousands of rows are held
    try:
        return [float(p) for p in multipletests(p_values, method=method)[1]]
    finally:
        gc.unfreeze()


def prompts_needed(log_ratios: Sequence[float], strata: Sequence[str], bound: float, mean: float) -> int | None:
    """Return the prompts that show, with a power of 80%, on which side of a bound the mean lies.

    One-sided t-test at 5%, for prompts with the sample's spread within tasks. At least 6, the fewest that are tested;
    None for more than 10,000.

    Args:
        log_ratios: the prompts' log ratios, at least two.
        strata: the task of each.
        bound: logarithm of the ratio to test against.
        mean: the true mean, as assumed.
    """
    samples = [[x for x, of in zip(log_ratios, strata, strict=True) if of == task] for task in set(strata)]
    collapsed = _collapse([np.asarray(sample, dtype=np.float64) for sample in samples], 2)
    freedom = sum(len(sample) - 1 for sample in collapsed)
    spread = math.sqrt(math.fsum(len(sample) * float(np.var(sample)) for sample in collapsed) / freedom)
    distance = abs(mean - bound)
    if spread == 0.0 or distance > _CERTAIN * spread:  # beyond, the power's series does not converge
        return MIN_PROMPTS_TEST if distance else None
    question = {"effect_size": distance / spread, "alpha": 1.0 - CONFIDENCE, "alternative": "larger"}
    if TTestPower().power(nobs=MIN_PROMPTS_TEST, **question) >= POWER:
        return MIN_PROMPTS_TEST
    if TTestPower().power(nobs=MOST_PROMPTS_NEEDED, **question) < POWER:
        return None
    needed: float = TTestPower().solve_power(power=POWER, **question)
    return math.ceil(needed)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of methods over tasks, as description."""

    mean_ranks: tuple[float, ...]
    """Mean rank of each method over the tasks, 1 the best; ties share theirs."""
    friedman_p: float
    """Friedman's p-value that all methods rank alike."""
    nemenyi_p: tuple[tuple[float, ...], ...]
    """Nemenyi's p-value of each two methods."""


def rank_over_tasks(scores: Sequence[Sequence[float]]) -> Ranks | None:
    """Return mean ranks, Friedman's test and Nemenyi's pairwise p-values (Demšar 2006).

    None for fewer than 3 methods or 2 tasks, and where all methods tie in every task.

    Args:
        scores: a line a task, a column a method; higher is better.
    """
    import scikit_posthocs

    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3 or not np.ptp(table, axis=1).any():
        return None
    pairwise = scikit_posthocs.posthoc_nemenyi_friedman(table).to_numpy()
    return Ranks(
        mean_ranks=tuple(float(rank) for rank in stats.rankdata(-table, axis=1).mean(axis=0)),
        friedman_p=float(stats.friedmanchisquare(*table.T).pvalue),
        nemenyi_p=tuple(tuple(float(p) for p in line) for line in pairwise),
    )
