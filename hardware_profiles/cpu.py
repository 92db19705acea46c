"""The CPU: how much of it this process may use, and its telemetry in a timed row: contention, clock and memory."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import psutil

from hardware_profiles.reading import Reading

CONTENTION_MARK = "cpu-contention"
SLOWED_MARK = "cpu-slowed"

_OTHERS_LIMIT = 0.1  # cores; half a core held by others slows a two-core forward by a quarter
_SLOWED_SHARE = 0.9  # of the highest frequency seen in the run
_TICK_S = 0.02  # two ticks of the kernel's accounting, its resolution in a short row


class CpuWatch:
    """Compares the machine's busy time with that of this process and its children, from `start` to `stop`.

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
        idle = machine.idle + getattr(machine, "iowait", 0.0)
        guest = getattr(machine, "guest", 0.0) + getattr(machine, "guest_nice", 0.0)  # already part of user time
        return sum(machine) - guest - idle - self._own_seconds()

    def _own_seconds(self) -> float:
        """Return the time of this process and its children, in which outside engines run."""
        own = self._process.cpu_times()
        seconds = own.user + own.system + own.children_user + own.children_system  # of children that ended
        for child in self._process.children(recursive=True):
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            seconds += times.user + times.system
        return seconds


def allowed_cores() -> int | None:
    """Return how many cores this process may keep busy, by its affinity and CPU quota; None if unknown."""
    by_affinity = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else None
    quota = cpu_quota()
    by_quota = None if quota is None else _whole(quota)
    return min((cores for cores in (by_affinity, by_quota) if cores is not None), default=None)


def cpu_quota(mount: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Return the CPUs' worth of time that this process's control groups grant it; None without a limit.

    Args:
        mount: where control groups of version 1 or 2 are mounted.
        own: lists this process's groups.
    """
    quotas = [quota for folder in _cpu_groups(mount, own) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def over_quota(threads: int) -> str | None:
    """Return in one line that threads exceed the CPU quota, and the fix; None where they do not."""
    quota = cpu_quota()
    if quota is None or threads <= max(1, quota):
        return None
    return (
        f"{threads} threads, but the CPU quota of the control group is {quota:g}: they would be stopped in turn; "
        f"give --threads {_whole(quota)}"
    )


def _whole(quota: float) -> int:
    return max(1, int(quota))


def _cpu_groups(mount: Path, own: Path) -> list[Path]:
    """Return the folders of the groups that hold this process and bear on its CPU time, parents included."""
    folders = {mount: None, mount / "cpu": None}  # in a container its own group may be mounted there, whatever its path
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = mount / "cpu" if controllers else mount
        parts = path.strip("/").split("/")
        folders.update({top.joinpath(*parts[:depth]): None for depth in range(1, len(parts) + 1)})
    return list(folders)


def _quota(folder: Path) -> float | None:
    """Return a group's own quota in CPUs: of version 2, else 1."""
    words = _text(folder / "cpu.max").split() or [
        *_text(folder / "cpu.cfs_quota_us").split(),
        *_text(folder / "cpu.cfs_period_us").split(),
    ]
    if len(words) != 2 or not words[0].isdecimal():  # "max" or -1: no limit
        return None
    return int(words[0]) / int(words[1])


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")  # a group may be called anything
    except OSError:  # no such system, version or controller
        return ""


def _mhz() -> float | None:
    """Return the cores' mean clock; None if unknown."""
    try:
        frequency = psutil.cpu_freq()
    except (AttributeError, NotImplementedError, OSError):  # some systems and containers lack it
        return None
    return frequency.current if frequency and frequency.current > 0 else None
