"""The middle drafter: a neural model that rescores, reselects and grafts (ALGORITHMS section 2, middle step)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from methods.core.model import TreeModel
from methods.core.tree import DraftTree
from methods.drafters.evaluated import EvaluatedNodes

Reselect = Literal["unexpanded", "all", "off"]

UNKNOWN_TOKEN_SCORE = -20.0
"""Log-probability of a token outside the drafter's vocabulary; any finite floor keeps the order of the rest."""


class NeuralDrafter:
    """Grows a tree with a neural model; holds its KV cache and what it evaluated in the current round.

    Only nodes whose distributions the step needs are evaluated: those that have a child, and those that
    reselection may pick. The tree is the same as if the whole of it were evaluated at every call.

    Args:
        model: the drafter's model.
        width: frontier size, and children grafted onto a node (W).
        vocabulary: token ids below it are common to drafter and target.
        look_back: how many layers above the frontier reselection may pick from (L).
        reselect: whom it may pick: nodes not yet expanded in this round (ours), `all` of them (the public
            code), or nobody: `off` keeps the frontier as it is.
        non_destructive: False deletes what the frontier's nodes had beside their W best (an ablation).
    """

    def __init__(
        self,
        model: TreeModel,
        *,
        width: int,
        vocabulary: int,
        look_back: int = 5,
        reselect: Reselect = "unexpanded",
        non_destructive: bool = True,
    ) -> None:
        self.model = model
        self._width = width
        self._vocabulary = vocabulary
        self._look_back = look_back
        self._reselect = reselect
        self._non_destructive = non_destructive
        self._context: Sequence[int] = []
        self._nodes = EvaluatedNodes(0)
        self._scores: dict[int, float] = {}

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
        self._nodes = EvaluatedNodes(len(context) - 1 - self.model.length)
        self._scores = {0: 0.0}

    def fits(self, tree: DraftTree) -> bool:
        """Return whether the drafter's own context has room for the whole tree."""
        return len(self._context) + max(tree.depths) <= self.model.max_positions

    def extend(self, tree: DraftTree, frontier: Sequence[int], step: int, cap: int) -> tuple[list[int], int]:
        """Take one middle step: rescore all nodes, reselect where to graft, graft.

        Args:
            tree: the draft tree; its scores become the model's own.
            frontier: nodes to draft from; where there are none, reselection looks at the whole tree.
            step: drafting step, from 1.
            cap: most nodes that the tree may hold.

        Returns:
            The next frontier, and how many tokens were evaluated.
        """
        candidates = self._candidates(tree, frontier)
        self._rescore(tree)
        evaluated = self._evaluate(tree, self._needed(tree, frontier, candidates))
        self._rescore(tree)
        if self._reselect != "off":
            frontier = sorted(candidates, key=lambda node: (-self._scores[node], node))[: self._width]
        grafted = self._graft(tree, frontier, cap)
        grafted.sort(key=lambda node: (-tree.scores[node], node))
        return (grafted if step == 1 else grafted[: self._width]), evaluated

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep the KV rows of the committed context and of accepted nodes that were evaluated; drop the rest.

        Args:
            accepted: the accepted path in node ids of the drafted tree, root first.
        """
        if self._nodes.rows:
            self.model.commit(self._nodes.kept_rows(accepted))

    def _candidates(self, tree: DraftTree, frontier: Sequence[int]) -> list[int]:
        """Return the nodes that reselection may pick."""
        if self._reselect == "off":
            return list(frontier)
        if frontier:
            depths = {tree.depths[node] - back for node in frontier for back in range(self._look_back + 1)}
            nodes: Iterable[int] = (node for node in tree.alive() if tree.depths[node] in depths)
        else:
            nodes = tree.alive()
        return [node for node in nodes if self._reselect == "all" or node not in tree.expanded]

    def _needed(self, tree: DraftTree, frontier: Sequence[int], candidates: Sequence[int]) -> list[int]:
        """Return the nodes to evaluate, parents first.

        Those that have a child are needed to rescore it. A candidate whose parent has no distribution yet
        cannot be scored before the forward, so it is evaluated; of those that can, the W best cannot lose
        their place to more than W others.
        """
        known = self._nodes.rows
        needed = {node for node in tree.alive() if tree.children[node] and node not in known}
        if self._reselect == "off":
            needed.update(node for node in frontier if node not in known)
            return sorted(needed)
        scored = [node for node in candidates if tree.parents[node] in known]
        best = sorted(scored, key=lambda node: (-self._scores[node], node))[: self._width]
        needed.update(node for node in best if node not in known)
        needed.update(node for node in candidates if node not in known and tree.parents[node] not in known)
        return sorted(needed)

    def _evaluate(self, tree: DraftTree, nodes: Sequence[int]) -> int:
        """Run one forward over committed tokens not yet seen and `nodes`; return how many tokens that were."""
        unseen = [] if self._nodes.rows else list(self._context[self.model.length : -1])
        if not nodes:
            return 0
        tokens = self._known([*unseen, *(tree.tokens[node] for node in nodes)])
        root = self._nodes.unseen
        offsets = [*range(len(unseen)), *(root + tree.depths[node] for node in nodes)]
        visible = self._nodes.visibility(tree, nodes)
        logits = self.model.evaluate(tokens, offsets, visible)
        self._nodes.add(nodes, visible, logits[len(unseen) :, : self._vocabulary])
        return len(tokens)

    def _rescore(self, tree: DraftTree) -> None:
        """Score, in creation order, every node whose parent has a distribution."""
        new = [node for node in tree.alive() if node not in self._scores and tree.parents[node] in self._nodes.rows]
        parents = [tree.parents[node] for node in new]
        gained = self._nodes.log_probabilities(parents, [tree.tokens[node] for node in new], UNKNOWN_TOKEN_SCORE)
        for node, parent, log_probability in zip(new, parents, gained, strict=True):
            self._scores[node] = self._scores[parent] + log_probability
        for node, score in self._scores.items():
            tree.scores[node] = score

    def _graft(self, tree: DraftTree, frontier: Sequence[int], cap: int) -> list[int]:
        """Give each frontier node the model's W best next tokens; return those children."""
        grafted: list[int] = []
        for node, best in zip(frontier, self._nodes.best(frontier, self._width), strict=True):
            tree.expanded.add(node)
            own: list[int] = []
            for token, log_probability in best:
                child = tree.children[node].get(token)
                if child is None:
                    if tree.held >= cap:
                        break
                    child = tree.add(node, token, origin="middle")
                    self._scores[child] = tree.scores[child] = self._scores[node] + log_probability
                own.append(child)
            if not self._non_destructive:
                for child in set(tree.children[node].values()) - set(own):
                    tree.remove(child)
            grafted += own
        return grafted if self._non_destructive else [node for node in grafted if tree.is_held(node)]

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """Return tokens that the model can embed: others stand as token 0."""
        limit = self.model.vocab_size
        return [token if token < limit else 0 for token in tokens]


def common_vocabulary(target: TreeModel, drafter: TreeModel, tokenizer_size: int | None = None) -> int:
    """Return the size of the vocabulary that target and drafter share; ids past it are padding to one of them."""
    sizes = [target.vocab_size, drafter.vocab_size]
    return min(sizes if tokenizer_size is None else [*sizes, tokenizer_size])
