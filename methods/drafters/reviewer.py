"""A neural drafter that writes nothing at length: it reviews what smaller ones wrote (Chen et al., 2023)."""

from __future__ import annotations

import math

from methods.core.model import TreeModel
from methods.core.tree import DraftTree
from methods.drafters.cascade import Draft, Drafted
from methods.drafters.neural import NeuralDrafter


class Reviewer(NeuralDrafter):
    """Keeps the longest prefix of a draft that it would have written itself, and adds one token of its own.

    Args:
        model: the drafter's model.
        vocabulary: token ids below it are common to drafter and target.
        leniency: a token that is not its choice passes where its probability is above the drafter's divided by this;
            at 1 none does.
    """

    def __init__(self, model: TreeModel, *, vocabulary: int, leniency: float = 1.0) -> None:
        super().__init__(model, width=1, vocabulary=vocabulary)
        self._log_leniency = math.log(leniency)

    def review(self, tree: DraftTree, draft: Draft, start: int) -> tuple[Draft, int]:
        """Review a draft.

        Args:
            tree: every draft of the round; rejected tokens stay in it as side branches.
            draft: tokens behind the root; they become a path of the tree, scored by this drafter from `start` on.
            start: tokens that are not for review.

        Returns:
            The draft as far as it is kept, with one token more, and how many tokens were evaluated.
        """
        path = drafted_path(tree, draft)
        evaluated = self.evaluate(tree, [node for node in path if node not in self._nodes.rows])
        nodes, written = path[start:], draft[start:]
        choices = [best for (best,) in self._nodes.best(nodes, 1)]
        own = self._nodes.log_probabilities(nodes[:-1], [one.token for one in written])
        for parent, child, log_probability in zip(nodes, nodes[1:], own, strict=False):
            tree.scores[child] = tree.scores[parent] + log_probability
            tree.judged.add(child)
        kept = draft[:start]
        for one, (choice, _), log_probability in zip(written, choices, own, strict=False):
            if one.token != choice and not self._passes(one, log_probability):
                break
            kept.append(Drafted(one.token, log_probability))
        last = nodes[len(kept) - start]
        token, log_probability = choices[len(kept) - start]
        tree.add(last, token, tree.scores[last] + log_probability, "middle")
        return [*kept, Drafted(token, log_probability)], evaluated

    def _passes(self, one: Drafted, log_probability: float) -> bool:
        return self._log_leniency > 0.0 and log_probability > one.log_probability - self._log_leniency


def drafted_path(tree: DraftTree, draft: Draft) -> list[int]:
    """Return the nodes of a draft, the root first; those that are missing are added."""
    tokens = [one.token for one in draft]
    tree.insert_path(0, tokens, len(tree) + len(tokens))
    return tree.follow(tokens)
