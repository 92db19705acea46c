"""TreeGraft: two drafters of different cost grow one tree; a scheduler decides which of them takes a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TypeVar

from foundation.errors import UserError
from methods.core.generation import Forward
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.drafters.drafter import SmallDrafter, TreeDrafter
from methods.drafters.middle import MiddleDrafter
from methods.drafters.neural import NeuralSmallDrafter, common_vocabulary
from methods.drafters.ngram import NgramDrafter
from methods.drafters.prefill_estimate import PrefillEstimate
from methods.method import Models, register_method
from methods.schedulers.scheduler import DraftState, make_scheduler
from methods.settings import Settings
from methods.tree_method import TreeMethod
from methods.treegraft.facts import FACTS
from methods.treegraft.growth import is_exhausted, round_rows, take_step

Middle = TypeVar("Middle", bound=MiddleDrafter)

SMALL_DRAFTERS: dict[str, type[SmallDrafter]] = {"ngram": NgramDrafter, "neural": NeuralSmallDrafter}
"""By the value of `small` in `Settings`."""


@register_method("treegraft")
class TreeGraft(TreeMethod):
    """The engine with both drafters (TreeGraft, 2026); endpoints, ablations and presets are settings of it.

    Attributes:
        small: takes small steps.
        middle: takes middle steps; None if it is never called.
        drafted: the last round's tree before it was pruned.

    Raises:
        UserError: the settings need a neural drafter that the pair does not have.
    """

    facts = FACTS["treegraft"]

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        self._prefill_estimate = prefill_estimate(settings)
        self._scheduler = make_scheduler(settings)
        self._calls: list[int] = []
        self.middle = None if settings.scheduler == "never" else middle_drafter(models, settings, MiddleDrafter)
        self.small = SMALL_DRAFTERS[settings.small].for_settings(models, settings, self._prefill_estimate)
        self.drafted = DraftTree(0)

    @property
    def drafters(self) -> Sequence[TreeDrafter]:
        """The middle drafter, if it may be called, and the small one."""
        return (self.small,) if self.middle is None else (self.middle, self.small)

    @property
    def round_rows(self) -> int:
        """KV rows that a round's drafting may need in a neural drafter."""
        return round_rows(self.settings)

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Prefill target and drafters, index the prompt."""
        self._scheduler.begin(len(context), self.latency)
        return super().begin(context, capacity)

    def prefill_target(self, context: Sequence[int]) -> None:
        """Prefill the target; pass its probabilities to the look-up drafter if that scores by them."""
        if self._prefill_estimate is None:
            super().prefill_target(context)
        else:
            self._prefill_estimate.prefill(self.models.target, context[:-1], context)

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the pruned tree of up to D drafting steps, none if only one token may still come."""
        state = self._begin_round(context)
        steps = self.settings.steps if remaining > 1 else 0
        for state.step in range(1, steps + 1):
            if is_exhausted(state, self.settings, self.middle is not None):
                break
            drafter = self._who_drafts(state, watch)
            with watch.span(drafter.role):
                if not take_step(state, drafter, self.settings.cap):
                    break
        self._calls, self.drafted = state.calls, state.tree
        forwards += state.forwards
        deepest = min(remaining - 1, self.models.target.max_positions - len(context))
        return state.tree.prune(self.settings.budget, deepest)

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Stopwatch) -> None:
        """Pass the committed tokens to drafters and scheduler."""
        super().advance(new, accepted, watch)
        if self.middle is not None:
            with watch.span("scheduler"):
                self._scheduler.end_round(sum(self._calls), len(accepted) - 1)

    def schedule(self) -> list[int] | None:
        """Return the round's schedule, one bit per step taken."""
        return self._calls

    def _begin_round(self, context: Sequence[int]) -> DraftState:
        for drafter in self.drafters:
            drafter.begin_round(context)
        return root_state(context, self.small)

    def _who_drafts(self, state: DraftState, watch: Stopwatch) -> TreeDrafter:
        """Return the drafter of the next step."""
        if self.middle is None:
            return self.small
        with watch.span("scheduler"):
            return self.middle if self._scheduler.should_call(state) else self.small


def root_state(context: Sequence[int], small: SmallDrafter) -> DraftState:
    """Return a round before its first step, rooted in the last token of `context`; schedulers may query `small`."""
    tree = DraftTree(context[-1])
    shares, evidence = partial(small.root_shares, tree), partial(small.root_evidence, tree)
    return DraftState(tree, [0], root_shares=shares, root_evidence=cache(evidence))


def middle_drafter(models: Models, settings: Settings, kind: type[Middle]) -> Middle:
    """Return a pair's middle drafter as a `kind`; raises UserError if it has none."""
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


def prefill_estimate(settings: Settings) -> PrefillEstimate | None:
    """Return the estimate by the target's prefill, None where the small drafter does not score by it."""
    scores_by_it = SMALL_DRAFTERS[settings.small].scores_by_estimate and settings.estimate == "prefill"
    return PrefillEstimate(settings.width) if scores_by_it else None
