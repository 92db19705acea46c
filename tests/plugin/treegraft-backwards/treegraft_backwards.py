"""Three methods: one drafts the context's last tokens backwards (palindromes suit it), one is TreeGraft's subclass,
one remembers its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from treegraft import DraftTree, Forward, MethodFacts, Models, Settings, TreeGraft, TreeMethod


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


class Remembering(TreeMethod):
    """Drafts one token: the last that followed the root in an answer of this run, to whatever question."""

    facts: ClassVar[MethodFacts] = MethodFacts(memory="run")

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        self._followed: dict[int, int] = {}
        self._root = 0

    def draft(self, context: Sequence[int], remaining: int, watch: Any, forwards: list[Forward]) -> DraftTree:
        """Return the round's tree, ready for the target; see `TreeMethod.draft`."""
        self._root = context[-1]
        tree = DraftTree(self._root)
        if self._root in self._followed and remaining > 1:
            tree.add(0, self._followed[self._root])
        return tree

    def advance(self, new: Sequence[int], accepted: Sequence[int], watch: Any) -> None:
        """Learn the committed tokens; see `TreeMethod.advance`."""
        self._followed.update(zip([self._root, *new], new, strict=False))
