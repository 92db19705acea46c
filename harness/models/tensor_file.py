"""Tensors on disk: safetensors files, written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save

from foundation.atomic_write import write_whole


def write_tensors(
    file: Path, tensors: Mapping[str, torch.Tensor], fix: str, metadata: dict[str, str] | None = None
) -> None:
    """Write a file of tensors; raises UserError, with `fix`, if the disk refuses it.

    Serialised in memory: safetensors' own writer leaves a temporary file of its own behind when it is killed.
    """
    write_whole(file, lambda scratch: scratch.write_bytes(save(dict(tensors), metadata)), fix)
