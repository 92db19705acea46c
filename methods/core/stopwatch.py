"""Decode time by phase: every moment between start and stop belongs to exactly one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, Literal

from methods.core.generation import Spans
from methods.core.timeline import HostTimeline, Timeline

Phase = Literal["small", "middle", "scheduler", "verify", "other"]

_HOST = HostTimeline()


class Stopwatch:
    """Marks the end of each phase on a timeline; time between two phases is `other`.

    The total is host time between two moments with an idle device. Phases are added up afterwards: waiting for the
    device at the end of each would slow down what is measured. Without `spans` only the total is timed, to check that
    timing phases costs nothing.
    """

    def __init__(self, timeline: Timeline = _HOST, *, spans: bool = True) -> None:
        self._timeline = timeline
        self._with_spans = spans
        self._begun = 0
        self._laps: list[tuple[Phase, Any]] = []

    def start(self) -> None:
        """Begin, once the device has finished all earlier work."""
        self._end("other")
        self._begun = self._idle_ns()

    @contextmanager
    def span(self, phase: Phase) -> Iterator[None]:
        """Charge the body to `phase`."""
        self._end("other")
        try:
            yield
        finally:
            self._end(phase)

    def stop(self) -> float:
        """End; return the seconds since the start."""
        self._end("other")
        return (self._idle_ns() - self._begun) / 1e9

    def spans(self) -> Spans | None:
        """Return the seconds by phase, after `stop`; None if only the total was timed."""
        if not self._with_spans:
            return None
        spent: dict[Phase, int] = dict.fromkeys(("small", "middle", "scheduler", "verify", "other"), 0)
        for (_, start), (phase, end) in pairwise(self._laps):
            spent[phase] += self._timeline.ns_between(start, end)
        return Spans(**{f"{phase}_s": ns / 1e9 for phase, ns in spent.items()})

    def _end(self, phase: Phase) -> None:
        if self._with_spans:
            self._laps.append((phase, self._timeline.mark()))

    def _idle_ns(self) -> int:
        self._timeline.synchronise()
        return perf_counter_ns()
