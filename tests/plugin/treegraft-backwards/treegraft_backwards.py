"""Two methods: one drafts the context's last tokens backwards (palindromes suit it), one is TreeGraft's subclass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treegraft import DraftTree, Forward, TreeGraft, TreeMethod


class Backwards(TreeMethod):
    """Drafts one chain: what stands before the root, nearest first.

    `options: {length: N}` bounds the chain; without it, `steps` does.
    """

    def draft(self, context: Sequence[int], remaining: int, watch: Any, forwards: list[Forward]) -> DraftTree:
        """Return the round's tree, ready for the target; see `TreeMethod.draft`."""
        length = self.settings.options.get("length", self.settings.steps)
        length = min(length, self.settings.budget, remaining - 1)
        tree = DraftTree(context[-1])
        with watch.span("small"):
            forwards.append(Forward("small", 1, 1, len(context)))
            node = 0
            for token in reversed(context[max(0, len(context) - 1 - length) : -1]):
                node = tree.add(node, token)
        return tree

    def schedule(self) -> list[int]:
        """Return a 0: each round takes one small step."""
        return [0]


class Grafted(TreeGraft):
    """TreeGraft with nothing of its own: a start for methods that change a part of it."""
