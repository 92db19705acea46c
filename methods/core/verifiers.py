"""Verifiers, which choose the committed path of a tree: the target model, or a known answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from methods.core.generation import Finish
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams, Sampler
from methods.core.stopping import Decoder, Stopper
from methods.core.tree import DraftTree
from methods.core.verify import verify_tree


class Verifier(Protocol):
    """Turns trees into committed tokens until the answer ends."""

    ended: bool
    """Whether the answer has ended."""

    def accept(self, tree: DraftTree, context: Sequence[int], done: int) -> tuple[list[int], list[int]]:
        """Return the accepted nodes (the root first) and the tokens behind each of them.

        `tree` is rooted in the last token of `context`, of which the last `done` tokens belong to the answer.
        """

    def cut(self, output: Sequence[int], tokens: list[int]) -> list[int]:
        """Return the part of `tokens` that is committed behind the answer so far."""


class TargetVerifier:
    """Commits the target's own draws, lossless whatever was drafted; `target` holds all but the last context token."""

    def __init__(self, target: TreeModel, params: DecodingParams, tokenizer: Decoder | None) -> None:
        self.ended = False
        self.finish: Finish | None = None
        self.sampler = Sampler(params)
        self._target = target
        self._stopper = Stopper(params, tokenizer)

    def accept(self, tree: DraftTree, context: Sequence[int], done: int) -> tuple[list[int], list[int]]:
        """Evaluate the tree in one forward, follow the target's draws, keep the KV rows of the accepted path."""
        logits = self._target.evaluate(tree.tokens, tree.depths, tree.visibility())
        accepted, drawn = verify_tree(tree, logits, self.sampler, context, done)
        self._target.commit(accepted)
        return accepted, drawn

    def cut(self, output: Sequence[int], tokens: list[int]) -> list[int]:
        """Cut at the first end-of-sequence token, completed stop string or length limit."""
        new, self.finish = self._stopper.cut(output, tokens)
        self.ended = self.finish is not None
        return new


class KnownAnswer:
    """Commits a known answer, as of a recorded run: no target forward is needed."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._token_ids = token_ids
        self.ended = not token_ids

    def accept(self, tree: DraftTree, context: Sequence[int], done: int) -> tuple[list[int], list[int]]:
        """Follow the answer through the tree."""
        path = tree.follow(self._token_ids[done:])
        return path, list(self._token_ids[done : done + len(path)])

    def cut(self, output: Sequence[int], tokens: list[int]) -> list[int]:
        """Keep all tokens; the answer ends with its last."""
        self.ended = len(output) + len(tokens) >= len(self._token_ids)
        return tokens
