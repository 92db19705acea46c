"""The CPU while a row is timed: whether others held it, and how much memory the process needed."""

from __future__ import annotations

from time import perf_counter

import psutil

from hardware_profiles.reading import Reading

CONTENTION_MARK = "cpu-contention"
SLOWED_MARK = "cpu-slowed"

_OTHERS_LIMIT = 0.1  # cores that others may hold; half a core slows a two-core forward by a quarter
_SLOWED_SHARE = 0.9  # of the highest frequency seen in the run
_TICK_S = 0.02  # two ticks of the kernel's accounting: what a short row cannot tell from nothing


class CpuWatch:
    """Compares the whole machine's busy time with this process's, from `start` to `stop`.

    Telemetry: `others_cores`: mean cores held by other processes; `rss_mib`: resident memory at the end; `mhz`: mean
    frequency of the cores at the end, where the system tells it. Marks: `cpu-contention` where others held more than a
    tenth of a core; `cpu-slowed` where the cores ran at less than nine tenths of the highest frequency seen so far.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._highest_mhz = 0.0

    def start(self) -> None:
        """Begin a span."""
        self._began = perf_counter()
        self._others = self._others_seconds()

    def stop(self) -> Reading:
        """End the span; return what was seen."""
        seconds = perf_counter() - self._began
        others = max(0.0, self._others_seconds() - self._others)
        cores = others / seconds
        marks = [CONTENTION_MARK] if others > _TICK_S and cores > _OTHERS_LIMIT else []
        rss = self._process.memory_info().rss / 2**20
        telemetry = {"others_cores": round(cores, 3), "rss_mib": round(rss, 1)}
        mhz = _mhz()
        if mhz is not None:
            telemetry["mhz"] = round(mhz, 1)
            self._highest_mhz = max(self._highest_mhz, mhz)
            marks += [SLOWED_MARK] if mhz < _SLOWED_SHARE * self._highest_mhz else []
        return Reading(telemetry, marks)

    def _others_seconds(self) -> float:
        machine = psutil.cpu_times()
        own = self._process.cpu_times()
        idle = machine.idle + getattr(machine, "iowait", 0.0)
        guest = getattr(machine, "guest", 0.0) + getattr(machine, "guest_nice", 0.0)  # already inside user time
        return sum(machine) - guest - idle - own.user - own.system


def _mhz() -> float | None:
    """Return the cores' mean frequency now, None where the system does not tell it."""
    try:
        frequency = psutil.cpu_freq()
    except (AttributeError, NotImplementedError, OSError):  # some systems and containers lack it
        return None
    return frequency.current if frequency and frequency.current > 0 else None
