"""Cascade Speculative Drafting (Chen et al., 2023): the middle reviews copied text, and copies go on behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import UserError
from methods.core.generation import Forward
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.drafters.cascade import Draft, Drafted, cascade, cascade_options, longest_draft, most_proposed
from methods.drafters.max_gram import MaxGram
from methods.drafters.neural import common_vocabulary
from methods.drafters.reviewer import Reviewer, drafted_path
from methods.method import Models, register_method
from methods.settings import Settings
from methods.tree_method import TreeMethod


@register_method("csd")
class CascadeDrafting(TreeMethod):
    """The engine with a chain that a cascade drafts; the target reviews it exactly, as it does any tree.

    Raises:
        UserError: the pair has no middle drafter, or the options are not usable.
    """

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        options = cascade_options(settings)
        if models.middle is None:
            raise UserError(models.no_middle)
        self._k = options.k
        vocabulary = common_vocabulary(models.target, models.middle)
        self._middle = Reviewer(models.middle, vocabulary=vocabulary, leniency=options.leniency)
        self._copier = MaxGram()
        self.drafted = DraftTree(0)
        """All that was proposed in the last round; the chain that was sent is one of its paths."""

    @property
    def most_sent(self) -> int:
        """The longest chain that the cascade can draft."""
        return longest_draft(self._k)

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Prefill target and middle, read the prompt."""
        forwards = super().begin(context, capacity)
        self._middle.begin(context, capacity + most_proposed(self._k))
        if self._middle.model.length:
            forwards.append(Forward("middle", None, self._middle.model.length, 0))
        self._copier.begin(context)
        return forwards

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the cascade's chain; it is empty where the middle's context has no room for the root."""
        self._middle.begin_round(context)
        self.drafted = DraftTree(context[-1])
        target, middle = self.models.target.max_positions, self._middle.model.max_positions
        # The last token is never put into the middle.
        limit = min(remaining - 1, target - len(context), middle + 1 - len(context))
        work = _Work(self.drafted, self._middle, self._copier, len(context), watch, forwards)
        chain = cascade([work.review], work.propose, [], self._k, limit)
        return self.drafted.subtree(drafted_path(self.drafted, chain))

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Stopwatch) -> None:
        """Let the copied text grow with the context; keep the middle's KV rows of the accepted path."""
        with watch.span("small"):
            self._copier.advance(new)
        with watch.span("middle"):
            self._middle.commit(accepted)


@dataclass(frozen=True, slots=True)
class _Work:
    """The drafters at work in a round, timed and counted."""

    tree: DraftTree
    middle: Reviewer
    copier: MaxGram
    context: int
    watch: Stopwatch
    forwards: list[Forward]

    def review(self, draft: Draft, start: int) -> Draft:
        with self.watch.span("middle"):
            seen = self.middle.seen
            reviewed, evaluated = self.middle.review(self.tree, draft, start)
        if evaluated:
            self.forwards.append(Forward("middle", len(self.forwards) + 1, evaluated, seen))
        return reviewed

    def propose(self, draft: Draft, count: int) -> Draft:
        with self.watch.span("small"):
            copied = self.copier.propose([one.token for one in draft], count)
        self.forwards.append(Forward("small", len(self.forwards) + 1, 1, self.context + len(draft)))
        return [*draft, *(Drafted(token, 0.0) for token in copied)]
