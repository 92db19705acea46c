"""A neural drafter's evaluated nodes of a round: KV rows, visibility and distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from methods.core.transfer import on_device, on_host
from methods.core.tree import DraftTree
from methods.drafters.vocabulary_map import TokenColumns


class NodeDistributions(Protocol):
    """What drafting reads of evaluated nodes."""

    unseen: int
    """Committed tokens in front of the root that join the round's first forward."""
    rows: dict[int, int]
    """Each evaluated node's pending KV row."""

    def log_probabilities(self, nodes: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return log p(token | path to node) for pairs of node and token."""

    def best(self, nodes: Sequence[int], count: int) -> list[list[tuple[int, float]]]:
        """Return each node's `count` best next tokens with log-probabilities, ties by token id."""


class EvaluatedNodes:
    """The nodes evaluated since the round began, by node id of the growing tree.

    Attributes:
        unseen: committed tokens in front of the root that the cache lacks; they join the first forward as a chain.
        rows: each node's pending KV row.
    """

    def __init__(self, unseen: int, columns: TokenColumns) -> None:
        self.unseen = unseen
        self._token_columns = columns
        self.rows: dict[int, int] = {}
        self._visible: dict[int, NDArray[np.bool_]] = {}
        self._chunks: list[tuple[torch.Tensor, torch.Tensor]] = []  # logits [nodes, vocabulary], log-sum-exp [nodes]
        self._places: dict[int, tuple[int, int]] = {}  # node: its chunk, and its place there

    def visibility(self, tree: DraftTree, nodes: Sequence[int]) -> NDArray[np.bool_]:
        """Return what the next forward's tokens (unseen chain, then `nodes`) attend to, [tokens, pending + tokens]."""
        first = not self.rows
        pending = 0 if first else self.unseen + len(self.rows)
        chain = self.unseen if first else 0
        visible = np.zeros((chain + len(nodes), pending + chain + len(nodes)), dtype=np.bool_)
        visible[:chain, :chain] = np.tri(chain, dtype=np.bool_)
        places = {node: place for place, node in enumerate(nodes, start=chain)}
        for node, place in places.items():
            parent = tree.parents[node]
            if parent in places:
                visible[place] = visible[places[parent]]
            elif parent in self._visible:
                above = self._visible[parent]
                visible[place, : len(above)] = above
            else:
                visible[place, : self.unseen] = True
            visible[place, pending + place] = True
        return visible

    def add(self, nodes: Sequence[int], visible: NDArray[np.bool_], logits: torch.Tensor) -> None:
        """Store nodes evaluated in one forward: its `visibility`, and raw logits, [nodes, columns or more]."""
        logits = logits[:, : self._token_columns.count]
        pending = visible.shape[1] - len(nodes)
        for place, node in enumerate(nodes):
            self.rows[node] = pending + place
            self._visible[node] = visible[len(visible) - len(nodes) + place]
            self._places[node] = (len(self._chunks), place)
        self._chunks.append((logits, logits.to(_wide(logits)).logsumexp(dim=-1)))

    def kept_rows(self, accepted: Sequence[int]) -> list[int]:
        """Return the pending rows to commit: the unseen chain, and the accepted path as far as it was evaluated."""
        kept = list(range(self.unseen))
        for node in accepted:
            if node not in self.rows:
                break
            kept.append(self.rows[node])
        return kept

    def log_probabilities(self, nodes: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return log p(token | path to node) for pairs of node and token; the floor for tokens without a column."""
        found = [self._token_columns.floor] * len(nodes)
        own = [self._token_columns.column(token) for token in tokens]
        for chunk, members in self._by_chunk(nodes).items():
            logits, totals = self._chunks[chunk]
            known = [index for index in members if own[index] is not None]
            if not known:
                continue
            pairs = [[self._places[nodes[index]][1] for index in known], [own[index] for index in known]]
            places, columns = on_device(torch.tensor(pairs), logits.device)
            values = (logits[places, columns].to(totals.dtype) - totals[places]).tolist()
            for index, value in zip(known, values, strict=True):
                found[index] = value
        return found

    def best(self, nodes: Sequence[int], count: int) -> list[list[tuple[int, float]]]:
        """Return each node's `count` best next tokens with log-probabilities, ties by token id."""
        found: list[list[tuple[int, float]]] = [[] for _ in nodes]
        for chunk, members in self._by_chunk(nodes).items():
            logits, totals = self._chunks[chunk]
            places = on_device(torch.tensor([self._places[nodes[index]][1] for index in members]), logits.device)
            rows = logits[places]
            least = rows.topk(min(count, rows.shape[1]), dim=-1).values[:, -1:]
            which, columns = (rows >= least).nonzero(as_tuple=True)  # all ties of the last: `topk` picks any
            values = rows[which, columns].to(totals.dtype) - totals[places][which]
            which, columns, values = on_host(which, columns, values)
            tokens = self._token_columns.tokens(columns)
            for row, token, value in zip(which.tolist(), tokens, values.tolist(), strict=True):
                found[members[row]].append((token, value))
        return [sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:count] for pairs in found]

    def _by_chunk(self, nodes: Sequence[int]) -> dict[int, list[int]]:
        """Return, by chunk, the indices into `nodes` that lie there."""
        grouped: dict[int, list[int]] = {}
        for index, node in enumerate(nodes):
            grouped.setdefault(self._places[node][0], []).append(index)
        return grouped


def _wide(logits: torch.Tensor) -> torch.dtype:
    """Return the type of log-probabilities: fp32, or fp64 for an fp64 model."""
    return torch.promote_types(logits.dtype, torch.float32)
