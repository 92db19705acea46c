"""Telemetry of a timed row, from the CPU and the GPUs in use."""

from __future__ import annotations

from collections.abc import Sequence

from hardware_profiles.cpu import CpuWatch
from hardware_profiles.reading import Reading


class Watch:
    """Watches the CPU and the GPUs in use, by CUDA UUID without prefix; without any, NVML is not imported."""

    def __init__(self, gpus: Sequence[str] = ()) -> None:
        self._cpu = CpuWatch()
        self._gpu = None
        if gpus:
            from hardware_profiles.gpu import GpuWatch

            self._gpu = GpuWatch(gpus)

    def start(self) -> None:
        """Begin a span."""
        if self._gpu is not None:
            self._gpu.start()
        self._cpu.start()

    def stop(self) -> Reading:
        """End the span; return its telemetry."""
        cpu = self._cpu.stop()
        if self._gpu is None:
            return cpu
        gpu = self._gpu.stop()
        return Reading({**cpu.telemetry, **gpu.telemetry}, [*cpu.marks, *gpu.marks])
