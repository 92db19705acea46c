"""Every schedule of a round at once, along a known text: what each would have drafted and got accepted.

In greedy decoding the target's continuation is fixed, so that a tree's accepted length is its longest path that agrees
with it: no target forward is run. Rounds begin where decoding under the method's own scheduler would begin them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from methods.core.generation import Forward, Round
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.drafters.shared_middle import SharedMiddle
from methods.method import Models
from methods.schedulers.scheduler import DraftState
from methods.schedulers.signals import read_tree
from methods.settings import Settings
from methods.treegraft import TreeGraft


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one schedule makes of a round."""

    asked: str
    """The schedule as far as drafting went, one bit a step, the step that ended it included."""
    committed: int
    """Tokens committed, the bonus token among them."""
    record: Round
    """The round, as decoding would have recorded it."""


@dataclass(frozen=True, slots=True)
class TracedRound:
    """One round under every schedule."""

    context: int
    """Committed tokens before it, the prompt's included."""
    taken: str
    """The schedule that the trajectory took, as `Outcome.asked`."""
    outcomes: list[Outcome]
    """One for each schedule; schedules that coincide after drafting ended early stand once."""
    signals: dict[str, list[float]]
    """For each prefix of a schedule after which a step is decided on: the signals of the tree."""


@dataclass(slots=True, eq=False)
class _Branch:
    """A schedule as far as it was drafted."""

    state: DraftState
    middle: SharedMiddle
    taken: bool
    """Whether the trajectory follows it so far."""
    asked: str = ""
    forwards: list[Forward] = field(default_factory=list)

    def fork(self) -> _Branch:
        return _Branch(self.state.fork(), self.middle.fork(), self.taken, self.asked, list(self.forwards))


class Enumerator(TreeGraft):
    """Drafts every schedule of a round; the settings' scheduler says which one decoding goes on with.

    Args:
        models: the pair's models; nothing but their vocabulary and length is asked of the target.
        settings: the method's parameters, with a scheduler that may call the middle drafter.
    """

    middle_drafter = SharedMiddle

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        self._leaves: list[_Branch] = []
        self._signals: dict[str, list[float]] = {}

    def trace(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], max_new_tokens: int, *, every: int = 1
    ) -> Iterator[TracedRound]:
        """Yield the rounds of an answer, each under every schedule.

        Args:
            prompt_ids: the prompt.
            token_ids: the target's greedy answer to it.
            max_new_tokens: what it was decoded with.
            every: of so many rounds one is enumerated; the others follow the scheduler alone.
        """
        self._every, self._count = every, 0
        done = 0
        _, rounds = self.redraft(prompt_ids, token_ids, max_new_tokens)
        for tree, _ in rounds:
            if self._leaves and self._signals:
                yield self._traced(len(prompt_ids) + done, token_ids[done:])
            done += len(tree.follow(token_ids[done:]))

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the pruned tree of the schedule that the scheduler chose; keep those of all others."""
        self._leaves, self._signals = [], {}
        self._count += 1
        state = self._root(context)
        middle = self._shared()
        middle.begin_round(context)
        live = [_Branch(state, middle, taken=True)]
        for step in range(1, self.settings.steps + 1 if remaining > 1 else 1):
            live = self._advanced(live, step, context, watch)
        self._leaves += live
        chosen = next(branch for branch in self._leaves if branch.taken)
        self._middle, self._calls, self.drafted = chosen.middle, chosen.state.calls, chosen.state.tree
        forwards += chosen.forwards
        self._trees = [self._pruned(branch.state.tree, context, remaining) for branch in self._leaves]
        return self._trees[self._leaves.index(chosen)]

    @property
    def round_rows(self) -> int:
        """KV rows that all schedules of a round may need together."""
        return super().round_rows << self.settings.steps

    def _shared(self) -> SharedMiddle:
        assert isinstance(self._middle, SharedMiddle)  # made by `middle_drafter`
        return self._middle

    def _advanced(self, live: Sequence[_Branch], step: int, context: Sequence[int], watch: Stopwatch) -> list[_Branch]:
        """Take a step in every branch, both ways where the round is enumerated; return those that go on."""
        asked: list[tuple[_Branch, bool]] = []
        for branch in live:
            branch.state.step = step
            if self._is_over(branch.state):
                self._leaves.append(branch)
                continue
            choice = branch.taken and self._scheduler.should_call(branch.state)
            if self._count % self._every:
                asked.append((branch, choice))
                continue
            self._signals[branch.asked] = read_tree(branch.state.tree, branch.state.frontier, self.settings)
            other = branch.fork()
            other.taken, branch.taken = branch.taken and not choice, branch.taken and choice
            asked += [(other, False), (branch, True)]
        self._prepare([branch for branch, call in asked if call])
        grown: list[_Branch] = []
        for branch, call in asked:
            branch.asked += str(int(call))
            self._middle = branch.middle
            goes_on = self._take(branch.state, call, context, watch, branch.forwards)
            (grown if goes_on else self._leaves).append(branch)
        return grown

    def _prepare(self, calling: Sequence[_Branch]) -> None:
        fitting = [branch for branch in calling if branch.middle.fits(branch.state.tree)]
        wanted = [node for one in fitting for node in one.middle.wanted(one.state.tree, one.state.frontier)]
        if wanted:
            fitting[0].middle.prepare(wanted)

    def _traced(self, context: int, continuation: Sequence[int]) -> TracedRound:
        outcomes = []
        for branch, tree in zip(self._leaves, self._trees, strict=True):
            path = tree.follow(continuation)
            target = Forward("target", None, len(tree), context - 1)
            middle = sum(tree.origins[node] == "middle" for node in path)
            record = Round(branch.state.calls, len(tree) - 1, len(path) - 1, [*branch.forwards, target], middle)
            outcomes.append(Outcome(branch.asked, min(len(path), len(continuation)), record))
        taken = next(branch.asked for branch in self._leaves if branch.taken)
        return TracedRound(context, taken, sorted(outcomes, key=lambda one: one.asked), dict(self._signals))
