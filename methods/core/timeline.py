"""Sources of a stopwatch's times: the host's clock, or events on a GPU's stream."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, Protocol

import torch


class Timeline(Protocol):
    """Marks moments, and gives the time between them once all work is done."""

    def synchronise(self) -> None:
        """Wait until all queued work is done."""

    def mark(self) -> Any:
        """Mark this moment, without waiting."""

    def ns_between(self, start: Any, end: Any) -> int:
        """Return the nanoseconds between two marks; call `synchronise` first."""


class HostTimeline:
    """For a CPU, whose work is done when a call returns."""

    def synchronise(self) -> None:
        """Do nothing."""

    def mark(self) -> int:
        """Return the host's time in nanoseconds."""
        return perf_counter_ns()

    def ns_between(self, start: int, end: int) -> int:
        """Return the nanoseconds between two marks."""
        return end - start


class CudaTimeline:
    """For a GPU, which works on after a call has returned: a mark is when its current stream gets there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def synchronise(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)

    def mark(self) -> torch.cuda.Event:
        """Queue an event behind the stream's work so far."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it bare
        event.record(torch.cuda.current_stream(self._device))
        return event

    def ns_between(self, start: torch.cuda.Event, end: torch.cuda.Event) -> int:
        """Return the nanoseconds between two events that have passed."""
        ms: float = start.elapsed_time(end)
        return round(1e6 * ms)
