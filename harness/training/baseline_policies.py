"""Baseline policies that the value system must beat, each evaluated on held-out prompts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.training.distillation import best_offset
from harness.training.policy_rollout import Floats, Rounds, Schedules, always
from harness.training.q_values import decisions, held_out

_ARMS = 4
_AT_ONCE = 200  # rules held in memory
_EXPLORATION = 0.3
_LIMITS = 12
"""Thresholds tried for each signal, as quantiles."""


def best_fixed(rounds: Rounds, seed: int) -> Schedules:
    """Return the best fixed schedule, chosen on the other prompts."""
    return _cross_fitted(rounds, seed, lambda train, held: always(held, int(np.nanargmax(train.rates()))))


def threshold(rounds: Rounds, seed: int) -> Schedules:
    """Return the schedules of one rule: call in one step where one signal lies on one side of a threshold."""
    return _cross_fitted(rounds, seed, lambda train, held: Rule.best(train).schedules(held))


def bandit(rounds: Rounds, seed: int) -> Schedules:
    """Return the schedules of an upper-confidence bandit over a few good schedules, restarted for each answer."""
    return _cross_fitted(rounds, seed, _bandit)


def with_best_offset(rounds: Rounds, margins: Floats, seed: int) -> Schedules:
    """Return the schedules of margins [rounds, 2^D], less the offset that is best on the other prompts."""
    moved = margins.copy()
    for held in held_out(rounds.prompts, seed):
        moved[held] -= best_offset(rounds.part(~held), margins[~held])
    return rounds.outcome(decisions(moved))


def gap(rounds: Rounds, schedules: Schedules, fixed: Rounds) -> float:
    """Return the mean excess time of a policy's rounds over the best ones there, in verifications (Table 5).

    Args:
        rounds: with the policy's costs.
        schedules: the policy's.
        fixed: the same rounds with the costs of fixed schedules: hindsight needs no scheduler.
    """
    best = fixed.hindsight()
    time = fixed.time_to_go(best)
    rows = np.flatnonzero(rounds.visited(schedules))
    return float((fixed.worth(time)[rows, best[rows]] - rounds.worth(time)[rows, schedules[rows]]).mean())


def _cross_fitted(rounds: Rounds, seed: int, policy: Callable[[Rounds, Rounds], Schedules]) -> Schedules:
    schedules = np.full(len(rounds), 2**rounds.steps)
    for held in held_out(rounds.prompts, seed):
        schedules[held] = policy(rounds.part(~held), rounds.part(held))
    return schedules


class Rule:
    """Call once, in one step, where a signal lies on one side of a limit.

    Args:
        step: of the call.
        signal: index of the signal.
        sign: -1 calls above the limit, 1 below it.
        limit: times sign.
    """

    def __init__(self, step: int, signal: int, sign: int, limit: float) -> None:
        self._step, self._signal, self._sign, self._limit = step, signal, sign, limit

    @classmethod
    def best(cls, rounds: Rounds) -> Rule:
        """Return the fastest such rule on some rounds."""
        rules = [rule for step in range(1, rounds.steps + 1) for rule in cls._of_step(rounds, step)]
        parts = [rules[start : start + _AT_ONCE] for start in range(0, len(rules), _AT_ONCE)]
        rates = [rounds.rates_of(np.stack([rule.schedules(rounds) for rule in part], axis=1)) for part in parts]
        return rules[int(np.concatenate(rates).argmax())]

    @classmethod
    def _of_step(cls, rounds: Rounds, step: int) -> list[Rule]:
        state = 2 ** (step - 1)
        seen = rounds.signals[rounds.open(state), state]
        if not len(seen):  # nothing is ever decided there
            return []
        limits = np.quantile(seen, np.linspace(0, 1, _LIMITS), axis=0)
        return [
            cls(step, signal, sign, sign * limit)
            for signal in range(len(rounds.names))
            for sign in (1, -1)
            for limit in np.unique(limits[:, signal])
        ]

    def schedules(self, rounds: Rounds) -> Schedules:
        """Return each round's schedule."""
        never = 2**rounds.steps
        once = never + 2 ** (rounds.steps - self._step)
        with np.errstate(invalid="ignore"):  # NaN, where nothing is decided, makes no call
            called = self._sign * rounds.signals[:, 2 ** (self._step - 1), self._signal] <= self._limit
        schedules: Schedules = np.where(called, once, never)
        return schedules


def _bandit(train: Rounds, held: Rounds) -> Schedules:
    allowed = np.array(train.schedules)
    arms = allowed[np.argsort(-train.rates()[allowed], kind="stable")[:_ARMS]]
    schedules = always(held, int(arms[0]))
    place = 0
    while place < len(held):
        tokens, time, pulls = np.zeros(len(arms)), np.zeros(len(arms)), np.zeros(len(arms))
        end = place + int(held.left[place])
        while place < end:
            bonus = _EXPLORATION * np.sqrt(np.log(pulls.sum() + 1) / np.maximum(pulls, 1))
            arm = int(np.argmax(np.where(pulls == 0, np.inf, tokens / np.maximum(time, 1e-9) + bonus)))
            schedules[place] = arms[arm]
            tokens[arm] += held.committed[place, arms[arm]]
            time[arm] += held.cost[place, arms[arm]]
            pulls[arm] += 1
            place += int(held.committed[place, arms[arm]])
        place = end
    return schedules
