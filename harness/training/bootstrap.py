"""Bootstrap of how much faster one policy is than others on the same prompts: modelled times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from harness.training.policy_rollout import Floats, Rounds, Schedules

RESAMPLES = 9_999
_AT_ONCE = 1_000
"""Resamples held in memory."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster a policy is than another, as a share: the other's time over its own, less one."""

    value: float
    low: float
    """Of the 95% interval: percentiles of a bootstrap over prompts, all times of a prompt together."""
    high: float


def prompt_times(rounds: Rounds, schedules: Schedules) -> Floats:
    """Return each prompt's time under a policy, in verifications, [prompts]."""
    _, prompts = np.unique(rounds.prompts, return_inverse=True)
    times: Floats = np.bincount(prompts, weights=rounds.spent(schedules)).astype(np.float64)
    return times


def gain(mine: Floats, others: Sequence[Floats], seed: int) -> Gain:
    """Return how much faster a policy is than the fastest of others, chosen anew in each resample.

    Args:
        mine: its time for each prompt, [prompts].
        others: the other policies' times.
        seed: of resamples.
    """

    def ratio(own: Floats, *rest: Floats, axis: int = -1) -> Floats:
        fastest: Floats = np.minimum.reduce([one.sum(axis=axis) for one in rest])
        gained: Floats = fastest / own.sum(axis=axis) - 1.0
        return gained

    value = float(ratio(mine, *others))
    if len(mine) < 2:  # one prompt has no variance
        return Gain(value, float("nan"), float("nan"))
    interval = stats.bootstrap(
        (mine, *others),
        ratio,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=_AT_ONCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Gain(value, float(interval.low), float(interval.high))
