"""Every schedule of a round at once, at every place of a known text: what each would have drafted and got accepted.

In greedy decoding the target's continuation is fixed, so that a tree's accepted length is its longest path that agrees
with it: no target forward is run. With every place of an answer known, any policy can be followed along its own path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from methods.core.generation import Forward, Round
from methods.core.stopwatch import Stopwatch
from methods.drafters.shared_middle import SharedMiddle
from methods.schedulers.scheduler import DraftState
from methods.schedulers.signals import read_lookup, read_tree
from methods.treegraft import TreeGraft
from methods.value_system.traces import traced_places


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
    """A round that begins at one place of an answer, under every schedule."""

    context: int
    """Committed tokens before it, the prompt's included."""
    outcomes: list[Outcome]
    """One for each schedule; schedules that coincide after drafting ended early stand once."""
    signals: dict[str, list[float]]
    """For each prefix of a schedule after which a step is decided on: the signals of the tree."""
    lookup: list[float]
    """The signals of what look-up found for the root."""


@dataclass(slots=True, eq=False)
class _Branch:
    """A schedule as far as it was drafted."""

    state: DraftState
    middle: SharedMiddle
    asked: str = ""
    forwards: list[Forward] = field(default_factory=list)

    def fork(self) -> _Branch:
        return _Branch(self.state.fork(), self.middle.fork(), self.asked, list(self.forwards))


class Enumerator(TreeGraft):
    """Drafts every schedule of a round.

    Args:
        models: the pair's models; nothing but their vocabulary and length is asked of the target.
        settings: the method's parameters, with any scheduler that may call the middle drafter; it is not asked.
    """

    middle_drafter = SharedMiddle

    def trace(self, prompt_ids: Sequence[int], token_ids: Sequence[int], max_new_tokens: int) -> Iterator[TracedRound]:
        """Yield a round for every token of an answer where decoding drafts: not where only one may still come.

        An answer that ended by itself drafted beyond its end. The middle drafter has seen what it would have seen if
        the round before had called it.

        Args:
            prompt_ids: the prompt.
            token_ids: the target's greedy answer to it.
            max_new_tokens: what it was decoded with.
        """
        capacity = self._capacity(prompt_ids, max_new_tokens)
        self.models.target.begin(capacity)
        self.begin(prompt_ids, capacity)
        assert self._lookup is not None  # a neural small drafter has none, and is refused where runs are traced
        context = list(prompt_ids)
        for done, token in enumerate(token_ids[: traced_places(len(token_ids), max_new_tokens)]):
            yield self._traced(context, token_ids[done:], max_new_tokens - done)
            self._shared().see(context)
            context.append(token)
            self._lookup.advance([token])

    @property
    def round_rows(self) -> int:
        """KV rows that all schedules of a round may need together."""
        return super().round_rows << self.settings.steps

    def _shared(self) -> SharedMiddle:
        assert isinstance(self._middle, SharedMiddle)  # made by `middle_drafter`
        return self._middle

    def _traced(self, context: Sequence[int], continuation: Sequence[int], remaining: int) -> TracedRound:
        middle = self._shared()
        middle.begin_round(context)
        root = self._root(context)
        lookup = read_lookup(root.root_evidence())
        live, ended = [_Branch(root, middle)], list[_Branch]()
        signals: dict[str, list[float]] = {}
        for step in range(1, self.settings.steps + 1):
            asked: list[tuple[_Branch, bool]] = []
            for branch in live:
                branch.state.step = step
                if self._is_over(branch.state):
                    ended.append(branch)
                    continue
                signals[branch.asked] = read_tree(branch.state.tree, branch.state.frontier, self.settings)
                asked += [(branch.fork(), False), (branch, True)]
            self._prepare([branch for branch, call in asked if call])
            live = []
            for branch, call in asked:
                branch.asked += str(int(call))
                self._middle = branch.middle
                goes_on = self._take(branch.state, call, context, _UNTIMED, branch.forwards)
                (live if goes_on else ended).append(branch)
        outcomes = [self._outcome(branch, context, continuation, remaining) for branch in (*ended, *live)]
        return TracedRound(len(context), sorted(outcomes, key=lambda one: one.asked), signals, lookup)

    def _prepare(self, calling: Sequence[_Branch]) -> None:
        """Evaluate what all the branches' middle steps need in one forward."""
        fitting = [branch for branch in calling if branch.middle.fits(branch.state.tree)]
        wanted = [node for one in fitting for node in one.middle.wanted(one.state.tree, one.state.frontier)]
        if wanted:
            fitting[0].middle.prepare(wanted)

    def _outcome(self, branch: _Branch, context: Sequence[int], continuation: Sequence[int], remaining: int) -> Outcome:
        tree = self._pruned(branch.state.tree, context, remaining)
        path = tree.follow(continuation)
        target = Forward("target", None, len(tree), len(context) - 1)
        forwards = [*branch.forwards, target]
        record = Round(branch.state.calls, len(tree) - 1, len(path) - 1, forwards, tree.by_middle(path))
        return Outcome(branch.asked, min(len(path), len(continuation)), record)


_UNTIMED = Stopwatch(spans=False)
