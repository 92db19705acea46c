"""A neural drafter that reviews the drafts of smaller ones (Chen et al., 2023)."""

from __future__ import annotations

import math

from methods.core.model import TreeModel
from methods.core.tree import DraftTree
from methods.drafters.neural import NeuralDrafter
from methods.rivals.csd.cascade import Draft, Drafted


class CascadeVerifier(NeuralDrafter):
    """Keeps the longest prefix of a draft that it would have written itself, and adds one token of its own.

    A token that is not its choice passes if its probability is above the drafter's over `leniency`; at 1 none does.
    """

    def __init__(self, model: TreeModel, *, vocabulary: int, leniency: float = 1.0) -> None:
        super().__init__(model, width=1, vocabulary=vocabulary)
        self._log_leniency = math.log(leniency)

    def review(self, tree: DraftTree, draft: Draft, start: int) -> tuple[Draft, int]:
        """Return the kept part of `draft` with one token more, and how many tokens were evaluated.

        The draft becomes a path of `tree`, which holds every draft of the round, rejected tokens as side branches; this
        drafter reviews and scores it from token `start` on.
        """
        path = drafted_path(tree, draft)
        evaluated = self.evaluate(tree, [node for node in path if node not in self.nodes.rows])
        nodes, written = path[start:], draft[start:]
        choices = [best for (best,) in self.nodes.best(nodes, 1)]
        own = self.nodes.log_probabilities(nodes[:-1], [one.token for one in written])
        for parent, child, log_probability in zip(nodes, nodes[1:], own, strict=False):
            tree.scores[child] = tree.scores[parent] + log_probability
            tree.scored_by_middle.add(child)
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
    """Return the nodes of a draft, the root first; missing ones are added."""
    tokens = [one.token for one in draft]
    tree.insert_path(0, tokens, len(tree) + len(tokens))
    return tree.follow(tokens)
