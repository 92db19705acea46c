"""Method specifications by name: the catalogue, a configuration's definitions, plug-ins."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import Field, ValidationError

from foundation.errors import UserError
from foundation.registry import entry_points, unknown_name
from foundation.roles import DrafterRole
from foundation.strict_model import Fault, StrictModel, first_fault
from methods.facts import MethodFacts
from methods.settings import MOST_STEPS, Settings

if TYPE_CHECKING:
    from methods.method import Method

BASELINE = "autoregressive"

FAMILIES = {
    "autoregressive": ("methods.facts", "methods.tree_method"),
    "calibrated": ("methods.calibrated.facts", "methods.calibrated.method"),
    "csd": ("methods.rivals.csd.facts", "methods.rivals.csd.method"),
    "treegraft": ("methods.treegraft.facts", "methods.treegraft.method"),
    "hf-assisted": ("methods.external.facts", "methods.external.huggingface"),
    "hf-generate": ("methods.external.facts", "methods.external.huggingface"),
    "llamacpp": ("methods.external.facts", "methods.external.llamacpp"),
    "llamacpp-ngram": ("methods.external.facts", "methods.external.llamacpp"),
}
"""Our own families: the module of their facts, which needs no torch, and of their code."""

Parameters = Mapping[str, Any]


class Entry(StrictModel):
    """One entry of the catalogue."""

    family: str
    """Family whose code it runs."""
    about: str = ""
    """One line for `treegraft ls methods`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Parameters that the name pins."""


class MethodSpec(StrictModel):
    """A method in a run: its unique name, its family and all its parameters."""

    name: str
    """Its name, as rows carry it."""
    family: str
    """Family whose code it runs."""
    settings: Settings
    """All its parameters."""
    artifact_sha256: str | None = None
    """Digest of its artifact's files, if it reads one."""

    @property
    def facts(self) -> MethodFacts:
        """Facts of its family; a plug-in is loaded for them."""
        return facts_of(self.family)

    @property
    def needed_drafters(self) -> tuple[DrafterRole, ...]:
        """Neural drafters of the pair that it needs: `middle`, `small`, both or none."""
        return self.facts.needed_drafters(self.settings)

    @property
    def weighs_times(self) -> bool:
        """Whether its schedules depend on the run's latencies."""
        return self.facts.weighs_times(self.settings)


@cache
def catalogue() -> dict[str, Entry]:
    """Return the named methods, plug-in families included under their own names."""
    text = files("methods").joinpath("catalog.yaml").read_text(encoding="utf-8")
    entries = {name: Entry.model_validate(entry) for name, entry in yaml.safe_load(text).items()}
    for point in entry_points("treegraft.methods"):
        if point.name in entries:
            raise UserError(f"plug-in {point.value} claims the method name {point.name!r}: uninstall or rename it")
        entries[point.name] = Entry(family=point.name, about=f"plug-in {point.value}")
    return entries


ORIGINS = ("pair", "catalogue", "configuration", "definition", "flag")
"""Origins of parameters besides the defaults; later ones win."""

_NOTHING: Parameters = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Resolved:
    """A method's specification, and the origin of each parameter."""

    spec: MethodSpec
    origins: Mapping[str, str]
    """By parameter, one of `ORIGINS`; absent ones have their defaults."""


def resolve(
    name: str,
    *,
    definitions: Mapping[str, Parameters] = _NOTHING,
    pair: Parameters = _NOTHING,
    config: Parameters = _NOTHING,
    flags: Parameters = _NOTHING,
) -> MethodSpec:
    """Return the specification of a method; see `resolve_with_origins`."""
    return resolve_with_origins(name, definitions=definitions, pair=pair, config=config, flags=flags).spec


def resolve_with_origins(
    name: str,
    *,
    definitions: Mapping[str, Parameters] = _NOTHING,
    pair: Parameters = _NOTHING,
    config: Parameters = _NOTHING,
    flags: Parameters = _NOTHING,
) -> Resolved:
    """Return a method's specification and the origins of its parameters.

    Precedence: `flags`, the configuration's definition of the method (`base` and parameters), the configuration's top
    level, what the catalogue pins, the pair's default, the global default. Raises UserError for an unknown name or
    parameter, or an invalid value.
    """
    own = dict(definitions.get(name, {}))
    entry = _entry(own.pop("base", name), definitions if "base" not in definitions.get(name, {}) else {})
    layers = dict(zip(ORIGINS, (pair, entry.settings, config, own, flags), strict=True))
    origins = {key: origin for origin, values in layers.items() for key in values}
    merged = {key: layers[origin][key] for key, origin in origins.items()}
    if isinstance(merged.get("options"), Mapping):  # merged key by key
        options = (values["options"] for values in layers.values() if isinstance(values.get("options"), Mapping))
        merged["options"] = {key: value for layer in options for key, value in layer.items()}
    if merged.get("schedule") and origins["schedule"] in ("pair", "catalogue"):
        merged["schedule"] = _of_length(merged["schedule"], merged.get("steps"), origins)
    try:
        spec = MethodSpec(name=name, family=entry.family, settings=Settings.model_validate(merged))
    except ValidationError as error:
        raise _refused(name, first_fault(error), origins) from error
    _check_read(spec, own)
    try:
        digest = spec.facts.artifact_digest(spec.settings)
    except UserError as error:
        raise UserError(f"method {name!r}: {error}") from error
    return Resolved(spec.model_copy(update={"artifact_sha256": digest}), origins)


def _entry(base: str, definitions: Mapping[str, Parameters]) -> Entry:
    entries = {**_registered(), **catalogue()}
    if base not in entries:
        raise unknown_name("method", base, [*entries, *definitions])
    return entries[base]


def _of_length(schedule: Sequence[int], steps: object, origins: Mapping[str, str]) -> Sequence[int]:
    """Return a schedule cut to the configured steps; the pair's is padded too, the catalogue's is not."""
    if origins.get("steps") not in ("configuration", "definition", "flag"):
        return schedule
    if not isinstance(steps, int) or steps > MOST_STEPS:
        return schedule  # the settings say what is wrong
    longer = [] if origins["schedule"] == "catalogue" else [0] * (steps - len(schedule))
    return [*schedule[:steps], *longer]


def _refused(name: str, fault: Fault, origins: Mapping[str, str]) -> UserError:
    key = str(fault.place[0]) if fault.place else "schedule"
    if fault.is_unknown_key:
        return unknown_name(f"key of method {name!r}", key, ["name", "base", *Settings.model_fields])
    where = f"{key}, of the pair's defaults" if origins.get(key) == "pair" else key
    given = "" if isinstance(fault.given, dict) else f" (given: {fault.shown})"
    return UserError(f"method {name!r}: {where}: {fault.message}{given}")


def _check_read(spec: MethodSpec, own: Parameters) -> None:
    """Refuse parameters that a definition sets but its method does not read; plug-ins may read any."""
    read = spec.facts.parameters(spec.settings)
    if spec.family not in FAMILIES or read is None:
        return
    for key in Settings.model_fields:
        if own.get(key) not in (None, {}) and key not in read:
            reader = spec.facts.reader(spec.family, spec.settings, key)
            raise UserError(f"method {spec.name!r}: {key}: {reader} does not read it; leave it out")


def is_fitted(name: str) -> bool:
    """Return whether a catalogue method reads a trained artifact."""
    entry = catalogue()[name]
    facts = facts_of(entry.family)
    return "artifact" in (facts.parameters(Settings.model_validate(entry.settings)) or ())


def _registered() -> dict[str, Entry]:
    """Return the families registered by this process; none before the registry is imported."""
    module = sys.modules.get("methods.method")
    names = module.METHODS.names() if module is not None else []
    return {name: Entry(family=name) for name in names if name not in FAMILIES}


def facts_of(family: str) -> MethodFacts:
    """Return the facts of a family; raises UserError if it is unknown or its plug-in does not load."""
    if family in FAMILIES:
        facts: MethodFacts = import_module(FAMILIES[family][0]).FACTS[family]
        return facts
    return load_family(family).facts


def load_family(family: str) -> type[Method]:
    """Import and return the class of a family; raises UserError if it is unknown or its plug-in does not load."""
    from methods.method import METHODS, Method

    if family in FAMILIES:
        import_module(FAMILIES[family][1])
    loaded = METHODS.get(family)
    if not (isinstance(loaded, type) and issubclass(loaded, Method)):
        raise UserError(f"plug-in method {family!r} is {loaded!r}, no subclass of Method: fix or uninstall it")
    return loaded
