"""What a run ran on: code, packages and machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from foundation.digests import file_digest
from hardware_profiles.cpu import allowed_cores, cpu_quota
from harness.records.schema import Start

_PACKAGES = (
    "treegraft-bench",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "gguf",
    "numpy",
    "scipy",
    "xllamacpp",
)
FITTERS = ("scikit-learn", "lightgbm")
"""Packages that a fit depends on besides."""


def versions(beside: Sequence[str] = ()) -> dict[str, str]:
    """Return the versions of packages that output and speed depend on, and of those in `beside`."""
    result = {"python": platform.python_version()}
    for package in (*_PACKAGES, *beside):
        with suppress(importlib.metadata.PackageNotFoundError):
            result[package] = importlib.metadata.version(package)
    return result


def git_state(folder: Path) -> dict[str, Any]:
    """Return the commit of the checkout that holds `folder` and whether it is dirty; empty outside a checkout."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def source_digest(root: Path) -> str:
    """Return one sha256 over the Python and YAML files of our packages in `root`: the code, however installed."""
    digest = hashlib.sha256()
    for package in ("foundation", "hardware_profiles", "harness", "methods", "reports", "tasks", "treegraft"):
        for file in sorted((root / package).rglob("*")):
            if file.suffix in (".py", ".yaml"):
                digest.update(f"{file.relative_to(root).as_posix()} {file_digest(file)}\n".encode())
    return digest.hexdigest()


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def machine(gpus: Sequence[str] = ()) -> dict[str, Any]:
    """Return the machine: processor, its usable share, memory, GPUs that torch sees, NVML's facts of GPUs by UUID."""
    import torch

    facts: dict[str, Any] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "threads": torch.get_num_threads(),
        "allowed_cores": allowed_cores(),
        "cpu_quota": cpu_quota(),
    }
    if torch.cuda.is_available():
        facts["gpus"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        facts["cuda"] = torch.version.cuda
    if gpus:
        from hardware_profiles.nvml import describe

        facts["nvml"] = describe(gpus)
    return facts


def device_line(facts: Mapping[str, Any], gpus: Sequence[str]) -> str:
    """Return the device of a measurement in one line: the GPUs with their driver, if any, and the host.

    Args:
        facts: from `machine`.
        gpus: names of the GPUs that computed.
    """
    host = f"{facts['cpu']}, {facts['threads']} threads"
    if not gpus:
        return host
    watched = facts.get("nvml", {}).get("gpus", [])
    drivers = sorted({gpu["driver"] for gpu in watched if "driver" in gpu})
    driver = f" (driver {', '.join(drivers)})" if drivers else ""
    return f"{', '.join(gpus)}{driver}; host {host}"


def this_start(
    command: Sequence[str], gpus: Sequence[str] = (), engines: Mapping[str, str] = MappingProxyType({})
) -> Start:
    """Return this process's code, packages and machine.

    Args:
        command: its arguments.
        gpus: UUIDs of the GPUs that it uses.
        engines: for each role, its engine and how it computes.
    """
    root = Path(__file__).parents[2]
    return Start(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=list(command),
        git=git_state(root),
        source=source_digest(root),
        versions=versions(),
        engines=dict(engines),
        machine=machine(gpus),
    )


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
