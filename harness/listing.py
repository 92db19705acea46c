"""What this installation knows, as plain records. Imports no torch."""

from __future__ import annotations

from typing import Any

from hardware_profiles.profile import get_profile, profile_names
from harness.pair import get_pair, pair_names
from methods.catalog import catalogue
from tasks.registry import get_task, task_names


def listing(what: str) -> list[dict[str, Any]]:
    """Return one record a name, each with `name` and `about`.

    Args:
        what: methods, tasks, pairs or profiles.
    """
    if what == "methods":
        return [
            {"name": name, "about": entry.about, "family": entry.family, "settings": entry.settings}
            for name, entry in catalogue().items()
        ]
    if what == "tasks":
        tasks = [get_task(name) for name in task_names()]
        return [
            {"name": task.name, "about": task.title, "version": task.version, "licence": task.licence} for task in tasks
        ]
    if what == "profiles":
        profiles = [get_profile(name) for name in profile_names()]
        return [
            {"name": one.name, "about": one.about, "kind": one.kind, "pair": one.pair, "device": one.device}
            for one in profiles
        ]
    pairs = [get_pair(name) for name in pair_names()]
    return [
        {"name": pair.name, "about": pair.about, "held_out": pair.held_out, "performance": pair.performance}
        for pair in pairs
    ]
