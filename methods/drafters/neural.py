"""A neural model as a drafter: its KV cache follows the committed context, with a round's nodes pending on top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from foundation.errors import UserError
from foundation.roles import DrafterRole
from methods.core.generation import Forward
from methods.core.model import TreeModel
from methods.core.tree import DraftTree
from methods.drafters.drafter import Estimate, SmallDrafter
from methods.drafters.evaluated_nodes import EvaluatedNodes, NodeDistributions
from methods.drafters.vocabulary_map import TokenColumns
from methods.settings import Settings

if TYPE_CHECKING:
    from methods.method import Models


class NeuralDrafter:
    """Shared by neural drafters: the cache, and the evaluated nodes of the current round.

    Args:
        width: frontier size, and children given to a node (W).
        vocabulary: token ids below it are common to drafter and target.

    Attributes:
        nodes: what was evaluated in the current round.
    """

    role: DrafterRole = "middle"

    def __init__(self, model: TreeModel, *, width: int, vocabulary: int) -> None:
        self.model = model
        self._width = width
        self._columns = TokenColumns.of(model, vocabulary)
        self._context: Sequence[int] = []
        self.nodes = EvaluatedNodes(0, self._columns)

    def begin(self, context: Sequence[int], capacity: int) -> list[Forward]:
        """Forget the last prompt; prefill all but the last token of the new one, if it fits."""
        self.model.begin(capacity)
        if len(context) <= self.model.max_positions:
            self.model.prefill(self._known(context[:-1]))
        return [Forward(self.role, None, self.model.length, 0)] if self.model.length else []

    def begin_round(self, context: Sequence[int]) -> None:
        """Start a round whose root is the last token of `context`."""
        self._context = context
        self.nodes = EvaluatedNodes(len(context) - 1 - self.model.length, self._columns)

    @property
    def known(self) -> NodeDistributions:
        """Distributions of the round's nodes that drafting reads."""
        return self.nodes

    @property
    def seen(self) -> int:
        """Tokens to the left of the round's next forward."""
        evaluated = len(self.known.rows)
        return self.model.length + (self.known.unseen + evaluated if evaluated else 0)

    @property
    def room(self) -> int:
        """Depth of the deepest node that the drafter's context has room for; below 0, not even the root's."""
        return self.model.max_positions - len(self._context)

    def fits(self, tree: DraftTree, frontier: Sequence[int]) -> bool:
        """Return whether the drafter's context has room for the whole tree."""
        return max(tree.depths) <= self.room

    def advance(self, new: Sequence[int], accepted: Sequence[int]) -> None:
        """Keep KV rows of committed tokens that were evaluated; the others join the next forward."""
        if self.nodes.rows:
            self.model.commit(self.nodes.kept_rows(accepted))

    def forward(self, tree: DraftTree, nodes: Sequence[int], step: int) -> Forward | None:
        """Evaluate nodes as `evaluate` does; return the forward, None if there was nothing to do."""
        seen = self.seen
        tokens = self.evaluate(tree, nodes)
        return Forward(self.role, step, tokens, seen) if tokens else None

    def evaluate(self, tree: DraftTree, nodes: Sequence[int]) -> int:
        """Run one forward over new nodes, parents first, and committed tokens not in the cache; return its size."""
        if not nodes:
            return 0
        unseen = [] if self.nodes.rows else list(self._context[self.model.length : -1])
        tokens = self._known([*unseen, *(tree.tokens[node] for node in nodes)])
        root = self.nodes.unseen
        offsets = [*range(len(unseen)), *(root + tree.depths[node] for node in nodes)]
        visible = self.nodes.visibility(tree, nodes)
        logits = self.model.evaluate(tokens, offsets, visible)
        self.nodes.add(nodes, visible, logits[len(unseen) :])
        return len(tokens)

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """Return tokens that the model can embed; unknown ones become token 0."""
        limit = self.model.vocab_size
        return [token if token < limit else 0 for token in tokens]


class NeuralSmallDrafter(NeuralDrafter, SmallDrafter):
    """A small language model in the look-up drafter's place: it expands the frontier and rescores nothing."""

    role: DrafterRole = "small"

    @classmethod
    def for_settings(cls, models: Models, settings: Settings, estimate: Estimate | None) -> Self:
        """Return the drafter of a method; raises UserError if the pair has no small neural model."""
        if models.small is None:
            raise UserError(models.no_small)
        return cls(models.small, width=settings.width, vocabulary=common_vocabulary(models.target, models.small))

    def fits(self, tree: DraftTree, frontier: Sequence[int]) -> bool:
        """Return whether there is nothing to draft from, or the drafter's context has room for the whole tree."""
        return not frontier or super().fits(tree, frontier)

    def extend(self, tree: DraftTree, frontier: Sequence[int], step: int, cap: int) -> tuple[list[int], Forward | None]:
        """Give each frontier node the W best next tokens; they are the next frontier, cut to W from step 2 on."""
        needed = {above for node in frontier for above in tree.path(node)} - self.nodes.rows.keys()
        work = self.forward(tree, sorted(needed), step)
        grown: list[int] = []
        for node, best in zip(frontier, self.known.best(frontier, self._width), strict=True):
            for token, log_probability in best:
                if token not in tree.children[node] and tree.held >= cap:
                    continue
                grown.append(tree.add(node, token, tree.scores[node] + log_probability, "small"))
        grown.sort(key=lambda node: (-tree.scores[node], node))
        return (grown if step == 1 else grown[: self._width]), work


def common_vocabulary(target: TreeModel, drafter: TreeModel) -> int:
    """Return the size of the vocabulary that target and drafter share; later ids are padding in one of them."""
    return min(target.vocab_size, drafter.vocab_size)
