"""Copies between host and device: every tensor that decoding sends or reads passes here."""

from __future__ import annotations

import torch


def on_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a host tensor on a device, without waiting: a GPU copies from pinned memory while the host goes on."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def on_host(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return tensors of one device on the host, waiting once."""
    copies = tuple(tensor.to("cpu", non_blocking=True) for tensor in tensors)
    if tensors[0].device.type == "cuda":
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return copies
