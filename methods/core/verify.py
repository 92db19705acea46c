"""Lossless verification: the target draws, and its draws choose the path through the tree."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from methods.core.sampling import Sampler
from methods.core.tree import DraftTree


def verify_tree(
    tree: DraftTree, logits: torch.Tensor, sampler: Sampler, context: Sequence[int], position: int
) -> tuple[list[int], list[int]]:
    """Follow the target's own draws from the root for as long as they are in the tree.

    Every committed token is the target's draw, so the output has exactly the target's distribution, whatever built the
    tree; a run that follows a reference commits the reference's tokens instead.

    Args:
        tree: the tree that was evaluated.
        logits: the target's raw logits, [nodes, vocabulary].
        sampler: draws from them.
        context: committed tokens, the root's included.
        position: output position of the first draw.

    Returns:
        The accepted nodes (the root first) and the drawn tokens, one behind each; the last is the bonus token.
    """
    best = logits.argmax(dim=-1).tolist() if sampler.plain else None
    prefix = list(context)
    nodes: list[int] = []
    drawn: list[int] = []
    node: int | None = 0
    while node is not None:
        nodes.append(node)
        place = position + len(drawn)
        token = sampler.settled(best[node] if best else sampler.draw(logits[node], prefix, place), place)
        drawn.append(token)
        prefix.append(token)
        node = tree.children[node].get(token)
    return nodes, drawn
