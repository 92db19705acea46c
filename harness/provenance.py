"""What a run ran on: code, packages, machine and digests of weights. Imports torch only when asked of it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from harness.results import Start

if TYPE_CHECKING:
    import torch

_PACKAGES = ("treegraft-bench", "torch", "transformers", "tokenizers", "safetensors", "gguf", "numpy", "scipy")
FITTERS = ("scikit-learn", "lightgbm")
"""What decides about fits besides."""


def file_digest(path: Path) -> str:
    """Return a file's sha256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_digest(folder: Path) -> str:
    """Return one sha256 over a folder's weight files, by name and content."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(f"{file.name} {file_digest(file)}\n".encode())
    return digest.hexdigest()


def tensors_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return one sha256 over named tensors, by name, type, shape and content."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def versions(beside: Sequence[str] = ()) -> dict[str, str]:
    """Return the versions of what decides about output and speed.

    Args:
        beside: distributions asked for as well.
    """
    found = {"python": platform.python_version()}
    for package in (*_PACKAGES, *beside):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state(folder: Path) -> dict[str, Any]:
    """Return the commit of the checkout that holds `folder` and whether it is dirty; empty where there is none."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def source_digest(root: Path) -> str:
    """Return one sha256 over the packages' own Python and YAML files: what ran, wherever it was installed from.

    Args:
        root: the folder that holds the packages.
    """
    digest = hashlib.sha256()
    for package in ("hardware_profiles", "harness", "methods", "reports", "tasks"):
        for file in sorted((root / package).rglob("*")):
            if file.suffix in (".py", ".yaml"):
                digest.update(f"{file.relative_to(root).as_posix()} {file_digest(file)}\n".encode())
    return digest.hexdigest()


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def machine(gpus: Sequence[str] = ()) -> dict[str, Any]:
    """Return the machine: processor, memory, threads and GPUs that torch sees.

    Args:
        gpus: UUIDs of those that a run uses: NVML is asked about them.
    """
    import torch

    facts: dict[str, Any] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "threads": torch.get_num_threads(),
        "allowed_cores": allowed_cores(),
    }
    if torch.cuda.is_available():
        facts["gpus"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        facts["cuda"] = torch.version.cuda
    if gpus:
        from hardware_profiles.nvml import describe

        facts["nvml"] = describe(gpus)
    return facts


def device_line(facts: Mapping[str, Any], gpus: Sequence[str]) -> str:
    """Return what times were measured on, in one line: the GPUs with their driver, if any, and the host.

    Args:
        facts: as `machine` returns them.
        gpus: names of the GPUs that computed.
    """
    host = f"{facts['cpu']}, {facts['threads']} threads"
    if not gpus:
        return host
    watched = facts.get("nvml", {}).get("gpus", [])
    drivers = sorted({gpu["driver"] for gpu in watched if "driver" in gpu})
    driver = f" (driver {', '.join(drivers)})" if drivers else ""
    return f"{', '.join(gpus)}{driver}; host {host}"


def this_start(command: Sequence[str], gpus: Sequence[str] = ()) -> Start:
    """Return what this process is: its code, packages and machine.

    Args:
        command: what was typed.
        gpus: UUIDs of those that it uses.
    """
    root = Path(__file__).parents[1]
    return Start(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=list(command),
        git=git_state(root),
        source=source_digest(root),
        versions=versions(),
        machine=machine(gpus),
    )


def allowed_cores() -> int | None:
    """Return how many cores this process may use, None where the system does not tell."""
    return len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else None


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
