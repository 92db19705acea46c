"""Everything that watches the machine while a row is timed."""

from __future__ import annotations

from collections.abc import Sequence

from hardware_profiles.cpu import CpuWatch
from hardware_profiles.reading import Reading


class Watch:
    """The CPU, and the GPUs that a run uses; without one, NVML is not even imported.

    Args:
        gpus: their UUIDs as CUDA tells them, without prefix.
    """

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
        """End the span; return what was seen."""
        cpu = self._cpu.stop()
        if self._gpu is None:
            return cpu
        gpu = self._gpu.stop()
        return Reading({**cpu.telemetry, **gpu.telemetry}, [*cpu.marks, *gpu.marks])
