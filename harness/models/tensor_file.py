"""Tensors on disk: safetensors files, written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from foundation.atomic_write import write_whole


def write_tensors(
    file: Path, tensors: Mapping[str, torch.Tensor], fix: str, metadata: dict[str, str] | None = None
) -> None:
    """Write a file of tensors; raises UserError, with `fix`, if the disk refuses it."""

    def save(scratch: Path) -> None:
        try:
            save_file(dict(tensors), scratch, metadata=metadata)
        except SafetensorError as error:  # so it calls a full disk
            raise OSError(str(error)) from error

    write_whole(file, save, fix)
