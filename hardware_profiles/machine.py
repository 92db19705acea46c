"""A machine that is not at hand: what is known of it, as YAML, and the profile that this gives for a pair of models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, model_validator

from hardware_profiles.curve import Curve
from hardware_profiles.plain_yaml import read_yaml
from hardware_profiles.profile import Costs, Kind, Profile, Role, parsed
from hardware_profiles.roofline import Architecture, Roofline
from harness.errors import UserError
from harness.registry import unknown_name

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


class Machine(BaseModel):
    """What is known of a machine, each number with its source; a pair of models turns it into a profile."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    schema_version: Literal[1] = 1
    """Version of this schema."""
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    """Its name; its profiles are called NAME/PAIR."""
    about: str
    """One line for `treegraft ls profiles`."""
    kind: Kind
    """Taken from a publication, or computed from datasheets."""
    device: str
    """What the numbers are of."""
    sources: dict[str, str]
    """Where each number comes from, by its key; `costs` stands for all below it, `costs.scheduler_ms` for one."""
    launch_overhead_ms: NonNegativeFloat = 0.0
    """Charged for every neural forward on top of its latency."""
    costs: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """What is known of the work around forwards; what is not costs nothing, and every report says so."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        strangers = sorted(self.costs.keys() - Costs.model_fields.keys())
        if strangers:
            raise ValueError(str(unknown_name("cost", strangers[0], Costs.model_fields)))
        for key in _numbers(self.model_dump(exclude_unset=True, exclude={"schema_version"})):
            if not any(key == source or key.startswith(f"{source}.") for source in self.sources):
                raise ValueError(f"sources: say where {key} is from")
        return self

    def _profile(
        self,
        pair: str,
        dtype: str,
        forwards: Mapping[Role, Curve | Roofline],
        prefill: Mapping[Role, Curve | Roofline],
        sources: Mapping[str, str],
    ) -> Profile:
        unknown = [name for name in Costs.model_fields if name not in self.costs]
        return Profile(
            name=f"{self.name}/{pair}",
            about=self.about,
            kind=self.kind,
            device=self.device,
            pair=pair,
            dtype=dtype,
            sources={**self.sources, **sources},
            launch_overhead_ms=self.launch_overhead_ms,
            forwards=dict(forwards),
            prefill=dict(prefill),
            costs=Costs(**{**dict.fromkeys(unknown, 0.0), **self.costs}),
            unknown=[*unknown, *([] if prefill else ["prefill"])],
        )


class Datasheet(Machine):
    """A machine of which datasheets are known: a roofline for any model."""

    kind: Literal["roofline"]
    bandwidth_gb_s: PositiveFloat
    """Memory bandwidth of a device."""
    tflops: dict[str, PositiveFloat]
    """Peak rate of a device by floating-point type, without sparsity."""
    memory_gb: PositiveFloat
    """Memory of a device."""
    devices: int = Field(default=1, ge=1)
    """Devices that share every layer (tensor parallel), at no cost of communication."""
    layer_overhead_ms: NonNegativeFloat = 0.0
    """What the host takes to launch a layer, hidden behind the layer's work where that takes longer."""

    def profile(self, pair: str, dtype: str, models: Mapping[Role, Architecture]) -> Profile:
        """Return the profile of a pair on this machine.

        Args:
            pair: its name.
            dtype: floating-point type of its weights.
            models: its models by role.

        Raises:
            UserError: no peak rate of that type is known, or the weights do not fit.
        """
        if dtype not in self.tflops or dtype not in BYTES:
            known = ", ".join(self.tflops)
            raise UserError(
                f"profile {self.name}: knows no peak rate in {dtype}; give it under tflops (known: {known})"
            )
        gb = sum(model.parameters for model in models.values() if not model.shared) * BYTES[dtype] / 1e9
        if gb > self.devices * self.memory_gb:
            raise UserError(
                f"profile {self.name}: the weights of pair {pair} take {gb:.0f} GB, and it has "
                f"{self.devices * self.memory_gb:g}; give devices: {math.ceil(gb / self.memory_gb)} in a YAML file "
                f"with base: {self.name}"
            )
        device = f"{self.devices} × {self.device}, tensor parallel" if self.devices > 1 else self.device
        whole = self._profile(
            pair,
            dtype,
            {role: self._roofline(model, dtype, head=True) for role, model in models.items()},
            {role: self._roofline(model, dtype, head=False) for role, model in models.items()},
            {role: model.source for role, model in models.items()},
        )
        return whole.model_copy(update={"device": device})

    def _roofline(self, model: Architecture, dtype: str, *, head: bool) -> Roofline:
        return Roofline(
            architecture=model,
            bytes_each=BYTES[dtype],
            bandwidth_gb_s=self.bandwidth_gb_s,
            tflops=self.tflops[dtype],
            devices=self.devices,
            layer_overhead_ms=self.layer_overhead_ms,
            head=head,
        )


class Publication(Machine):
    """A machine of which latencies were published: one a model, whatever the forward's size and context."""

    kind: Literal["published"]
    calls: dict[str, PositiveFloat]
    """Milliseconds of a call by hub id."""

    def profile(self, pair: str, models: Mapping[Role, str | None]) -> Profile:
        """Return the profile of a pair, without the drafters of which nothing was published.

        Args:
            pair: its name.
            models: hub ids by role, None for models of another origin.

        Raises:
            UserError: nothing was published of its target.
        """
        known = {role: model for role, model in models.items() if model in self.calls}
        if "target" not in known:
            raise UserError(
                f"profile {self.name}: no latency of pair {pair}'s target was published; name a pair of "
                f"{', '.join(sorted(self.calls))}"
            )
        constants = {
            role: Curve(tokens=[1], contexts=[0], ms=[[self.calls[str(model)]]]) for role, model in known.items()
        }
        return self._profile(pair, "unknown", constants, {}, {})


def _numbers(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the keys of all numbers, joined by dots."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{above}{key}.")
        elif isinstance(value, int | float):
            yield f"{above}{key}"


def machine_names() -> list[str]:
    """Return the names of the packaged machines."""
    return sorted(file.name.removesuffix(".yaml") for file in files("hardware_profiles").joinpath("machines").iterdir())


def get_machine(name: str) -> Datasheet | Publication | None:
    """Return a machine by packaged name or YAML file; None where the name is of something else, such as a profile.

    A file may give a packaged machine as its `base`, and then only what differs.

    Raises:
        UserError: a file that is no machine; names the file and the key.
    """
    if name in machine_names():
        return _machine(_packaged(name), f"profile {name}")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        return None
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None  # whoever reads it as a profile says what is wrong
    if not isinstance(values, dict) or not {"base", "bandwidth_gb_s", "calls"} & values.keys():
        return None
    return _machine(_on_its_base(values, path) if "base" in values else values, name)


def _packaged(name: str) -> dict[str, Any]:
    text = files("hardware_profiles").joinpath("machines", f"{name}.yaml").read_text(encoding="utf-8")
    values: dict[str, Any] = yaml.safe_load(text)
    return values


def changed_machine(
    base: str, changes: Mapping[str, Any], *, name: str, file: str, origin: str
) -> Datasheet | Publication:
    """Return a packaged machine with some of its values changed.

    Args:
        base: the packaged machine's name.
        changes: what differs, by key.
        name: what the changed machine is called.
        file: name of the file that gives the changes, which is their source.
        origin: what an error names.

    Raises:
        UserError: an unknown machine or key, or a value that is not usable.
    """
    _check_base(base, origin)
    known = type(_machine(_packaged(base), base)).model_fields
    for key in changes:
        if key not in known:
            raise UserError(f"{origin}: {unknown_name('key', str(key), known)}")
    return _machine(_merged(base, changes, name, file), origin)


def _on_its_base(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a file's values over those of its base; what it changes is from that file, unless it says more."""
    _check_base(values["base"], f"{path}: base")
    own = {key: value for key, value in values.items() if key != "base"}
    return _merged(values["base"], own, path.stem, path.name)


def _check_base(base: Any, origin: str) -> None:
    if base not in machine_names():
        raise UserError(f"{origin}: {unknown_name('machine', str(base), machine_names())}")


def _merged(base_name: str, own: Mapping[str, Any], name: str, file: str) -> dict[str, Any]:
    """Return a packaged machine's values with some changed, each change with its source."""
    base = _packaged(base_name)
    merged = {**base, "about": f"{base_name}, changed in {file}", "name": name, **own}
    for key in ("costs", "tflops", "calls"):
        if isinstance(own.get(key), dict):
            merged[key] = {**base.get(key, {}), **own[key]}
    told = own.get("sources", {})
    if isinstance(told, dict):
        changed = {key: value for key, value in own.items() if key != "sources"}
        merged["sources"] = {**base["sources"], **dict.fromkeys(_numbers(changed), f"given in {file}"), **told}
    return merged


def _machine(values: dict[str, Any], origin: str) -> Datasheet | Publication:
    if values.get("kind") == "published":
        return parsed(Publication, values, origin)
    return parsed(Datasheet, values, origin)
