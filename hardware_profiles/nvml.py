"""NVML, the management library of NVIDIA's driver: imported only for runs on a GPU, read sensor by sensor."""

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
"""Bits of NVML that slow a busy device down. The others are idleness, clocks that somebody set, displays, and the top
of the voltage curve."""

_PREFIXES = ("GPU-", "MIG-")  # CUDA tells a UUID without them
_UNANSWERED = (
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_NO_DATA",
)  # a sensor is missing; any other error means that the device is


class NvmlError(Exception):
    """NVML, or a device of it, does not answer; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a device's sensors say at one moment; None where one does not answer."""

    at: float
    """Seconds, by `perf_counter`."""
    joules: float | None = None
    """Energy of the whole board since the driver was loaded."""
    watts: float | None = None
    """Power of the whole board: at this moment, or over the last second where the driver tells no better."""
    sm_mhz: int | None = None
    """Clock of the multiprocessors."""
    memory_mhz: int | None = None
    """Clock of the memory."""
    celsius: int | None = None
    """Temperature of the chip."""
    busy_pct: int | None = None
    """Share of the driver's last sampling period in which a kernel ran."""
    memory_mib: float | None = None
    """Memory in use, by anybody."""
    reasons: int | None = None
    """Why clocks are lower than they could be, as NVML's bits."""
    others: int | None = None
    """Computing processes that are not this one."""


class Device:
    """One GPU and those of its sensors that answer.

    Args:
        nvml: the module pynvml, initialised.
        uuid: as CUDA tells it.

    Raises:
        NvmlError: NVML knows no such device, or the device does not answer.
    """

    def __init__(self, nvml: Nvml, uuid: str) -> None:
        self._nvml = nvml
        self._unanswered = {getattr(nvml, name) for name in _UNANSWERED}
        self._handle = self._find(uuid)
        found = ((name, self._first_that_answers(ways)) for name, ways in _SENSORS.items())
        self._sensors = {name: read for name, read in found if read is not None}
        if not self._sensors:
            raise NvmlError(f"NVML: no sensor of {uuid} answers")
        self.power_window_s = _MEAN_S if self._sensors.get("watts") is _mean_watts else 0.0
        """Of how much time its power is the mean."""

    def read(self) -> Sample:
        """Return what the sensors say now.

        Raises:
            NvmlError: the device does not answer.
        """
        at = perf_counter()
        return Sample(at=at, **{name: self._ask(read, self._handle) for name, read in self._sensors.items()})

    def facts(self) -> dict[str, Any]:
        """Return name, UUID, driver and power limit in watts, as far as the driver tells them.

        Raises:
            NvmlError: the device does not answer.
        """
        found = {name: self._ask(read, self._handle) for name, read in _FACTS.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _find(self, uuid: str) -> Any:
        for prefix in _PREFIXES:
            handle = self._ask(_by_uuid, prefix + uuid)
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
    """Return devices, ready to be read.

    Args:
        uuids: as CUDA tells them, so `CUDA_VISIBLE_DEVICES` and CUDA's own order need no heed here.

    Raises:
        NvmlError: there is no library, no driver, or no such device.
    """
    nvml = _initialised()
    return [Device(nvml, uuid) for uuid in uuids]


def describe(uuids: Sequence[str]) -> dict[str, Any]:
    """Return what a manifest says of GPUs.

    Returns:
        `gpus`: for each its `name`, `uuid`, `driver` and `power_limit_w`; or `problem`: why NVML does not answer.
    """
    try:
        return {"gpus": [device.facts() for device in open_devices(uuids)]}
    except NvmlError as problem:
        return {"problem": str(problem)}


def names_and_driver() -> tuple[list[str], str]:
    """Return the names of all devices that NVML sees, hidden from CUDA or not, and the driver's version.

    Raises:
        NvmlError: there is no library, or no driver that lives.
    """
    nvml = _initialised()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return [nvml.nvmlDeviceGetName(handle) for handle in handles], nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError as error:
        raise NvmlError(f"NVML: {error}") from error


def throttle_reasons(bits: int) -> list[str]:
    """Return the names of the bits that slow a busy device down."""
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


def _by_uuid(nvml: Nvml, uuid: str) -> Any:
    return nvml.nvmlDeviceGetHandleByUUID(uuid)


def _instant_watts(nvml: Nvml, gpu: Any) -> float:
    (field,) = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_POWER_INSTANT])
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(field.nvmlReturn)
    return float(field.value.uiVal / 1e3)


_MEAN_S = 1.0
"""What `nvmlDeviceGetPowerUsage` takes its mean over, on devices since Ampere."""


def _mean_watts(nvml: Nvml, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3)


def _others(processes: Sequence[Any]) -> int | None:
    found = {process.pid for process in processes}
    # In a container this process may bear another number, or all may be hidden: then nobody can tell who is a stranger.
    return len(found) - 1 if os.getpid() in found else None


# Several ways to one sensor: the first that answers is kept.
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
