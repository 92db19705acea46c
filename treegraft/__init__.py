"""The public face of treegraft-bench: names for users and plug-ins, each imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foundation.errors import UserError as UserError
    from foundation.roles import DrafterRole as DrafterRole
    from harness.records.manifest import Manifest as Manifest
    from harness.records.rows import load_rows as load_rows
    from harness.records.schema import Row as Row
    from harness.run.execution import Outcome as Outcome, run as run
    from methods.core.generation import Forward as Forward, Generation as Generation, Round as Round, Spans as Spans
    from methods.core.model import TreeModel as TreeModel
    from methods.core.sampling import DecodingParams as DecodingParams, Sampler as Sampler
    from methods.core.stopping import Stopper as Stopper
    from methods.core.tree import DraftTree as DraftTree
    from methods.core.verify import verify_tree as verify_tree
    from methods.drafters.drafter import Drafter as Drafter, TreeDrafter as TreeDrafter
    from methods.facts import MethodFacts as MethodFacts
    from methods.latency import Latency as Latency
    from methods.method import (
        Method as Method,
        Models as Models,
        PromptError as PromptError,
        register_method as register_method,
    )
    from methods.schedulers.scheduler import (
        BoundedScheduler as BoundedScheduler,
        DraftState as DraftState,
        Scheduler as Scheduler,
        register_scheduler as register_scheduler,
    )
    from methods.settings import Settings as Settings
    from methods.tree_method import TreeMethod as TreeMethod
    from methods.treegraft.method import TreeGraft as TreeGraft

_HOMES = {
    "foundation.errors": ("UserError",),
    "foundation.roles": ("DrafterRole",),
    "harness.records.manifest": ("Manifest",),
    "harness.records.rows": ("load_rows",),
    "harness.records.schema": ("Row",),
    "harness.run.execution": ("Outcome", "run"),
    "methods.core.generation": ("Forward", "Generation", "Round", "Spans"),
    "methods.core.model": ("TreeModel",),
    "methods.core.sampling": ("DecodingParams", "Sampler"),
    "methods.core.stopping": ("Stopper",),
    "methods.core.tree": ("DraftTree",),
    "methods.core.verify": ("verify_tree",),
    "methods.drafters.drafter": ("Drafter", "TreeDrafter"),
    "methods.facts": ("MethodFacts",),
    "methods.latency": ("Latency",),
    "methods.method": ("Method", "Models", "PromptError", "register_method"),
    "methods.schedulers.scheduler": ("BoundedScheduler", "DraftState", "Scheduler", "register_scheduler"),
    "methods.settings": ("Settings",),
    "methods.tree_method": ("TreeMethod",),
    "methods.treegraft.method": ("TreeGraft",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - type checkers read the imports above


def __getattr__(name: str) -> Any:
    """Return a public name, importing its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'treegraft' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
