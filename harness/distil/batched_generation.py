"""Batched generation by a target; its last hidden states are kept as the teacher's signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from harness.distil.sequence_templates import Segment, Writing
from methods.core.engines.hf import KVCache, cache_argument

_COMPACT_BELOW = 0.8  # share of unfinished sequences below which the finished ones leave the batch
_GROUPED = "treegraft_grouped"


@dataclass(frozen=True, slots=True)
class Written:
    """A generated sequence with the teacher's signal.

    Attributes:
        tokens: ids, int32 [length].
        parts: a `Part` each, uint8 [length].
        hidden: the target's last hidden states at each token but the last, [length - 1, hidden size].
    """

    tokens: torch.Tensor
    parts: torch.Tensor
    hidden: torch.Tensor


class Writer:
    """Generates sequences with a target, in batches.

    Args:
        model: the target.
        ends: tokens that end a segment.
        top_k: tokens kept for sampling at temperature 1 ...
        top_p: ... cut to the smallest set with this share of their mass.
    """

    def __init__(self, model: PreTrainedModel, ends: frozenset[int], *, top_k: int = 100, top_p: float = 0.95) -> None:
        self._model: Any = model
        self._ends = ends
        self._top_k = top_k
        self._top_p = top_p
        config = model.config.get_text_config()
        if getattr(config, "attn_logit_softcapping", None) is None:
            model.set_attn_implementation(_GROUPED)
        self._cache_argument = cache_argument(model)

    @torch.inference_mode()
    def write(self, scripts: Sequence[list[Segment]], seed: int, tail: float = 0.06) -> list[Written]:
        """Return one sequence for each script.

        Args:
            scripts: each begins with given tokens.
            seed: of the draws.
            tail: share of sequences; the last so many are cut short, since a step costs nearly the same for them.
        """
        generator = torch.Generator(device="cpu").manual_seed(seed)
        writings = [Writing(list(script), self._ends) for script in scripts]
        shared = min(writing.ready for writing in writings)
        for writing in writings:
            for _ in range(shared):
                writing.take(-1, -1)
        capacity = shared + max(sum(len(part.tokens) + part.limit for part in script) for script in scripts)
        config = self._model.config.get_text_config()
        cache = KVCache(config.num_hidden_layers)
        cache.reserve(capacity)
        shape = (len(writings), capacity, config.hidden_size)
        kept = torch.empty(shape, dtype=self._model.dtype, device=self._model.device)
        alive = list(range(len(writings)))  # in the batch, finished ones among them
        open_ = set(alive)
        start = 0
        while True:
            end = start + (shared if start == 0 else 1)
            fed = torch.tensor([writings[index].tokens[start:end] for index in alive])
            hidden = self._forward(fed, start, cache)
            kept[torch.tensor(alive), start:end] = hidden
            greedy, sampled = self._proposals(hidden[:, -1], generator)
            for row, index in enumerate(alive):
                if index in open_ and not writings[index].take(greedy[row], sampled[row]):
                    open_.discard(index)
            if len(open_) <= tail * len(writings):
                break
            if len(open_) < _COMPACT_BELOW * len(alive):
                rows = [row for row, index in enumerate(alive) if index in open_]
                alive = [alive[row] for row in rows]
                cache.select(torch.tensor(rows))
            for index in alive:
                if index not in open_:
                    writings[index].tokens.append(0)  # keeps the batch rectangular; cut off below
            start = end
        return [_finished(writing, kept[index]) for index, writing in enumerate(writings)]

    def _forward(self, tokens: torch.Tensor, start: int, cache: KVCache) -> torch.Tensor:
        """Return last hidden states [sequences, tokens, hidden size]."""
        batch, length = tokens.shape
        positions = torch.arange(start, start + length).expand(batch, length)
        inputs = {"input_ids": tokens, "position_ids": positions, "use_cache": True, self._cache_argument: cache}
        on_device = {
            key: value.to(self._model.device) if isinstance(value, torch.Tensor) else value
            for key, value in inputs.items()
        }
        hidden: torch.Tensor = self._model.base_model(**on_device).last_hidden_state
        cache.rows = start + length
        return hidden

    def _proposals(self, hidden: torch.Tensor, generator: torch.Generator) -> tuple[list[int], list[int]]:
        """Return each sequence's best next token and a sampled one, from hidden states [sequences, size]."""
        top = min(self._top_k, self._model.config.get_text_config().vocab_size)
        best = self._model.get_output_embeddings()(hidden).float().topk(top)
        probabilities = best.values.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        nucleus = torch.where(before < self._top_p, probabilities, 0.0).cpu()
        drawn = torch.multinomial(nucleus, 1, generator=generator).to(best.indices.device)
        sampled = best.indices.gather(-1, drawn)[:, 0]
        return best.indices[:, 0].tolist(), sampled.tolist()


def _finished(writing: Writing, hidden: torch.Tensor) -> Written:
    length = len(writing.parts)
    return Written(
        torch.tensor(writing.tokens[:length], dtype=torch.int32),
        torch.tensor([int(part) for part in writing.parts], dtype=torch.uint8),
        hidden[: length - 1].cpu(),
    )


def _grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attend from one new token a sequence, each group of heads as one query of several rows.

    Torch's CPU kernel reads a group's keys once a head otherwise, which takes five times as long.
    """
    batch, heads, length, size = query.shape
    if length > 1 or attention_mask is not None or options.get("softcap") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    groups = heads // key.shape[1]
    attended = scaled_dot_product_attention(query.view(batch, -1, groups, size), key, value, scale=scaling)
    return attended.reshape(batch, 1, heads, size), None


AttentionInterface.register(_GROUPED, _grouped_attention)
AttentionMaskInterface.register(_GROUPED, sdpa_mask)
