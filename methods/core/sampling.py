"""Decoding parameters, and the target's draws: one rule for greedy and sampled decoding."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from methods.core.transfer import on_device


@dataclass(frozen=True, slots=True)
class DecodingParams:
    """Decoding parameters of one answer, the same for every method of a block.

    Attributes:
        max_new_tokens: most tokens to commit.
        temperature: 0 is greedy.
        top_p: nucleus mass kept, 1 keeps all.
        top_k: tokens kept, 0 keeps all.
        repetition_penalty: 1 is none.
        stop: strings that end the answer, within the token that completes one.
        eos_ids: tokens that end the answer.
        draw_key: seed, question and turn, which with the output position determine a sampled draw.
        reference: tokens to commit instead of the target's own draws, as far as they reach; None commits the draws.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    eos_ids: frozenset[int] = frozenset()
    draw_key: tuple[int | str, ...] = ()
    reference: tuple[int, ...] | None = None

    @property
    def greedy(self) -> bool:
        """Whether draws are an argmax without noise."""
        return self.temperature == 0.0

    def draw_seed(self, position: int) -> int:
        """Return the seed, in [0, 2^63), of the draw at an output position."""
        digest = hashlib.blake2b(repr((self.draw_key, position)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1


class Sampler:
    """Draws output tokens from the target's processed distribution, coupled across methods.

    The draw for output position i is the argmax of the processed log-probabilities plus Gumbel noise that depends on
    (draw key, i) alone: whatever tree led there, the target draws what autoregressive decoding would.

    Attributes:
        flips: output position and own draw wherever it differs from the reference's token.
    """

    def __init__(self, params: DecodingParams) -> None:
        self.flips: list[tuple[int, int]] = []
        self._params = params
        self._processors = _processors(params)

    @property
    def plain(self) -> bool:
        """Whether a draw is the argmax of the raw logits."""
        return self._params.greedy and not self._processors

    def processed(self, logits: torch.Tensor, prefix: Sequence[int]) -> torch.Tensor:
        """Return the processed logits in fp32, [vocabulary]; removed tokens are -inf.

        Args:
            logits: the target's raw logits at one node, [vocabulary].
            prefix: all tokens before the drawn one: the context and the node's path.
        """
        scores = logits.float()
        if not self._processors:
            return scores
        ids = on_device(torch.tensor([prefix]), logits.device)
        processed: torch.Tensor = self._processors(
            cast("torch.LongTensor", ids), cast("torch.FloatTensor", scores[None])
        )[0]
        return processed

    def draw(self, logits: torch.Tensor, prefix: Sequence[int], position: int) -> int:
        """Return the token at output position `position` (from 0), given raw logits [vocabulary]."""
        scores = self.processed(logits, prefix)
        if not self._params.greedy:
            scores = scores + on_device(self.noise(scores.shape[0], position), scores.device)
        return int(scores.argmax())

    def settled(self, drawn: int, position: int) -> int:
        """Return the token to commit at an output position: the reference's if there is one, else the draw."""
        reference = self._params.reference
        if reference is None or position >= len(reference):
            return drawn
        if drawn != reference[position]:
            self.flips.append((position, drawn))
        return reference[position]

    def noise(self, size: int, position: int) -> torch.Tensor:
        """Return the Gumbel noise of an output position, fp64, [size]; the same on every device."""
        generator = torch.Generator().manual_seed(self._params.draw_seed(position))
        return -torch.empty(size, dtype=torch.float64).exponential_(generator=generator).log()


def _processors(params: DecodingParams) -> LogitsProcessorList:
    """Return Hugging Face's processors in the order of `generate`."""
    processors = LogitsProcessorList()
    if params.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.greedy:
        return processors
    if params.temperature != 1.0:
        processors.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        processors.append(TopPLogitsWarper(params.top_p))
    return processors
