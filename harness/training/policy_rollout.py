"""Policy rollout: traced rounds as arrays, and the results of policies along their own paths.

Every place of an answer is a row: the round that begins there. Schedules are numbered like a heap: 1 is the state
before step 1; after state s, 2s skips and 2s + 1 calls. With D steps the states are 1 to 2^D - 1, the schedules 2^D
to 2^(D+1) - 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Schedules = NDArray[np.int64]
"""For each round, a schedule by heap number."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Traced rounds under one clock, the places of an answer in a row.

    Attributes:
        steps: drafting steps (D).
        committed: tokens that each schedule commits, [rounds, 2^(D+1)], by heap number; states' columns mean nothing.
        cost: time of each schedule, in verifications (T_tgt), shaped alike.
        calls: middle calls of each schedule, shaped alike; fewer than its bits where drafting ended early.
        signals: signals of each state, [rounds, 2^D, signals]; NaN where nothing is decided.
        names: the signals' names.
        left: tokens of the answer from this place on, [rounds]: its length at its first place, 1 at its last.
        prompts: a number of its question, [rounds].
        tasks: its task, [rounds].
        catch_up: extra time of a call per token that the middle drafter has yet to read, in verifications, [rounds].
        most_calls: B0.
    """

    steps: int
    committed: NDArray[np.int64]
    cost: Floats
    calls: NDArray[np.int64]
    signals: Floats
    names: tuple[str, ...]
    left: NDArray[np.int64]
    prompts: NDArray[np.int64]
    tasks: NDArray[np.str_]
    catch_up: Floats
    most_calls: int

    def __len__(self) -> int:
        """Return the number of rounds."""
        return len(self.left)

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
        """Return in which rounds a state has a decision, [rounds]."""
        return ~np.isnan(self.signals[:, state, 0])

    def part(self, chosen: Bools) -> Rounds:
        """Return some of the rounds: whole answers, or their rest from a place on."""
        rows = ("committed", "cost", "calls", "signals", "left", "prompts", "tasks", "catch_up")
        return replace(self, **{name: getattr(self, name)[chosen] for name in rows})

    def without(self, names: Sequence[str]) -> Rounds:
        """Return the same rounds without some signals."""
        kept = [place for place, name in enumerate(self.names) if name not in names]
        return replace(self, signals=self.signals[:, :, kept], names=tuple(self.names[place] for place in kept))

    def outcome(self, decisions: Bools) -> Schedules:
        """Return each round's schedule under decisions to call, [rounds, 2^D]."""
        state = np.ones(len(self), dtype=np.int64)
        rows = np.arange(len(self))
        for _ in range(self.steps):
            state = 2 * state + decisions[rows, state]
        return state

    def time_to_go(self, schedules: NDArray[np.int64]) -> Floats:
        """Return the time from each place to its answer's end, in verifications, along a policy's own path.

        `schedules` is a policy's at every place, [rounds], or several policies', [rounds, policies].
        """
        several = schedules.reshape(len(self), -1)
        time = np.zeros(several.shape)
        for rows in self._from_the_end():
            own = several[rows]
            time[rows] = self.cost[rows[:, None], own] + self._behind(time, rows, self.committed[rows[:, None], own])
        return time.reshape(schedules.shape)

    def worth(self, time: Floats) -> Floats:
        """Return minus the time to the end of each schedule, [rounds, 2^(D+1)], if the rest takes `time` [rounds]."""
        worth = np.zeros(self.cost.shape)
        columns = np.array(self.schedules)
        for rows in self._from_the_end():
            behind = self._behind(time[:, None], rows, self.committed[np.ix_(rows, columns)])
            worth[np.ix_(rows, columns)] = -(self.cost[np.ix_(rows, columns)] + behind)
        return worth

    def hindsight(self) -> Schedules:
        """Return the fastest schedule at every place, known afterwards: no policy's path is faster."""
        columns = np.array(self.schedules)
        time, best = np.zeros((len(self), 1)), np.zeros(len(self), dtype=np.int64)
        for rows in self._from_the_end():
            behind = self._behind(time, rows, self.committed[np.ix_(rows, columns)])
            whole = self.cost[np.ix_(rows, columns)] + behind
            best[rows] = columns[whole.argmin(axis=1)]
            time[rows, 0] = whole.min(axis=1)
        return best

    def visited(self, schedules: Schedules) -> Bools:
        """Return the places where a policy's path begins a round, [rounds]."""
        visited = np.zeros(len(self), dtype=np.bool_)
        first = 0
        for end in np.flatnonzero(self.left == 1).tolist():
            place = first
            while place <= end:
                visited[place] = True
                place += int(self.committed[place, schedules[place]])
            first = end + 1
        return visited

    def spent(self, schedules: Schedules) -> Floats:
        """Return the time of each round on a policy's own path, in verifications, and 0 off it, [rounds].

        Traced calls were charged as if the round before had called; here they also pay for the tokens that the middle
        drafter has yet to read since the policy called it last.
        """
        rows = np.flatnonzero(self.visited(schedules))
        spent = np.zeros(len(self))
        spent[rows] = self.cost[rows, schedules[rows]]
        first = np.append(True, self.left[:-1] == 1)
        unread, charged = 0, 0
        for row in rows.tolist():
            if first[row]:
                unread, charged = 0, 0
            if self.calls[row, schedules[row]]:
                spent[row] += self.catch_up[row] * (unread - charged)
                unread, charged = 0, 0
            else:
                unread += int(self.committed[row, schedules[row]])
                charged = int(first[row]) or charged  # before the first call, the trace charged for one of them
        return spent

    def rate(self, schedules: Schedules) -> float:
        """Return committed tokens a verification's time along a policy's own path: a ratio of sums."""
        first = np.append(True, self.left[:-1] == 1)
        return float(self.left[first].sum() / self.spent(schedules).sum())

    def without_catching_up(self) -> Rounds:
        """Return the same rounds with the middle drafter's KV cache always current: an upper bound, as hindsight is."""
        return replace(self, catch_up=np.zeros(len(self)))

    def rates_of(self, schedules: NDArray[np.int64]) -> Floats:
        """Return the rates [policies] of policies' schedules [rounds, policies], without the cost of catching up."""
        first = np.append(True, self.left[:-1] == 1)
        rates: Floats = self.left[first].sum() / self.time_to_go(schedules)[first].sum(axis=0)
        return rates

    def rates(self) -> Floats:
        """Return the rate of every fixed schedule, [2^(D+1)]; NaN for states."""
        columns = np.array(self.schedules)
        rates = np.full(2 ** (self.steps + 1), np.nan)
        rates[columns] = self.rates_of(np.broadcast_to(columns, (len(self), len(columns))))
        return rates

    def _from_the_end(self) -> Iterator[NDArray[np.int64]]:
        """Yield the places with one token left, then those with two, and so on."""
        order = np.argsort(self.left, kind="stable")
        yield from np.split(order, np.flatnonzero(np.diff(self.left[order])) + 1)

    def _behind(self, time: Floats, rows: NDArray[np.int64], committed: NDArray[np.int64]) -> Floats:
        """Return the time to go after tokens committed at some places, [places, policies]."""
        ended = committed >= self.left[rows][:, None]
        following = np.where(ended, rows[:, None], rows[:, None] + committed)
        policies = np.broadcast_to(np.arange(time.shape[1]), committed.shape) if time.shape[1] > 1 else 0
        behind: Floats = np.where(ended, 0.0, time[following, policies])
        return behind


def schedules_behind(asked: str, steps: int) -> slice:
    """Return the heap numbers of the schedules that begin with the bits `asked`."""
    left = steps - len(asked)
    first = int(f"1{asked}", 2) << left
    return slice(first, first + 2**left)


def calls_of(state: int) -> int:
    """Return the middle calls in a state or schedule, by heap number."""
    return state.bit_count() - 1


def bits_of(state: int) -> str:
    """Return a state or schedule by heap number as bits, one a step."""
    return f"{state:b}"[1:]


def always(rounds: Rounds, schedule: int) -> Schedules:
    """Return one schedule for every round."""
    return np.full(len(rounds), schedule)
