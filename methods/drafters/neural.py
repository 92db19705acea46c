"""A neural model as a drafter: its KV cache follows the committed context, a round's nodes wait on top."""

from __future__ import annotations

from collections.abc import Sequence

from methods.core.model import TreeModel
from methods.core.tree import DraftTree
from methods.drafters.columns import TokenColumns
from methods.drafters.evaluated import EvaluatedNodes


class NeuralDrafter:
    """What both kinds of neural drafter share; holds the cache and what was evaluated in the current round.

    Args:
        model: the drafter's model.
        width: frontier size, and children given to a node (W).
        vocabulary: token ids below it are common to drafter and target.
    """

    def __init__(self, model: TreeModel, *, width: int, vocabulary: int) -> None:
        self.model = model
        self._width = width
        self._columns = TokenColumns.of(model, vocabulary)
        self._context: Sequence[int] = []
        self._nodes = EvaluatedNodes(0, self._columns)

    def begin(self, context: Sequence[int], capacity: int) -> None:
        """Forget the last prompt; prefill all but the last token of the new one, where it fits.

        Args:
            context: the prompt.
            capacity: KV rows that the whole answer may need, drafting included.
        """
        self.model.begin(capacity)
        if len(context) <= self.model.max_positions:
            self.model.prefill(self._known(context[:-1]))

    def begin_round(self, context: Sequence[int]) -> None:
        """Start a round whose root is the last token of `context`."""
        self._context = context
        self._nodes = EvaluatedNodes(len(context) - 1 - self.model.length, self._columns)

    @property
    def nodes(self) -> EvaluatedNodes:
        """What was evaluated in the current round."""
        return self._nodes

    @property
    def seen(self) -> int:
        """Tokens to the left of the round's next forward."""
        evaluated = len(self._nodes.rows)
        return self.model.length + (self._nodes.unseen + evaluated if evaluated else 0)

    @property
    def room(self) -> int:
        """Depth of the deepest node that the drafter's own context has room for; below 0, where not even the root's."""
        return self.model.max_positions - len(self._context)

    def fits(self, tree: DraftTree) -> bool:
        """Return whether the drafter's own context has room for the whole tree."""
        return max(tree.depths) <= self.room

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep the KV rows of the committed context and of accepted nodes that were evaluated; drop the rest.

        Args:
            accepted: the accepted path in node ids of the drafted tree, root first.
        """
        if self._nodes.rows:
            self.model.commit(self._nodes.kept_rows(accepted))

    def evaluate(self, tree: DraftTree, nodes: Sequence[int]) -> int:
        """Run one forward over `nodes`, and over committed tokens not seen yet; return its size in tokens.

        Args:
            tree: the draft tree.
            nodes: nodes not evaluated yet, parents first; their ancestors are evaluated or among them.
        """
        if not nodes:
            return 0
        unseen = [] if self._nodes.rows else list(self._context[self.model.length : -1])
        tokens = self._known([*unseen, *(tree.tokens[node] for node in nodes)])
        root = self._nodes.unseen
        offsets = [*range(len(unseen)), *(root + tree.depths[node] for node in nodes)]
        visible = self._nodes.visibility(tree, nodes)
        logits = self.model.evaluate(tokens, offsets, visible)
        self._nodes.add(nodes, visible, logits[len(unseen) :])
        return len(tokens)

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """Return tokens that the model can embed: others stand as token 0."""
        limit = self.model.vocab_size
        return [token if token < limit else 0 for token in tokens]


class NeuralSmallDrafter(NeuralDrafter):
    """A small language model in the look-up drafter's place: it expands the frontier and rescores nothing."""

    def extend(self, tree: DraftTree, frontier: Sequence[int], step: int, cap: int) -> tuple[list[int], int]:
        """Take one small step: give each frontier node the model's W best next tokens.

        Args:
            tree: the draft tree.
            frontier: nodes to draft from.
            step: drafting step, from 1.
            cap: most nodes that the tree may hold.

        Returns:
            The next frontier (the children by score and id, cut to W from step 2 on), and how many tokens
            were evaluated.
        """
        needed = {above for node in frontier for above in tree.path(node)} - self._nodes.rows.keys()
        evaluated = self.evaluate(tree, sorted(needed))
        grown: list[int] = []
        for node, best in zip(frontier, self._nodes.best(frontier, self._width), strict=True):
            for token, log_probability in best:
                if token not in tree.children[node] and tree.held >= cap:
                    continue
                grown.append(tree.add(node, token, tree.scores[node] + log_probability, "small"))
        grown.sort(key=lambda node: (-tree.scores[node], node))
        return (grown if step == 1 else grown[: self._width]), evaluated


def common_vocabulary(target: TreeModel, drafter: TreeModel) -> int:
    """Return the size of the vocabulary that target and drafter share; ids past it are padding to one of them."""
    return min(target.vocab_size, drafter.vocab_size)
