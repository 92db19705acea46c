"""The names that this installation provides, as plain records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hardware_profiles.machine import Publication, get_machine, machine_names
from hardware_profiles.profile import get_profile, profile_names
from harness.models.pair import get_pair, pair_names
from methods.catalog import catalogue
from tasks.registry import get_task, task_names


def listing(what: str) -> list[dict[str, Any]]:
    """Return one record a name of `methods`, `tasks`, `pairs` or `profiles`, each with `name` and `about`."""
    if what == "methods":
        return [
            {"name": name, "about": entry.about, "family": entry.family, "settings": entry.settings}
            for name, entry in catalogue().items()
        ]
    if what == "tasks":
        tasks = map(get_task, task_names())
        return [{"name": one.name, "about": one.title, "version": one.version, "licence": one.licence} for one in tasks]
    if what == "profiles":
        return sorted([*_profiles(), *_machines()], key=lambda line: str(line["name"]))
    return [
        {"name": pair.name, "about": pair.about, "held_out": pair.held_out, "performance": pair.performance}
        for pair in map(get_pair, pair_names())
    ]


def _profiles() -> Iterator[dict[str, Any]]:
    for one in map(get_profile, profile_names()):
        yield _profile(one.name, one.about, one.kind, one.device, one.pair)


def _machines() -> Iterator[dict[str, Any]]:
    """Yield the machines that a pair turns into a profile."""
    for one in map(get_machine, machine_names()):
        assert one is not None
        pairs = f"any of {', '.join(one.calls)}" if isinstance(one, Publication) else "any of known architecture"
        yield _profile(one.name, one.about, one.kind, one.device, pairs)


def _profile(name: str, about: str, kind: str, device: str, pair: str) -> dict[str, Any]:
    return {"name": name, "about": f"{about} ({kind}; {device})", "kind": kind, "pair": pair, "device": device}
