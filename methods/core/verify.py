"""Lossless verification: the target draws, and the walk follows its draws through the tree."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from methods.core.sampling import Sampler
from methods.core.tree import DraftTree


def walk(
    tree: DraftTree, logits: torch.Tensor, sampler: Sampler, context: Sequence[int], position: int
) -> tuple[list[int], list[int]]:
    """Follow the target's own draws from the root for as long as they are in the tree.

    Every emitted token is the target's draw, so the output distribution is exactly the target's
    whatever built the tree; or the reference's token, where the run follows one.

    Args:
        tree: the verified tree.
        logits: the target's raw logits, [nodes, vocabulary].
        sampler: draws from them.
        context: committed tokens, the root's included.
        position: output position of the first draw.

    Returns:
        The accepted nodes (the root first) and the drawn tokens: one for each, the last of them a bonus.
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
