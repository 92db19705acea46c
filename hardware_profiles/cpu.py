"""CPU telemetry of a timed row: contention, clock and memory."""

from __future__ import annotations

from time import perf_counter

import psutil

from hardware_profiles.reading import Reading

CONTENTION_MARK = "cpu-contention"
SLOWED_MARK = "cpu-slowed"

_OTHERS_LIMIT = 0.1  # cores; half a core held by others slows a two-core forward by a quarter
_SLOWED_SHARE = 0.9  # of the highest frequency seen in the run
_TICK_S = 0.02  # two ticks of the kernel's accounting, its resolution in a short row


class CpuWatch:
    """Compares the machine's busy time with this process's, from `start` to `stop`.

    Telemetry: `others_cores`, mean cores held by other processes; `rss_mib`, resident memory at the end; `mhz`, mean
    core clock at the end, if known. Marks: `cpu-contention`, others held over a tenth of a core; `cpu-slowed`, the
    clock was below nine tenths of the highest so far.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._highest_mhz = 0.0

    def start(self) -> None:
        """Begin a span."""
        self._began = perf_counter()
        self._others = self._others_seconds()

    def stop(self) -> Reading:
        """End the span; return its telemetry."""
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
        guest = getattr(machine, "guest", 0.0) + getattr(machine, "guest_nice", 0.0)  # already part of user time
        return sum(machine) - guest - idle - own.user - own.system


def allowed_cores() -> int | None:
    """Return how many cores this process may use; None if unknown."""
    return len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else None


def _mhz() -> float | None:
    """Return the cores' mean clock; None if unknown."""
    try:
        frequency = psutil.cpu_freq()
    except (AttributeError, NotImplementedError, OSError):  # some systems and containers lack it
        return None
    return frequency.current if frequency and frequency.current > 0 else None
