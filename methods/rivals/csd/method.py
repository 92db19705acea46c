"""Cascade Speculative Drafting (Chen et al., 2023): the middle reviews copied text, and copies continue behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foundation.errors import UserError
from methods.core.generation import Forward
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.drafters.drafter import Drafter
from methods.drafters.neural import common_vocabulary
from methods.method import Models, register_method
from methods.rivals.csd.cascade import CascadeOptions, Draft, Drafted, cascade, longest_draft, most_proposed
from methods.rivals.csd.facts import FACTS
from methods.rivals.csd.max_gram import MaxGram
from methods.rivals.csd.verifier import CascadeVerifier, drafted_path
from methods.settings import Settings
from methods.tree_method import TreeMethod


@register_method("csd")
class CascadeDrafting(TreeMethod):
    """Drafts a chain by a cascade, which the target verifies like any tree; raises UserError without a middle drafter.

    `drafted` holds all tokens proposed in the last round; the chain sent is one of its paths.
    """

    facts = FACTS["csd"]

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        options = settings.options_as(CascadeOptions, "csd")
        if models.middle is None:
            raise UserError(models.no_middle)
        self._k = options.k
        vocabulary = common_vocabulary(models.target, models.middle)
        self._middle = CascadeVerifier(models.middle, vocabulary=vocabulary, leniency=options.leniency)
        self._copier = MaxGram()
        self.drafted = DraftTree(0)

    @property
    def drafters(self) -> Sequence[Drafter]:
        """The reviewing middle drafter, and Max-Gram."""
        return self._middle, self._copier

    @property
    def round_rows(self) -> int:
        """KV rows of all tokens that a cascade may write."""
        return most_proposed(self._k)

    @property
    def max_draft_tokens(self) -> int:
        """The longest chain that the cascade can draft."""
        return longest_draft(self._k)

    def draft(self, context: Sequence[int], remaining: int, watch: Stopwatch, forwards: list[Forward]) -> DraftTree:
        """Return the cascade's chain, empty if the middle's context has no room for the root."""
        self._middle.begin_round(context)
        self.drafted = DraftTree(context[-1])
        target, middle = self.models.target.max_positions, self._middle.model.max_positions
        # The middle never evaluates the last token.
        limit = min(remaining - 1, target - len(context), middle + 1 - len(context))
        work = _Work(self.drafted, self._middle, self._copier, len(context), watch, forwards)
        chain = cascade([work.review], work.propose, [], self._k, limit)
        return self.drafted.subtree(drafted_path(self.drafted, chain))


@dataclass(frozen=True, slots=True)
class _Work:
    """The drafters of a round, timed and counted."""

    tree: DraftTree
    middle: CascadeVerifier
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
