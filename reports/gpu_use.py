"""The GPU telemetry of one row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from harness.records.schema import Row

THROTTLED_MARK = "gpu-throttled"  # as `hardware_profiles.gpu` writes them; reports cannot import it
CONTENTION_MARK = "gpu-contention"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """A row's telemetry, all GPUs together; null where unknown."""

    joules: float | None
    """Energy of the whole boards over the whole answer, prefill included."""
    counted: bool
    """Whether the energy comes from counters alone; else from power samples, in part at least."""
    watts: float | None
    """Mean power, added up."""
    sm_mhz: float | None
    """Lowest clock of the multiprocessors of any GPU."""
    celsius: float | None
    """Highest temperature of any GPU."""
    throttled: bool | None
    """Whether a GPU was slowed down meanwhile."""
    shared: bool | None
    """Whether another process computed on one."""


def gpu_use(row: Row) -> GpuUse | None:
    """Return a row's GPU telemetry, null where none was watched; values of another shape are skipped."""
    gpus = row.telemetry.get("gpus")
    if not isinstance(gpus, list):
        return None
    devices = [one for one in gpus if isinstance(one, dict)]
    joules = _positive(row.telemetry.get("gpu_joules"))
    watts = _some(_positive(one.get("watts")) for one in devices)
    clocks = (one.get("sm_mhz") for one in devices)
    return GpuUse(
        joules=joules,
        counted=joules is not None and row.telemetry.get("gpu_joules_from") == "counter",
        watts=math.fsum(watts) if watts and len(watts) == len(devices) else None,
        sm_mhz=min(_some(_positive(one.get("min")) for one in clocks if isinstance(one, dict)), default=None),
        celsius=max(_some(_positive(one.get("celsius")) for one in devices), default=None),
        throttled=_seen(row, THROTTLED_MARK, [one.get("throttled") for one in devices]),
        shared=_seen(row, CONTENTION_MARK, [one.get("others") for one in devices]),
    )


def _seen(row: Row, mark: str, values: list[object]) -> bool | None:
    """Return whether a row is marked; null where it is not, and a device's readings have gaps."""
    if mark in row.marks:
        return True
    return False if values and None not in values and "gpu_problem" not in row.telemetry else None


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0.0 < value < math.inf else None


def _some(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
