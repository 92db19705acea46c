"""Where time goes: every moment between start and stop belongs to exactly one phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Literal

from methods.core.generation import Spans

Phase = Literal["small", "middle", "scheduler", "verify", "other"]


class Stopwatch:
    """Adds up nanoseconds by phase; what lies between two phases is `other`.

    Args:
        synchronise: waits for the device; called at both ends of a span, since a GPU works on after a
            call has returned.
        spans: False times the whole only, to check that timing the parts costs nothing.
    """

    def __init__(self, synchronise: Callable[[], None], *, spans: bool = True) -> None:
        self._synchronise = synchronise
        self._with_spans = spans
        self._spent: dict[Phase, int] = dict.fromkeys(("small", "middle", "scheduler", "verify", "other"), 0)
        self._begun = self._lap = 0

    def start(self) -> None:
        """Begin, once the device has done all that was asked of it before."""
        self._synchronise()
        self._begun = self._lap = perf_counter_ns()

    @contextmanager
    def span(self, phase: Phase) -> Iterator[None]:
        """Charge the body to `phase`."""
        if not self._with_spans:
            yield
            return
        self._charge("other")
        try:
            yield
        finally:
            if phase != "scheduler":
                self._synchronise()
            self._charge(phase)

    def stop(self) -> float:
        """End; return the seconds since the start."""
        self._synchronise()
        if self._with_spans:
            self._charge("other")
        return (perf_counter_ns() - self._begun) / 1e9

    def spans(self) -> Spans | None:
        """Return the seconds by phase, or None where only the whole was timed."""
        if not self._with_spans:
            return None
        return Spans(**{f"{phase}_s": spent / 1e9 for phase, spent in self._spent.items()})

    def _charge(self, phase: Phase) -> None:
        now = perf_counter_ns()
        self._spent[phase] += now - self._lap
        self._lap = now
