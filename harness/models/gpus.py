"""Which GPUs a run uses."""

from __future__ import annotations

import torch

from methods.method import Models


def gpu_uuids(models: Models) -> list[str]:
    """Return the UUIDs, without prefix, of the CUDA devices that hold a pair's weights or compute on offloaded ones."""
    return [_uuid(index) for index in sorted(_indices(models))]


def gpu_names(models: Models) -> list[str]:
    """Return the names of the same devices, in the same order."""
    return [torch.cuda.get_device_name(index) for index in sorted(_indices(models))]


def _indices(models: Models) -> set[int]:
    indices: set[int] = set()
    for wrapped in (models.target, models.middle, models.small):
        if wrapped is not None:
            devices = {parameter.device for parameter in wrapped.model.parameters()}
            indices |= {device.index or 0 for device in devices if device.type == "cuda"}
            layout = getattr(wrapped.model, "hf_device_map", None) or {}
            indices |= {place for place in layout.values() if isinstance(place, int)}  # offloaded weights compute there
    return indices


def _uuid(index: int) -> str:
    return str(torch.cuda.get_device_properties(index).uuid)
