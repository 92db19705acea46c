"""The way between host and device: every tensor that decoding sends or reads goes through here."""

from __future__ import annotations

import torch


def on_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a host's tensor on a device, without waiting for it.

    A GPU reads pinned memory while the host goes on; from any other the host would have to wait for the copy. On a CPU
    the tensor stays where it is.
    """
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def on_host(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return tensors of one device on the host, waiting for it once."""
    copies = tuple(tensor.to("cpu", non_blocking=True) for tensor in tensors)
    if tensors[0].device.type == "cuda":
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return copies
