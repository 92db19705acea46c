"""Flags laid over a configuration file, with the origin of each value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from foundation.errors import UserError
from foundation.plain_text import check_name
from foundation.plain_yaml import read_keys
from foundation.registry import unknown_name
from foundation.strict_model import first_fault
from harness.config.run_config import METHOD_KEYS, RunConfig
from methods.catalog import BASELINE, Resolved, catalogue, resolve_with_origins

SettingsModel = TypeVar("SettingsModel", bound=BaseModel)
Definitions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Configuration:
    """A run's configuration: its layers merged."""

    config: RunConfig
    """The merged values."""
    origins: Mapping[str, str]
    """By key, where its value came from: `flag`, `configuration` or `environment`; others have their defaults."""
    definitions: Definitions
    """Methods that the configuration defines, by name: `base` and parameters."""

    def beside(self, other: RunConfig) -> Configuration:
        """Return a copy that takes method parameters from another run where it gives none."""
        lacking = {key: value for key, value in other.drafting.items() if key not in self.origins}
        origins = {**self.origins, **dict.fromkeys(lacking, "configuration")}
        return replace(self, config=self.config.model_copy(update=lacking), origins=origins)

    @property
    def method_names(self) -> list[str]:
        """The methods that it lists, in order; a run adds baselines to them."""
        return [entry if isinstance(entry, str) else entry["name"] for entry in self.config.methods]

    def methods(self, pair_defaults: Mapping[str, Any]) -> list[Resolved]:
        """Return the run's methods with all their parameters, the baseline first, then missing ones of other engines.

        Raises:
            UserError: an unknown or repeated name, or an unusable parameter.
        """
        names = self.method_names
        for name in names:
            if names.count(name) > 1:
                raise UserError(
                    f"methods: {name!r} is there twice; a second copy needs a name of its own (base: {name})"
                )
        own = [self._resolved(name, pair_defaults) for name in names if name != BASELINE]
        baselines = dict.fromkeys(one.spec.facts.baseline for one in own if one.spec.facts.baseline not in names)
        added = [name for name in baselines if name != BASELINE]
        return [*(self._resolved(name, pair_defaults) for name in (BASELINE, *added)), *own]

    def _resolved(self, name: str, pair_defaults: Mapping[str, Any]) -> Resolved:
        return resolve_with_origins(
            name,
            definitions=self.definitions,
            pair=pair_defaults,
            config=self._given("configuration"),
            flags=self._given("flag"),
        )

    def _given(self, origin: str) -> dict[str, Any]:
        """Return the method parameters of one origin."""
        values = {key: getattr(self.config, key) for key in METHOD_KEYS if self.origins.get(key) == origin}
        return {key: value for key, value in values.items() if value is not None}


def load_configuration(path: Path | None, flags: Mapping[str, Any]) -> Configuration:
    """Read a YAML configuration file, if any, and lay the flags over it; TREEGRAFT_DATA gives a missing `data`."""
    values = read_keys(path, "pair: smollm2") if path is not None else {}
    where = str(path) if path is not None else "flags"
    for key in values:
        if key not in RunConfig.model_fields:
            raise UserError(f"{where}: {unknown_name('key', str(key), RunConfig.model_fields)}")
    layers = {"environment": _environment(), "configuration": values, "flag": flags}
    try:
        config = RunConfig.model_validate({key: value for layer in layers.values() for key, value in layer.items()})
    except ValidationError as error:
        fault = first_fault(error)
        key = str(fault.place[0])
        source = _flag(key) if key in flags else f"{where}: {key}"
        raise UserError(f"{source}: {fault.message} (given: {fault.shown})") from error
    return Configuration(
        config=config,
        origins={key: origin for origin, layer in layers.items() for key in layer},
        definitions={**_definitions(values.get("methods")), **_definitions(flags.get("methods"))},
    )


def from_flags(model: type[SettingsModel], flags: Mapping[str, Any]) -> SettingsModel:
    """Return settings given by flags alone, and by TREEGRAFT_DATA.

    Raises:
        UserError: a flag is missing or its value unusable.
    """
    try:
        defaults = {key: value for key, value in _environment().items() if key in model.model_fields}
        return model.model_validate({**defaults, **flags})
    except ValidationError as error:
        fault = first_fault(error)
        key = str(fault.place[0])
        if fault.is_missing_key:
            raise UserError(f"{_flag(key)}: missing; {model.model_fields[key].description}") from error
        raise UserError(f"{_flag(key)}: {fault.message} (given: {fault.shown})") from error


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _environment() -> dict[str, str]:
    return {"data": os.environ["TREEGRAFT_DATA"]} if os.environ.get("TREEGRAFT_DATA") else {}


def _definitions(entries: Any) -> Definitions:
    definitions: dict[str, dict[str, Any]] = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, str):
            continue
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise UserError(f"methods: a definition has no name: {entry!r}; write {{name: mine, base: all-small}}")
        try:
            check_name(name)
        except ValueError as error:
            raise UserError(f"methods: {name[:100]!r}: {error}") from error
        if name in catalogue() or name in definitions:
            raise UserError(f"methods: the name {name!r} is taken; choose another for the definition")
        if not isinstance(entry.get("base"), str):
            raise UserError(f"methods: {name!r} names no base; write {{name: {name}, base: all-small}}")
        definitions[name] = {key: value for key, value in entry.items() if key != "name"}
    return definitions
