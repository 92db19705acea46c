"""Traced rounds as arrays, and what a policy makes of them.

Schedules are numbered like a heap: 1 is the state before step 1; behind state s, 2s skips and 2s + 1 calls. With D
steps the states are 1 to 2^D - 1, the schedules 2^D to 2^(D+1) - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rounds:
    """Traced rounds under one clock.

    Attributes:
        steps: drafting steps (D).
        committed: tokens that each schedule commits, [rounds, 2^(D+1)], by heap number; states' columns mean nothing.
        cost: what each takes, in verifications (T_tgt), shaped alike.
        signals: signals of each state, [rounds, 2^D, signals]; NaN where drafting had ended.
        names: the signals' names.
        prompts: for each round, a number of its question, [rounds].
        tasks: for each round, its task.
        most_calls: B0.
    """

    steps: int
    committed: Floats
    cost: Floats
    signals: Floats
    names: tuple[str, ...]
    prompts: NDArray[np.int64]
    tasks: NDArray[np.str_]
    most_calls: int

    def __len__(self) -> int:
        """Return the number of rounds."""
        return len(self.committed)

    @property
    def schedules(self) -> range:
        """Heap numbers of the schedules."""
        return range(2**self.steps, 2 ** (self.steps + 1))

    def level(self, step: int) -> range:
        """Return the heap numbers of the states before a step."""
        return range(2 ** (step - 1), 2**step)

    def may_call(self, state: int) -> bool:
        """Return whether B0 leaves a call in a state."""
        return calls_of(state) < self.most_calls

    def open(self, state: int) -> Bools:
        """Return in which rounds a step is decided on in a state, [rounds]."""
        return ~np.isnan(self.signals[:, state, 0])

    def part(self, chosen: Bools) -> Rounds:
        """Return some of the rounds."""
        return Rounds(
            self.steps,
            self.committed[chosen],
            self.cost[chosen],
            self.signals[chosen],
            self.names,
            self.prompts[chosen],
            self.tasks[chosen],
            self.most_calls,
        )

    def without(self, names: Sequence[str]) -> Rounds:
        """Return the same rounds without some signals."""
        kept = [place for place, name in enumerate(self.names) if name not in names]
        return Rounds(
            self.steps,
            self.committed,
            self.cost,
            self.signals[:, :, kept],
            tuple(self.names[place] for place in kept),
            self.prompts,
            self.tasks,
            self.most_calls,
        )

    def outcome(self, decisions: Bools) -> NDArray[np.int64]:
        """Return the schedule that each round gets, by heap number, [rounds].

        Args:
            decisions: whether each state calls, [rounds, 2^D].
        """
        state = np.ones(len(self), dtype=np.int64)
        rows = np.arange(len(self))
        for _ in range(self.steps):
            state = 2 * state + decisions[rows, state]
        return state

    def rate(self, schedules: NDArray[np.int64]) -> float:
        """Return committed tokens a verification's time of a schedule a round: a ratio of sums."""
        rows = np.arange(len(self))
        return float(self.committed[rows, schedules].sum() / self.cost[rows, schedules].sum())

    def rates(self) -> Floats:
        """Return the rate of every schedule taken always, [2^(D+1)]; NaN for states."""
        found = np.full(2 ** (self.steps + 1), np.nan)
        schedules = list(self.schedules)
        found[schedules] = self.committed[:, schedules].sum(axis=0) / self.cost[:, schedules].sum(axis=0)
        return found

    def worth(self, price: float) -> Floats:
        """Return committed - price x cost of every schedule, [rounds, 2^(D+1)]."""
        return self.committed - price * self.cost


def calls_of(state: int) -> int:
    """Return the middle calls in the steps behind a heap number."""
    return state.bit_count() - 1


def bits_of(state: int) -> str:
    """Return the steps behind a heap number, one bit each."""
    return f"{state:b}"[1:]


def hindsight(rounds: Rounds) -> NDArray[np.int64]:
    """Return the best schedule of each round, known afterwards, at the price of time that this policy itself earns."""
    schedules = np.array(rounds.schedules)
    price = float(np.nanmax(rounds.rates()))
    for _ in range(100):
        best: NDArray[np.int64] = schedules[np.argmax(rounds.worth(price)[:, schedules], axis=1)]
        reached = rounds.rate(best)
        if abs(reached - price) < 1e-9 * price:
            break
        price = reached
    return best


def always(rounds: Rounds, schedule: int) -> NDArray[np.int64]:
    """Return one schedule for every round."""
    return np.full(len(rounds), schedule)
