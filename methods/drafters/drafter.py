"""The drafter protocols: follow a prompt as tokens are committed, and extend a round's tree step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from foundation.roles import DrafterRole
from methods.core.generation import Forward
from methods.core.tree import DraftTree
from methods.drafters.ngram_index import Evidence
from methods.settings import Settings

if TYPE_CHECKING:
    from methods.method import Models

Estimate = Callable[[int, int, int, int], float]
"""Log-probability of a continuation from (position of its first token, match length, count, total)."""


class Drafter(Protocol):
    """A source of draft tokens; it keeps nothing from one prompt to the next."""

    role: DrafterRole
    """Its role; its time is charged to the phase of that name."""

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Forget the last prompt and read a new one.

        Args:
            context: the prompt.
            capacity: KV rows that the whole answer may need, drafting included.

        Returns:
            The forwards that were run.
        """

    def begin_round(self, context: Sequence[int]) -> None:
        """Start a round whose root is the last token of `context`."""

    def advance(self, new: Sequence[int], accepted: Sequence[int]) -> None:
        """Read what a round committed.

        Args:
            new: the committed tokens.
            accepted: the accepted path in node ids of the drafted tree, root first.
        """


class TreeDrafter(Drafter, Protocol):
    """A drafter that extends the frontier of a shared tree."""

    def fits(self, tree: DraftTree, frontier: Sequence[int]) -> bool:
        """Return whether its context has room for another step on this tree."""

    def extend(self, tree: DraftTree, frontier: Sequence[int], step: int, cap: int) -> tuple[list[int], Forward | None]:
        """Take one drafting step.

        Args:
            tree: the shared tree, which grows.
            frontier: nodes to draft from.
            step: drafting step, from 1.
            cap: most nodes that the tree may hold.

        Returns:
            The next frontier, and the forward or look-up that was run, None if there was none.
        """


class SmallDrafter(TreeDrafter, Protocol):
    """A drafter of small steps; subclass it to have its defaults."""

    scores_by_estimate: ClassVar[bool] = False
    """Whether it scores by `estimate` of the settings; else it is made without one."""
    is_traceable: ClassVar[bool] = False
    """Whether a step depends on context and tree alone, so that one drafter can take those of every schedule."""

    @classmethod
    def for_settings(cls, models: Models, settings: Settings, estimate: Estimate | None) -> Self:
        """Return the drafter of a method.

        Args:
            models: the pair's.
            settings: the method's.
            estimate: scores continuations; None scores them by counts.

        Raises:
            UserError: it needs a model that the pair does not have.
        """

    def root_shares(self, tree: DraftTree) -> Sequence[float]:
        """Return the shares of what it would draft from the root, best first; none where it cannot tell beforehand."""
        return ()

    def root_evidence(self, tree: DraftTree) -> Sequence[Evidence]:
        """Return the evidence for each token that it would draft from the root; none where it has none."""
        return ()
