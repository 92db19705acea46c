"""Capture of a forward as a CUDA graph: its hundreds of launches become one."""

from __future__ import annotations

from collections.abc import Callable

import torch

_WARM_UPS = 3  # libraries choose kernels and take memory in the first runs, which a graph must not hold


def captured(compute: Callable[[], list[torch.Tensor]]) -> Callable[[], list[torch.Tensor]]:
    """Return a call that replays what `compute` does, on the same memory; its outputs live until the next replay.

    Args:
        compute: reads and writes tensors at fixed places, and never waits for the device.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it bare
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = compute()

    def replay() -> list[torch.Tensor]:
        graph.replay()
        return outputs

    return replay
