"""TreeGraft: two drafters of different cost grow one tree; a scheduler says which of them takes a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Literal

from harness.errors import UserError
from methods.catalog import NO_SMALL
from methods.core.generation import Forward
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.drafters.middle import MiddleDrafter
from methods.drafters.neural import NeuralDrafter, NeuralSmallDrafter, common_vocabulary
from methods.drafters.ngram import Estimate, NgramDrafter, counts_estimate
from methods.drafters.prefill_estimate import PrefillEstimate
from methods.method import Models, register_method
from methods.schedulers.scheduler import DraftState, make_scheduler
from methods.settings import Settings
from methods.tree_method import TreeMethod


@register_method("treegraft")
class TreeGraft(TreeMethod):
    """The engine with both drafters; endpoints, ablations and presets are its settings.

    Raises:
        UserError: the settings ask for a neural drafter that the pair does not have.
    """

    middle_drafter = MiddleDrafter
    """The class of its middle drafter."""

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        self._scheduler = make_scheduler(settings)
        self._calls: list[int] = []
        self._middle = None if settings.scheduler == "never" else _middle(models, settings, self.middle_drafter)
        self._lookup: NgramDrafter | None = None
        self._small_model = None if settings.small == "ngram" else _small_model(models, settings)
        self.drafted = DraftTree(0)
        """The last round's tree before it was pruned."""

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Prefill target and drafters, index the prompt."""
        self._scheduler.begin(len(context), self.latency)
        if self._small_model is None:
            self._lookup = self._indexed(context)
        else:
            self.models.target.prefill(context[:-1])
        forwards = [Forward("target", None, len(context) - 1, 0)]
        for role, drafter in self._neural():
            drafter.begin(context, capacity + self.round_rows)
            forwards.append(Forward(role, None, drafter.model.length, 0))
        return [forward for forward in forwards if forward.tokens]

    @property
    def round_rows(self) -> int:
        """KV rows that a round's drafting may need in a neural drafter."""
        settings = self.settings
        return settings.cap * (1 if settings.non_destructive else settings.steps)  # deleted nodes' rows stay

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the pruned tree of up to `steps` drafting steps, none where only one token may still come."""
        state = self._root(context)
        for _, drafter in self._neural():
            drafter.begin_round(context)
        for state.step in range(1, self.settings.steps + 1 if remaining > 1 else 1):
            if not self._step(state, context, watch, forwards):
                break
        self._calls, self.drafted = state.calls, state.tree
        return self._pruned(state.tree, context, remaining)

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Stopwatch) -> None:
        """Let the index grow with the context; keep the neural drafters' KV rows of the accepted path."""
        if self._lookup is not None:
            with watch.span("small"):
                self._lookup.advance(new)
        for role, drafter in self._neural():
            with watch.span(role):
                drafter.commit(accepted)
        if self._middle is not None:
            with watch.span("scheduler"):
                self._scheduler.end_round(sum(self._calls), len(accepted) - 1)

    def schedule(self) -> list[int] | None:
        """Return the round's schedule, one bit for each step taken."""
        return self._calls

    def _pruned(self, tree: DraftTree, context: Sequence[int], remaining: int) -> DraftTree:
        deepest = min(remaining - 1, self.models.target.max_positions - len(context))
        return tree.prune(self.settings.budget, deepest)

    def _root(self, context: Sequence[int]) -> DraftState:
        tree = DraftTree(context[-1])
        if self._lookup is None:
            return DraftState(tree, [0])
        shares, evidence = partial(self._lookup.root_shares, tree), partial(self._lookup.root_evidence, tree)
        return DraftState(tree, [0], root_shares=shares, root_evidence=cache(evidence))

    def _step(self, state: DraftState, context: Sequence[int], watch: Stopwatch, forwards: list[Forward]) -> bool:
        """Take one drafting step; return False where drafting ends instead."""
        if self._is_over(state):
            return False
        call = False
        if self._middle is not None:
            with watch.span("scheduler"):
                call = self._scheduler.should_call(state)
        return self._take(state, call, context, watch, forwards)

    def _is_over(self, state: DraftState) -> bool:
        release = self.settings.exhaustion == "release"
        if not state.frontier and (release or self._middle is None):
            return True
        return release and state.tree.held >= self.settings.cap

    def _take(
        self, state: DraftState, call: bool, context: Sequence[int], watch: Stopwatch, forwards: list[Forward]
    ) -> bool:
        if call and not self._middle_step(state, watch, forwards):
            return False
        if not call and state.frontier and not self._small_step(state, context, watch, forwards):
            return False
        state.calls.append(int(call))
        return True

    def _middle_step(self, state: DraftState, watch: Stopwatch, forwards: list[Forward]) -> bool:
        middle = self._middle
        if middle is None or not middle.fits(state.tree):
            return False
        with watch.span("middle"):
            seen = middle.seen
            state.frontier, evaluated = middle.extend(state.tree, state.frontier, state.step, self.settings.cap)
        if evaluated:
            forwards.append(Forward("middle", state.step, evaluated, seen))
        return True

    def _small_step(self, state: DraftState, context: Sequence[int], watch: Stopwatch, forwards: list[Forward]) -> bool:
        tree, cap = state.tree, self.settings.cap
        if self._small_model is None:
            assert self._lookup is not None  # `begin` made it
            forwards.append(Forward("small", state.step, len(state.frontier), len(context)))
            with watch.span("small"):
                state.frontier = self._lookup.extend(tree, state.frontier, state.step, cap)
            return True
        if not self._small_model.fits(tree):
            return False
        with watch.span("small"):
            seen = self._small_model.seen
            state.frontier, evaluated = self._small_model.extend(tree, state.frontier, state.step, cap)
        if evaluated:
            forwards.append(Forward("small", state.step, evaluated, seen))
        return True

    def _indexed(self, context: Sequence[int]) -> NgramDrafter:
        """Prefill the target, whose probabilities the look-up drafter may want; return that drafter, ready."""
        settings, target = self.settings, self.models.target
        estimate: Estimate = counts_estimate
        if settings.estimate == "prefill":
            estimate = scored = PrefillEstimate(settings.width)
            scored.prefill(target, context[:-1], context)
        else:
            target.prefill(context[:-1])
        lookup = NgramDrafter(
            settings.longest_match, settings.width, settings.exhaustion, estimate, raise_scores=settings.raise_scores
        )
        lookup.begin(context)
        return lookup

    def _neural(self) -> Iterator[tuple[Literal["middle", "small"], NeuralDrafter]]:
        if self._middle is not None:
            yield "middle", self._middle
        if self._small_model is not None:
            yield "small", self._small_model


def _middle(models: Models, settings: Settings, kind: type[MiddleDrafter]) -> MiddleDrafter:
    if models.middle is None:
        raise UserError(models.no_middle)
    return kind(
        models.middle,
        width=settings.width,
        vocabulary=common_vocabulary(models.target, models.middle),
        look_back=settings.look_back,
        reselect=settings.reselect,
        non_destructive=settings.non_destructive,
    )


def _small_model(models: Models, settings: Settings) -> NeuralSmallDrafter:
    if models.small is None:
        raise UserError(NO_SMALL)
    vocabulary = common_vocabulary(models.target, models.small)
    return NeuralSmallDrafter(models.small, width=settings.width, vocabulary=vocabulary)
