"""Enumerates every schedule of a round at every place of a known text: what each drafts and how much is accepted.

In greedy decoding the target's continuation is fixed, so a tree's accepted length is its longest path that agrees with
it: no target forward is run. With every place of an answer known, any policy can be followed along its own path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.training.shared_middle import SharedMiddle
from harness.training.traces import ScheduleOutcome, TracedRound, traced_places
from methods.core.generation import Forward, Round
from methods.method import Models
from methods.schedulers.scheduler import DraftState
from methods.schedulers.signals import read_lookup, read_tree
from methods.settings import Settings
from methods.treegraft.growth import is_exhausted, round_rows, take_step
from methods.treegraft.method import SMALL_DRAFTERS, middle_drafter, prefill_estimate, root_state


@dataclass(slots=True, eq=False)
class _Branch:
    """A schedule as far as it was drafted."""

    state: DraftState
    middle: SharedMiddle
    asked: str = ""

    def fork(self) -> _Branch:
        return _Branch(self.state.fork(), self.middle.fork(), self.asked)


class Enumerator:
    """Drafts every schedule of a round, with the drafters and steps of TreeGraft.

    Args:
        models: the pair's, with a middle drafter; the target runs a prefill at most, for `estimate: prefill`.
        settings: the method's, with a traceable small drafter; the scheduler is ignored.
    """

    def __init__(self, models: Models, settings: Settings) -> None:
        self._target, self._settings = models.target, settings
        self._prefill_estimate = prefill_estimate(settings)
        self._small = SMALL_DRAFTERS[settings.small].for_settings(models, settings, self._prefill_estimate)
        self._middle = middle_drafter(models, settings, SharedMiddle)

    def trace(self, prompt_ids: Sequence[int], token_ids: Sequence[int], max_new_tokens: int) -> Iterator[TracedRound]:
        """Yield a round for every token of an answer where decoding drafts: not where only one may still come.

        An answer that ended by itself drafted beyond its end. Traces assume that the middle drafter's KV cache is
        current, as if the round before had called it; policies that did not call pay for catching up.

        Args:
            prompt_ids: the prompt.
            token_ids: the target's greedy answer.
            max_new_tokens: the limit of that answer.
        """
        capacity = len(prompt_ids) + max_new_tokens + self._settings.budget + 1
        if self._prefill_estimate is not None:
            self._target.begin(capacity)
            self._prefill_estimate.prefill(self._target, prompt_ids[:-1], prompt_ids)
        self._small.begin(prompt_ids, capacity)
        self._middle.begin(prompt_ids, capacity + (round_rows(self._settings) << self._settings.steps))
        context = list(prompt_ids)
        for done, token in enumerate(token_ids[: traced_places(len(token_ids), max_new_tokens)]):
            yield self._traced(context, token_ids[done:], max_new_tokens - done)
            self._middle.see(context)
            context.append(token)
            self._small.advance([token], [])

    def _traced(self, context: Sequence[int], continuation: Sequence[int], remaining: int) -> TracedRound:
        self._middle.begin_round(context)
        root = root_state(context, self._small)
        lookup = read_lookup(root.root_evidence())
        live, ended = [_Branch(root, self._middle)], list[_Branch]()
        signals: dict[str, list[float]] = {}
        for step in range(1, self._settings.steps + 1):
            deciding: list[_Branch] = []
            for branch in live:
                branch.state.step = step
                (ended if is_exhausted(branch.state, self._settings, has_middle=True) else deciding).append(branch)
            for branch in deciding:
                signals[branch.asked] = read_tree(branch.state.tree, branch.state.frontier, self._settings)
            skipping = [branch.fork() for branch in deciding]
            self._prepare(deciding)
            live = []
            for skips, calls in zip(skipping, deciding, strict=True):
                for branch, drafter in ((skips, self._small), (calls, calls.middle)):
                    branch.asked += "1" if drafter is branch.middle else "0"
                    goes_on = take_step(branch.state, drafter, self._settings.cap)
                    (live if goes_on else ended).append(branch)
        outcomes = [self._outcome(branch, context, continuation, remaining) for branch in (*ended, *live)]
        return TracedRound(len(context), sorted(outcomes, key=lambda one: one.asked), signals, lookup)

    def _prepare(self, calling: Sequence[_Branch]) -> None:
        """Evaluate all nodes that the branches' middle steps need, in one forward."""
        fitting = [branch for branch in calling if branch.middle.fits(branch.state.tree, branch.state.frontier)]
        wanted = [node for one in fitting for node in one.middle.wanted(one.state.tree, one.state.frontier)]
        if wanted:
            fitting[0].middle.prepare(wanted)

    def _outcome(
        self, branch: _Branch, context: Sequence[int], continuation: Sequence[int], remaining: int
    ) -> ScheduleOutcome:
        deepest = min(remaining - 1, self._target.max_positions - len(context))
        tree = branch.state.tree.prune(self._settings.budget, deepest)
        path = tree.follow(continuation)
        forwards = [*branch.state.forwards, Forward("target", None, len(tree), len(context) - 1)]
        record = Round(branch.state.calls, len(tree) - 1, len(path) - 1, forwards, tree.by_middle(path))
        return ScheduleOutcome(branch.asked, min(len(path), len(continuation)), record)
