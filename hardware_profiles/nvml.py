"""NVML, the NVIDIA driver's management library: imported only for runs on a GPU, read sensor by sensor."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

Nvml = Any  # the module pynvml, which has no types
Read = Callable[[Nvml, Any], Any]

THROTTLE_REASONS = {
    0x004: "power-cap",
    0x008: "hardware-slowdown",
    0x020: "software-thermal",
    0x040: "hardware-thermal",
    0x080: "power-brake",
    0x200: "board-limit",
}
"""NVML bits that slow a busy device; the others mean idleness, user-set clocks, displays or the top voltage."""

_PREFIXES = ("GPU-", "MIG-")  # CUDA's UUIDs lack them
_MEAN_S = 1.0  # averaging window of `nvmlDeviceGetPowerUsage` since Ampere
# NVML_ERROR_…: a sensor is missing; any other error means that the device is.
_UNANSWERED = ("INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION", "NOT_FOUND", "FUNCTION_NOT_FOUND", "NO_DATA")


class NvmlError(Exception):
    """NVML or a device does not answer; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One reading of a device's sensors; None for a sensor that does not answer."""

    at: float
    """Seconds, by `perf_counter`."""
    joules: float | None = None
    """Energy of the whole board since the driver was loaded."""
    watts: float | None = None
    """Power of the whole board: now, or over the last second where the driver offers no better."""
    sm_mhz: int | None = None
    """SM clock."""
    memory_mhz: int | None = None
    """Memory clock."""
    celsius: int | None = None
    """Chip temperature."""
    busy_pct: int | None = None
    """Share of the driver's last sampling period with a kernel running."""
    memory_mib: float | None = None
    """Memory in use by all processes."""
    reasons: int | None = None
    """NVML's bits for lowered clocks."""
    others: int | None = None
    """Compute processes other than this one."""


class Device:
    """One GPU, by CUDA UUID, and those of its sensors that answer; raises NvmlError if there are none."""

    def __init__(self, nvml: Nvml, uuid: str) -> None:
        self._nvml = nvml
        self._unanswered = {getattr(nvml, f"NVML_ERROR_{name}") for name in _UNANSWERED}
        self._handle = self._find(uuid)
        sensors = ((name, self._first_that_answers(ways)) for name, ways in _SENSORS.items())
        self._sensors = {name: read for name, read in sensors if read is not None}
        if not self._sensors:
            raise NvmlError(f"NVML: no sensor of {uuid} answers")
        self.power_window_s = _MEAN_S if self._sensors.get("watts") is _mean_watts else 0.0

    def read(self) -> Sample:
        """Return a sample; raises NvmlError if the device does not answer."""
        at = perf_counter()
        return Sample(at=at, **{name: self._ask(read, self._handle) for name, read in self._sensors.items()})

    def facts(self) -> dict[str, Any]:
        """Return name, UUID, driver and power limit in watts, as far as the driver knows; raises NvmlError."""
        facts = ((name, self._ask(read, self._handle)) for name, read in _FACTS.items())
        return {name: value for name, value in facts if value is not None}

    def _find(self, uuid: str) -> Any:
        for prefix in _PREFIXES:
            handle = self._ask(lambda nvml, name: nvml.nvmlDeviceGetHandleByUUID(name), prefix + uuid)
            if handle is not None:
                return handle
        raise NvmlError(f"NVML: no device has the UUID {uuid}")

    def _first_that_answers(self, ways: Sequence[Read]) -> Read | None:
        for read in ways:
            try:
                if self._ask(read, self._handle) is not None:
                    return read
            except (NvmlError, AttributeError):  # some drivers say "unknown error"; an old pynvml lacks the function
                continue
        return None

    def _ask(self, read: Read, handle: Any) -> Any:
        try:
            return read(self._nvml, handle)
        except self._nvml.NVMLError as error:
            if error.value in self._unanswered:
                return None
            raise NvmlError(f"NVML: {error}") from error


def open_devices(uuids: Sequence[str]) -> list[Device]:
    """Return devices by CUDA UUID, in whatever order CUDA sees them; raises NvmlError if one does not open."""
    nvml = _initialised()
    return [Device(nvml, uuid) for uuid in uuids]


def describe(uuids: Sequence[str]) -> dict[str, Any]:
    """Return the manifest's GPU facts: `gpus` (each `name`, `uuid`, `driver`, `power_limit_w`), or `problem`."""
    try:
        return {"gpus": [device.facts() for device in open_devices(uuids)]}
    except NvmlError as problem:
        return {"problem": str(problem)}


def names_and_driver() -> tuple[list[str], str]:
    """Return the names of all devices, hidden from CUDA or not, and the driver's version; raises NvmlError."""
    nvml = _initialised()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return [nvml.nvmlDeviceGetName(handle) for handle in handles], nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError as error:
        raise NvmlError(f"NVML: {error}") from error


def throttle_reasons(bits: int) -> list[str]:
    """Return the names of the throttle reasons among NVML's bits."""
    return [name for bit, name in THROTTLE_REASONS.items() if bits & bit]


def _initialised() -> Nvml:
    try:
        import pynvml
    except ImportError as error:
        raise NvmlError("NVML: pynvml is not installed (package nvidia-ml-py)") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVML: {error}") from error
    return pynvml


def _instant_watts(nvml: Nvml, gpu: Any) -> float:
    (field,) = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_POWER_INSTANT])
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(field.nvmlReturn)
    return float(field.value.uiVal / 1e3)


def _mean_watts(nvml: Nvml, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3)


def _others(processes: Sequence[Any]) -> int | None:
    pids = {process.pid for process in processes}
    # In a container this process may have another number, or all may be hidden: then the others cannot be counted.
    return len(pids) - 1 if os.getpid() in pids else None


# Of several ways to one sensor, the first that answers is kept.
_SENSORS: dict[str, tuple[Read, ...]] = {
    "joules": (lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,),
    "watts": (_instant_watts, _mean_watts),
    "sm_mhz": (lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),),
    "memory_mhz": (lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),),
    "celsius": (
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),  # from CUDA 14 the only one
    ),
    "busy_pct": (lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,),
    "memory_mib": (lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / 2**20,),
    "reasons": (
        lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
        lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),  # its name before driver 535
    ),
    "others": (  # by version: without one, pynvml answers a missing function with an error of its own kind
        lambda nvml, gpu: _others(nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)),
        lambda nvml, gpu: _others(nvml.nvmlDeviceGetComputeRunningProcesses_v2(gpu)),
    ),
}
_FACTS: dict[str, Read] = {
    "name": lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),
    "uuid": lambda nvml, gpu: nvml.nvmlDeviceGetUUID(gpu),
    "driver": lambda nvml, _: nvml.nvmlSystemGetDriverVersion(),
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
}
