"""Names to method specifications: the catalogue, a configuration's definitions, plug-ins. Imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import UserError
from harness.registry import unknown_name
from methods.schedulers.artifact import DRAFTING_KEYS, artifact_digest
from methods.schedulers.edge_artifact import edges_digest
from methods.settings import Settings

BASELINE = "autoregressive"

FAMILIES = {
    "autoregressive": "methods.tree_method",
    "calibrated": "methods.calibrated",
    "csd": "methods.csd",
    "treegraft": "methods.treegraft",
    "hf-assisted": "methods.peers",
    "hf-generate": "methods.peers",
}

PEERS = {"hf-assisted", "hf-generate"}
"""Families of outside peers, whose rounds nobody sees."""

FITTED = ("learned", "planner")
"""Schedulers that are read from an artifact."""

_BOUNDED = ("early", "entropy-confidence", "candidate-score-gap", "latency-normalized", *FITTED)

UNCHANGING = ("never", "always", "fixed")
"""Schedulers that call in the same steps of every round, whatever things cost."""

_DRAFTING = (*DRAFTING_KEYS, "small")
"""Parameters that every scheduler of treegraft drafts by."""

_READ = {"calibrated": ("artifact", "options", "steps", "width", "budget"), "autoregressive": ()}
"""By family other than treegraft, what it reads where that is more or less than options."""

_READERS = {
    "schedule": ("fixed",),
    "signals": ("learned",),
    "artifact": FITTED,
    "max_calls": _BOUNDED,
    "threshold": ("entropy-confidence", "candidate-score-gap", "latency-normalized"),
    "call_gain": ("latency-normalized",),
}
"""By parameter, the schedulers of treegraft that read it; what a plug-in's reads, nobody knows."""

NO_SMALL = "this pair has no small neural model; give its YAML file one as small: {hub: owner/name}"
"""What a method is told that needs one where there is none."""


class Entry(BaseModel):
    """One line of the catalogue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: str
    about: str = ""
    settings: dict[str, Any] = {}


class MethodSpec(BaseModel):
    """A method as a run uses it: its unique name, its code and all its parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    family: str
    settings: Settings
    artifact_sha256: str | None = None
    """What was in the files of its scheduler's artifact, where it has one."""


@cache
def catalogue() -> dict[str, Entry]:
    """Return the named methods, plug-in families included under their own names."""
    text = files("methods").joinpath("catalog.yaml").read_text(encoding="utf-8")
    entries = {name: Entry.model_validate(entry) for name, entry in yaml.safe_load(text).items()}
    for point in entry_points(group="treegraft.methods"):
        if point.name in entries:
            raise UserError(f"plug-in {point.value} claims the method name {point.name!r}: uninstall or rename it")
        entries[point.name] = Entry(family=point.name, about=f"plug-in {point.value}")
    return entries


def resolve(
    name: str,
    *,
    definitions: Mapping[str, Mapping[str, Any]],
    pair: Mapping[str, Any],
    config: Mapping[str, Any],
    flags: Mapping[str, Any],
) -> MethodSpec:
    """Return the specification of a method.

    A parameter comes from, in this order: flag, configuration (the method's own definition, then the
    top level), what the catalogue pins, the pair's default, the global default.

    Args:
        name: a catalogue name or one that `definitions` defines.
        definitions: the configuration's methods by name: `base` and parameters.
        pair: the pair's defaults.
        config: the configuration's top-level method parameters.
        flags: the command line's.

    Raises:
        UserError: an unknown name or parameter, or a value out of range.
    """
    own = dict(definitions.get(name, {}))
    base = own.pop("base", name)
    known = {**_registered(), **catalogue()}
    if base not in known:
        raise unknown_name("method", base, [*known, *(definitions if base == name else ())])
    entry = known[base]
    layers = (pair, entry.settings, config, own, flags)
    merged = {key: value for layer in layers for key, value in layer.items()}
    options = [layer["options"] for layer in layers if isinstance(layer.get("options"), Mapping)]
    if isinstance(merged.get("options"), Mapping):
        merged["options"] = {key: value for layer in options for key, value in layer.items()}
    asked = {**config, **own, **flags}
    steps, schedule = asked.get("steps"), merged.get("schedule")
    if schedule and "schedule" not in asked and isinstance(steps, int):
        longer = [] if "schedule" in entry.settings else [0] * (steps - len(schedule))  # of the pair's
        merged["schedule"] = [*schedule[:steps], *longer]
    try:
        spec = MethodSpec(name=name, family=entry.family, settings=Settings.model_validate(merged))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"][:1]) or "schedule"
        if first["type"] == "extra_forbidden":
            raise unknown_name(f"key of method {name!r}", key, ["name", "base", *Settings.model_fields]) from error
        if key in pair and not any(key in layer for layer in (entry.settings, config, own, flags)):
            key = f"{key}, of the pair's defaults"
        given = "" if isinstance(first["input"], dict) else f" (given: {first['input']!r})"
        raise UserError(f"method {name!r}: {key}: {first['msg'].removeprefix('Value error, ')}{given}") from error
    _check_reads(spec, own)
    try:
        return spec.model_copy(update={"artifact_sha256": fitted_digest(spec)})
    except UserError as error:
        raise UserError(f"method {name!r}: {error}") from error


def fitted_digest(spec: MethodSpec) -> str | None:
    """Return the sha256 of what a method was fitted to be, as it lies there now; None where it reads no artifact.

    Raises:
        UserError: there is none of that name.
    """
    if not _reads_artifact(spec.family, spec.settings.scheduler) or spec.settings.artifact is None:
        return None
    digest = edges_digest if spec.family == "calibrated" else artifact_digest
    return digest(spec.settings.artifact)


def weighs_times(spec: MethodSpec) -> bool:
    """Return whether a method's schedules hang on T_tgt and T_mid; those of a plug-in's scheduler may."""
    return spec.family == "treegraft" and spec.settings.scheduler not in UNCHANGING


def is_fitted(name: str) -> bool:
    """Return whether a method of the catalogue is read from an artifact."""
    entry = catalogue()[name]
    return _reads_artifact(entry.family, entry.settings.get("scheduler"))


def _reads_artifact(family: str, scheduler: str | None) -> bool:
    return family == "calibrated" or (family == "treegraft" and scheduler in FITTED)


def _check_reads(spec: MethodSpec, own: Mapping[str, Any]) -> None:
    """Refuse parameters that a definition gives its method in vain.

    Raises:
        UserError: nobody reads one.
    """
    family, scheduler = spec.family, spec.settings.scheduler
    if family not in FAMILIES or (family == "treegraft" and scheduler not in (*UNCHANGING, *_BOUNDED)):
        return  # a plug-in may read anything
    reader = f"scheduler {scheduler}" if family == "treegraft" else family
    read = {*_READ.get(family, ("options",))}
    if family == "calibrated" and spec.settings.options.get("size") != "budget":
        read.remove("budget")  # the machine sizes its trees
    if family == "treegraft":
        read = {"scheduler", *_DRAFTING, *(key for key, readers in _READERS.items() if scheduler in readers)}
    for key in ("scheduler", *_READERS, *_DRAFTING, "options"):
        if own.get(key) not in (None, {}) and key not in read:
            reader = "calibrated of size machine" if (family, key) == ("calibrated", "budget") else reader
            raise UserError(f"method {spec.name!r}: {key}: {reader} does not read it; leave it out")


def _registered() -> dict[str, Entry]:
    """Return the families that this process registered itself; there are none before the registry is imported."""
    module = sys.modules.get("methods.method")
    names = module.METHODS.names() if module is not None else []
    return {name: Entry(family=name) for name in names if name not in FAMILIES}


def needed_drafters(spec: MethodSpec) -> list[str]:
    """Return which neural drafters of the pair a method of ours needs: `middle`, `small`, both or none."""
    scheduled = spec.family == "treegraft" and spec.settings.scheduler != "never"
    middle = scheduled or spec.family in ("calibrated", "csd", "hf-assisted")
    small = spec.family == "treegraft" and spec.settings.small == "neural"
    return ["middle"] * middle + ["small"] * small


def load_family(family: str) -> Any:
    """Return the class of a method family, importing its module or plug-in.

    Raises:
        UserError: an unknown family, or a plug-in that does not load.
    """
    import importlib

    from methods.method import METHODS, Method

    if family in FAMILIES:
        importlib.import_module(FAMILIES[family])
    found = METHODS.get(family)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise UserError(f"plug-in method {family!r} is {found!r}, no subclass of Method: mend or uninstall it")
    return found
