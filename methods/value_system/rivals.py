"""Small policies that the value system must beat, each judged on prompts that it has not seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from methods.value_system.rounds import Rounds
from methods.value_system.values import FOLDS, fold_of

_ARMS = 4
_EXPLORATION = 0.3


def best_fixed(rounds: Rounds, seed: int) -> NDArray[np.int64]:
    """Return the schedule that is best always, chosen on the other prompts."""
    return _cross_fitted(rounds, seed, lambda train, held: np.full(len(held), int(np.nanargmax(train.rates()))))


def threshold(rounds: Rounds, seed: int) -> NDArray[np.int64]:
    """Return the schedules of one rule: call in one step where one signal lies on one side of a threshold."""
    return _cross_fitted(rounds, seed, lambda train, held: _Threshold(train).schedules(held))


def bandit(rounds: Rounds, seed: int) -> NDArray[np.int64]:
    """Return the schedules of an upper-confidence bandit that starts anew in each answer, over few good schedules."""
    return _cross_fitted(rounds, seed, _bandit)


def _cross_fitted(
    rounds: Rounds, seed: int, policy: Callable[[Rounds, Rounds], NDArray[np.int64]]
) -> NDArray[np.int64]:
    folds = fold_of(rounds.prompts, seed)
    found = np.zeros(len(rounds), dtype=np.int64)
    for fold in range(FOLDS):
        held = folds == fold
        if held.any():
            found[held] = policy(rounds.part(~held), rounds.part(held))
    return found


class _Threshold:
    """The best such rule on some rounds."""

    def __init__(self, rounds: Rounds) -> None:
        self._never = 2**rounds.steps
        best = -np.inf
        for step in range(1, rounds.steps + 1):
            state = 2 ** (step - 1)
            once = self._never + 2 ** (rounds.steps - step)
            for signal in range(len(rounds.names)):
                for sign in (1.0, -1.0):
                    rate, limit = _best_limit(rounds, sign * rounds.signals[:, state, signal], self._never, once)
                    if rate > best:
                        best, self._rule = rate, (state, signal, sign, limit, once)

    def schedules(self, rounds: Rounds) -> NDArray[np.int64]:
        """Return each round's schedule."""
        state, signal, sign, limit, once = self._rule
        called: NDArray[np.int64] = np.where(sign * rounds.signals[:, state, signal] <= limit, once, self._never)
        return called


def _best_limit(rounds: Rounds, values: NDArray[np.float64], never: int, once: int) -> tuple[float, float]:
    """Return the best rate of calling where a value is at most a limit, and that limit."""
    order = np.argsort(values, kind="stable")  # NaN, where drafting had ended, comes last
    values = values[order]
    committed = rounds.committed[:, never].sum() + np.cumsum(
        rounds.committed[order, once] - rounds.committed[order, never]
    )
    cost = rounds.cost[:, never].sum() + np.cumsum(rounds.cost[order, once] - rounds.cost[order, never])
    last_of_value = np.append(values[1:] != values[:-1], True) & ~np.isnan(values)
    if not last_of_value.any():
        return -np.inf, -np.inf
    rates = np.where(last_of_value, committed / cost, -np.inf)
    place = int(rates.argmax())
    return float(rates[place]), float(values[place])


def _bandit(train: Rounds, held: Rounds) -> NDArray[np.int64]:
    arms = np.argsort(-np.nan_to_num(train.rates(), nan=-np.inf), kind="stable")[:_ARMS]
    found = np.zeros(len(held), dtype=np.int64)
    for prompt in np.unique(held.prompts):
        tokens, time, pulls = np.zeros(_ARMS), np.zeros(_ARMS), np.zeros(_ARMS)
        for number, row in enumerate(np.flatnonzero(held.prompts == prompt)):
            bonus = _EXPLORATION * np.sqrt(np.log(number + 1) / np.maximum(pulls, 1))
            arm = int(np.argmax(np.where(pulls == 0, np.inf, tokens / np.maximum(time, 1e-9) + bonus)))
            found[row] = arms[arm]
            tokens[arm] += held.committed[row, arms[arm]]
            time[arm] += held.cost[row, arms[arm]]
            pulls[arm] += 1
    return found


def gap(rounds: Rounds, schedules: NDArray[np.int64], best: NDArray[np.int64], price: float) -> float:
    """Return the mean of what the best schedules are worth more than others, in tokens a round (Table 5)."""
    rows = np.arange(len(rounds))
    worth = rounds.worth(price)
    return float((worth[rows, best] - worth[rows, schedules]).mean())
