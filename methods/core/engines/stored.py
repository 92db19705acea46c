"""Weights as a file stores them, in 4 bits: a forward of few tokens reads a quarter of the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

GROUP = 32  # inputs that share a scale and an offset, in GGUF's Q4_0 and Q4_1


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A matrix [out, in] of 4-bit levels: a weight is (level - 8) × scale + offset of its group."""

    nibbles: torch.Tensor
    """Levels 0 to 15, uint8 [out, in / 2], that of an even input in the low half."""
    scales: torch.Tensor
    """[out, in / GROUP]"""
    offsets: torch.Tensor
    """[out, in / GROUP]"""

    @property
    def levels(self) -> torch.Tensor:
        """Int32 [out, in]."""
        halves = torch.stack([self.nibbles & 15, self.nibbles >> 4], -1)
        return halves.view(len(self.nibbles), -1).to(torch.int32)

    def values(self) -> torch.Tensor:
        """Return the weights, fp32 [out, in]."""
        grouped = (self.levels - 8).view(len(self.nibbles), -1, GROUP)
        weights = grouped * self.scales.float()[..., None] + self.offsets.float()[..., None]
        return weights.view(len(self.nibbles), -1)


def stacked(parts: Sequence[StoredWeight]) -> StoredWeight:
    """Return matrices of as many inputs, one below the other."""
    return StoredWeight(
        nibbles=torch.cat([part.nibbles for part in parts]),
        scales=torch.cat([part.scales for part in parts]),
        offsets=torch.cat([part.offsets for part in parts]),
    )
