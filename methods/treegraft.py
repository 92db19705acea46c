"""TreeGraft: two drafters of different cost grow one tree; a scheduler says which of them takes a step."""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import UserError
from methods.core.generation import Forward
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.drafters.middle import MiddleDrafter
from methods.drafters.neural import common_vocabulary
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
        UserError: the scheduler may call a middle drafter that the pair does not have.
    """

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        self._scheduler = make_scheduler(settings)
        self._calls: list[int] = []
        self._middle: MiddleDrafter | None = None
        if settings.scheduler != "never":
            if models.middle is None:
                raise UserError(models.no_middle)
            self._middle = MiddleDrafter(
                models.middle,
                width=settings.width,
                vocabulary=common_vocabulary(models.target, models.middle),
                look_back=settings.look_back,
                reselect=settings.reselect,
                non_destructive=settings.non_destructive,
            )

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Prefill target and middle, index the prompt."""
        self._small = self._make_small(context)
        forwards = [Forward("target", None, len(context) - 1, 0)]
        if self._middle is not None:
            self._middle.begin(context, capacity + self.settings.cap)
            forwards.append(Forward("middle", None, self._middle.model.length, 0))
        return [forward for forward in forwards if forward.tokens]

    def _make_small(self, context: Sequence[int]) -> NgramDrafter:
        """Prefill the target, whose probabilities the small drafter may want; return that drafter, ready."""
        settings, target = self.settings, self.models.target
        estimate: Estimate = counts_estimate
        if settings.estimate == "prefill":
            estimate = scored = PrefillEstimate(settings.width)
            scored.prefill(target, context[:-1], context)
        else:
            target.prefill(context[:-1])
        small = NgramDrafter(
            settings.longest_match, settings.width, settings.exhaustion, estimate, raise_scores=settings.raise_scores
        )
        small.begin(context)
        return small

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the pruned tree of up to `steps` drafting steps."""
        state = DraftState(DraftTree(context[-1]), [0])
        if self._middle is not None:
            self._middle.begin_round(context)
        for state.step in range(1, self.settings.steps + 1):
            if not self._step(state, context, watch, forwards):
                break
        self._calls = state.calls
        deepest = min(remaining - 1, self.models.target.max_positions - len(context))
        return state.tree.prune(self.settings.budget, deepest)

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Stopwatch) -> None:
        """Let the index grow with the context; keep the middle's KV rows of the accepted path."""
        with watch.span("small"):
            self._small.advance(new)
        if self._middle is not None:
            with watch.span("middle"):
                self._middle.commit(accepted)

    def schedule(self) -> list[int] | None:
        """Return the round's schedule, one bit for each step taken."""
        return self._calls

    def _step(self, state: DraftState, context: Sequence[int], watch: Stopwatch, forwards: list[Forward]) -> bool:
        """Take one drafting step; return False where drafting ends instead."""
        settings, middle = self.settings, self._middle
        release = settings.exhaustion == "release"
        if not state.frontier and (release or middle is None):
            return False
        if release and state.tree.held >= settings.cap:
            return False
        with watch.span("scheduler"):
            call = middle is not None and self._scheduler.should_call(state)
        if call:
            assert middle is not None
            if not middle.fits(state.tree):
                return False
            with watch.span("middle"):
                seen = middle.model.length + middle.model.pending
                state.frontier, evaluated = middle.extend(state.tree, state.frontier, state.step, settings.cap)
            if evaluated:
                forwards.append(Forward("middle", state.step, evaluated, seen))
        elif state.frontier:
            with watch.span("small"):
                forwards.append(Forward("small", state.step, len(state.frontier), len(context)))
                state.frontier = self._small.extend(state.tree, state.frontier, state.step, settings.cap)
        state.calls.append(int(call))
        return True
