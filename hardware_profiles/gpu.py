"""GPU telemetry of a timed row: energy, clocks, temperature, throttling and contention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from statistics import fmean
from threading import Event, Thread
from time import thread_time
from typing import Any, Literal

from hardware_profiles.nvml import Device, NvmlError, Sample, open_devices, throttle_reasons
from hardware_profiles.reading import Reading

THROTTLED_MARK = "gpu-throttled"
CONTENTION_MARK = "gpu-contention"

PERIOD_S = 0.1  # the driver updates its sensors every 20 to 100 ms
_COUNTER_WINDOW_S = 1.0  # ten updates of a slow energy counter: one more or less is a tenth
_PATIENCE_S = 5.0  # no call to a live driver takes this long
_HANGS = "NVML: a call does not return"

Clocks = dict[Literal["mean", "min", "max"], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """Telemetry of one GPU in one span; a sensor that does not answer leaves its field out."""

    samples: int
    """Number of sensor readings."""
    seconds: float
    """From the first to the last reading: prefill, decoding and the method's work around them."""
    joules: float | None
    """Energy of the whole board, idle share included; none if reading broke off."""
    joules_from: Literal["counter", "power"] | None
    """The board's energy counter in spans of a second or more, else integrated power samples."""
    watts: float | None
    """Mean power, integrated over the samples."""
    sm_mhz: Clocks | None
    """SM clock: `mean`, `min` and `max` of the samples inside the span."""
    memory_mhz: Clocks | None
    """Memory clock, likewise."""
    celsius: int | None
    """Highest temperature."""
    busy_pct: float | None
    """Mean share of time with a kernel running, over the samples inside the span."""
    memory_mib: float | None
    """Peak memory in use by all processes."""
    throttled: list[str] | None
    """Throttle reasons at any sample: names of `hardware_profiles.nvml.THROTTLE_REASONS`."""
    others: int | None
    """Most other compute processes; none if this process is not listed, as in some containers."""


class GpuWatch:
    """Samples GPUs' sensors, by CUDA UUID without prefix, ten times a second in a thread, from `start` to `stop`.

    Telemetry: `gpus`, a `GpuReading` per device; `gpu_joules`, their total energy if all have one, and
    `gpu_joules_from`, its sources; `gpu_watch_share`, CPU time of the thread over the span's; `gpu_problem`, why
    reading broke off. Marks: `gpu-throttled`, at any sample; `gpu-contention`, another process had a compute context.
    Without NVML or a device there is neither; `hardware_profiles.nvml.describe` says why.
    """

    def __init__(self, gpus: Sequence[str]) -> None:
        self._span: _Span | None = None
        self._hanging: _Span | None = None
        try:
            self._devices = open_devices(gpus)
        except NvmlError:
            self._devices = []

    def start(self) -> None:
        """Begin a span."""
        if self._hanging is not None and self._hanging.over:
            self._hanging = None
        self._span = _Span(self._devices) if self._devices and self._hanging is None else None

    def stop(self) -> Reading:
        """End the span; return its telemetry."""
        if self._hanging is not None:
            return Reading({"gpu_problem": _HANGS}, [])
        if self._span is None:
            return Reading({}, [])
        reading = self._span.end()
        if not self._span.over:
            self._hanging = self._span
        return reading


class _Span:
    """One span's samples, read in its own thread: a hung driver must not hang the run."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._samples: list[list[Sample]] = [[] for _ in devices]
        self._problem: str | None = None
        self._cpu_s = 0.0
        self._begun, self._ended = Event(), Event()
        self._thread = Thread(target=self._watch, name="gpu-watch", daemon=True)
        self._thread.start()
        self._begun.wait(_PATIENCE_S)

    @property
    def over(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def end(self) -> Reading:
        """Take the last sample and return the telemetry."""
        self._ended.set()
        self._thread.join(_PATIENCE_S)
        problem = self._problem if self.over else _HANGS
        whole = problem is None
        seen = [
            _reduced(list(samples), whole=whole, power_window_s=device.power_window_s)
            for device, samples in zip(self._devices, self._samples, strict=True)
            if samples
        ]
        telemetry: dict[str, Any] = {
            "gpus": [{name: value for name, value in asdict(one).items() if value is not None} for one in seen]
        }
        joules = [one.joules for one in seen if one.joules is not None]
        if len(joules) == len(self._devices):
            telemetry["gpu_joules"] = round(math.fsum(joules), 3)
            telemetry["gpu_joules_from"] = " and ".join(sorted({str(one.joules_from) for one in seen}))
        if seen and seen[0].seconds > 0.0 and self.over:
            telemetry["gpu_watch_share"] = round(self._cpu_s / seen[0].seconds, 6)
        if problem is not None:
            telemetry["gpu_problem"] = problem
        marks = [THROTTLED_MARK] if any(one.throttled for one in seen) else []
        marks += [CONTENTION_MARK] if any(one.others for one in seen) else []
        return Reading(telemetry, marks)

    def _watch(self) -> None:
        self._read()
        self._begun.set()
        while self._problem is None and not self._ended.wait(PERIOD_S):
            self._read()
        if self._problem is None:
            self._read()
        self._cpu_s = thread_time()

    def _read(self) -> None:
        try:
            for device, samples in zip(self._devices, self._samples, strict=True):
                samples.append(device.read())
        except NvmlError as problem:
            self._problem = str(problem)


def _reduced(samples: list[Sample], *, whole: bool, power_window_s: float) -> GpuReading:
    """Return a summary of samples; energy only if they cover the whole span and nothing before it."""
    inside = samples[1:-1]  # at the ends the device waits for the host
    seconds = samples[-1].at - samples[0].at
    energy = _integral(samples) if seconds >= power_window_s else None
    joules, source = _joules(samples, energy) if whole else (None, None)
    reasons = _known(samples, "reasons")
    return GpuReading(
        samples=len(samples),
        seconds=round(seconds, 6),
        joules=None if joules is None else round(joules, 3),
        joules_from=source,
        watts=None if energy is None or seconds == 0.0 else round(energy / seconds, 3),
        sm_mhz=_clocks(_known(inside, "sm_mhz")),
        memory_mhz=_clocks(_known(inside, "memory_mhz")),
        celsius=max(_known(samples, "celsius"), default=None),
        busy_pct=_mean(_known(inside, "busy_pct")),
        memory_mib=max(_known(samples, "memory_mib"), default=None),
        throttled=throttle_reasons(reduce(or_, reasons)) if reasons else None,
        others=max(_known(samples, "others"), default=None),
    )


def _joules(samples: list[Sample], energy: float | None) -> tuple[float | None, Literal["counter", "power"] | None]:
    first, last = samples[0], samples[-1]
    if first.joules is not None and last.joules is not None and last.at - first.at >= _COUNTER_WINDOW_S:
        counted = last.joules - first.joules
        if counted > 0.0:  # else it stands still, or was reset with the driver
            return counted, "counter"
    return (None, None) if energy is None else (energy, "power")


def _integral(samples: list[Sample]) -> float | None:
    """Return joules integrated from power by trapezoids; None if a sample lacks it."""
    joules = 0.0
    for one, other in pairwise(samples):
        if one.watts is None or other.watts is None:
            return None
        joules += (one.watts + other.watts) / 2 * (other.at - one.at)
    return joules if len(samples) > 1 else None


def _known(samples: list[Sample], name: str) -> list[Any]:
    return [value for sample in samples if (value := getattr(sample, name)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 1) if values else None


def _clocks(values: Sequence[float]) -> Clocks | None:
    return {"mean": round(fmean(values), 1), "min": min(values), "max": max(values)} if values else None
