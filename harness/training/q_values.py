"""Values of calling and skipping, fitted backwards over the steps, and the policy that they make.

The value of a schedule is the time that it saves to the end of the answer: in its own round, and after it under the
policy of the iteration before. (An average price of tokens would also pay for those that look-up would have copied
anyway.) Targets are the fitted policy's own returns, not the maximum, which would be biased upwards; models never
predict for prompts that they were fitted to (cross-fitting).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.training.policy_rollout import Bools, Floats, Rounds, Schedules, always

if TYPE_CHECKING:
    from lightgbm import LGBMRegressor

FOLDS = 5
ITERATIONS = 4

TREES: dict[str, Any] = {
    "n_estimators": 60,
    "learning_rate": 0.1,
    "num_leaves": 4,
    "min_child_samples": 200,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
"""LightGBM repeats itself only with these switches, a seed and fixed threads."""

FitMargins = Callable[[Floats, Floats, Floats, int], Callable[[Floats], Floats]]
"""Fits to signals [rows, signals], values of calling and of skipping [rows] with a seed; its result gives margins."""


@dataclass(frozen=True, slots=True)
class QValues:
    """Fitted values, and their policy on the rounds that they were fitted to, each prompt unseen.

    Attributes:
        worth: value of every schedule under the policy before, [rounds, 2^(D+1)]; see `Rounds.worth`.
        margins: Q(call) - Q(skip) of every state in verifications' time, [rounds, 2^D]; NaN where nothing is decided.
        schedules: the policy's schedules.
        rate: its rate, in committed tokens a verification's time.
    """

    worth: Floats
    margins: Floats
    schedules: Schedules
    rate: float


def q_values(seen: Floats, called: Floats, skipped: Floats, seed: int) -> Callable[[Floats], Floats]:
    """Return margins by two value models, Q(call) and Q(skip)."""
    call, skip = (regression(seen, target, seed) for target in (called, skipped))
    return lambda unseen: np.asarray(call.predict(unseen)) - np.asarray(skip.predict(unseen))


def classification(seen: Floats, called: Floats, skipped: Floats, seed: int) -> Callable[[Floats], Floats]:
    """Return margins by a classifier of the better action, weighted by the difference in value (cost-sensitive)."""
    import lightgbm

    better = called > skipped
    if better.all() or not better.any():
        return lambda unseen: np.full(len(unseen), float(better[0]) - 0.5)
    model = lightgbm.LGBMClassifier(**TREES, random_state=seed)
    model.fit(seen, better, sample_weight=np.abs(called - skipped))
    return lambda unseen: np.asarray(model.predict_proba(unseen))[:, 1] - 0.5


def regression(seen: Floats, target: Floats, seed: int) -> LGBMRegressor:
    """Return a fitted value model."""
    import lightgbm

    return lightgbm.LGBMRegressor(**TREES, random_state=seed).fit(seen, target)


def fit_values(rounds: Rounds, seed: int, note: Callable[[str], None], fit_margins: FitMargins = q_values) -> QValues:
    """Fit values, in each iteration to the times under the policy before; the first policy never calls.

    Args:
        rounds: traced rounds.
        seed: of LightGBM and of the folds.
        note: prints a line.
        fit_margins: fits the models of margins.
    """
    schedules = always(rounds, 2**rounds.steps)
    for number in range(1, ITERATIONS + 1):
        worth = rounds.worth(rounds.time_to_go(schedules))
        margins = _backwards(rounds, worth, seed, fit_margins)
        schedules = rounds.outcome(decisions(margins))
        reached = rounds.rate(schedules)
        note(f"iteration {number}: {reached:.4f} tokens a verification's time")
    return QValues(worth, margins, schedules, reached)


def final_models(rounds: Rounds, values: QValues, seed: int) -> dict[int, tuple[LGBMRegressor, LGBMRegressor]]:
    """Return value models, call and skip, of every step, fitted to all the rounds."""
    worth = values.worth.copy()
    everywhere = np.ones(len(rounds), dtype=np.bool_)
    models = {}
    for step in range(rounds.steps, 0, -1):
        seen, called, skipped = _examples(rounds, worth, step, everywhere)
        if len(seen):
            models[step] = (regression(seen, called, seed), regression(seen, skipped, seed))
        _back_up(rounds, worth, values.margins, step)
    return models


def _backwards(rounds: Rounds, worth: Floats, seed: int, fit_margins: FitMargins) -> Floats:
    """Return margins, each step's given the decisions of later steps."""
    worth = worth.copy()
    margins = np.full((len(rounds), 2**rounds.steps), np.nan)
    folds = fold_of(rounds.prompts, seed)
    for step in range(rounds.steps, 0, -1):
        for fold in range(FOLDS):
            seen, called, skipped = _examples(rounds, worth, step, folds != fold)
            if not len(seen):
                continue
            margin = fit_margins(seen, called, skipped, seed)
            for state in _deciding(rounds, step):
                rows = (folds == fold) & rounds.open(state)
                if rows.any():
                    margins[rows, state] = margin(rounds.signals[rows, state])
        _back_up(rounds, worth, margins, step)
    return margins


def decisions(margins: Floats) -> Bools:
    """Return which states call, [rounds, 2^D]."""
    return np.nan_to_num(margins, nan=0.0) > 0


def _deciding(rounds: Rounds, step: int) -> list[int]:
    return [state for state in rounds.level(step) if rounds.may_call(state)]


def _examples(rounds: Rounds, worth: Floats, step: int, chosen: Bools) -> tuple[Floats, Floats, Floats]:
    """Return signals, and the values of calling and of skipping, of all states before a step."""
    states = [(state, chosen & rounds.open(state)) for state in _deciding(rounds, step)]
    if not states:
        return np.empty((0, len(rounds.names))), np.empty(0), np.empty(0)
    seen = np.concatenate([rounds.signals[rows, state] for state, rows in states])
    called, skipped = (np.concatenate([worth[rows, 2 * state + bit] for state, rows in states]) for bit in (1, 0))
    level = np.concatenate([worth[rows, 2**rounds.steps] for state, rows in states])
    return seen, called - level, skipped - level  # over never calling, since the time left is not the round's doing


def _back_up(rounds: Rounds, worth: Floats, margins: Floats, step: int) -> None:
    """Write into `worth` the fitted policy's own return from each state before a step."""
    for state in rounds.level(step):
        calls = decisions(margins[:, state])
        worth[:, state] = np.where(calls, worth[:, 2 * state + 1], worth[:, 2 * state])


def held_out(prompts: NDArray[np.int64], seed: int) -> Iterator[Bools]:
    """Yield the rounds of each fold, unless it would leave nothing to learn from."""
    folds = fold_of(prompts, seed)
    for fold in range(FOLDS):
        held = folds == fold
        if held.any() and not held.all():
            yield held


def fold_of(prompts: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return each round's fold; a prompt's rounds share one."""
    distinct = np.unique(prompts)
    shuffled = np.random.default_rng(seed).permutation(len(distinct)) % FOLDS
    return shuffled[np.searchsorted(distinct, prompts)]
