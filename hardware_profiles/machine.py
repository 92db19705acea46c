"""Hardware you do not have: what is known of a machine, as YAML, and the profile it gives for a pair of models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from foundation.errors import UserError
from foundation.plain_yaml import read_yaml
from foundation.registry import unknown_name
from foundation.roles import Role
from foundation.strict_model import FiniteModel
from hardware_profiles.curve import Curve
from hardware_profiles.profile import Costs, Kind, Profile, parsed
from hardware_profiles.roofline import Architecture, Roofline

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


class Machine(FiniteModel):
    """Known numbers of a machine, each with its source; a pair of models turns it into a profile."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    """Its name; its profiles are called NAME/PAIR."""
    about: str
    """One line for `treegraft ls profiles`."""
    kind: Kind
    """Taken from a publication, or computed from datasheets."""
    device: str
    """Hardware that the numbers describe."""
    sources: dict[str, str]
    """Source of each number by key; `costs` covers all below it, `costs.scheduler_ms` one."""
    launch_overhead_ms: NonNegativeFloat = 0.0
    """Charged for every neural forward on top of its latency."""
    costs: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """Known costs of the work around forwards; unknown ones count as 0, and every report says so."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        unknown = sorted(self.costs.keys() - Costs.model_fields.keys())
        if unknown:
            raise ValueError(str(unknown_name("cost", unknown[0], Costs.model_fields)))
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
    """A machine with known datasheets: a roofline for any model."""

    kind: Literal["roofline"]
    bandwidth_gb_s: PositiveFloat
    """Memory bandwidth of a device, in GB/s."""
    tflops: dict[str, PositiveFloat]
    """Peak TFLOP/s of a device by floating-point type, without sparsity."""
    memory_gb: PositiveFloat
    """Memory of a device, in GB."""
    devices: int = Field(default=1, ge=1)
    """Devices that share every layer (tensor parallel), without communication cost."""
    layer_overhead_ms: NonNegativeFloat = 0.0
    """Host time to launch a layer, hidden behind the layer's work where that takes longer."""

    def profile(self, pair: str, dtype: str, models: Mapping[Role, Architecture]) -> Profile:
        """Return a pair's profile; raises UserError without a peak rate in `dtype` or with too little memory."""
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
    """A machine with published latencies: one per model, whatever the forward's size and context."""

    kind: Literal["published"]
    calls: dict[str, PositiveFloat]
    """Milliseconds of a call by hub id."""

    def profile(self, pair: str, models: Mapping[Role, str | None]) -> Profile:
        """Return a pair's profile without unpublished drafters; `models` are hub ids by role, None if not from the hub.

        Raises UserError if the target's latency is not published.
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
    """Yield the dotted keys of all numbers."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{above}{key}.")
        elif isinstance(value, int | float):
            yield f"{above}{key}"


def machine_names() -> list[str]:
    """Return the names of the packaged machines."""
    return sorted(file.name.removesuffix(".yaml") for file in files("hardware_profiles").joinpath("machines").iterdir())


def get_machine(name: str) -> Datasheet | Publication | None:
    """Return a machine by packaged name or YAML file, None if it is something else; raises UserError if it is invalid.

    A file may name a packaged machine as its `base` and give only what differs.
    """
    if name in machine_names():
        return _machine(_packaged(name), f"profile {name}")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        return None
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None  # reading it as a profile gives the error
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
    """Return a packaged machine with changed values; raises UserError with `origin` if a key or value is invalid.

    `name` is the changed machine's; `file` is recorded as the source of the changes.
    """
    _check_base(base, origin)
    known = type(_machine(_packaged(base), base)).model_fields
    for key in changes:
        if key not in known:
            raise UserError(f"{origin}: {unknown_name('key', str(key), known)}")
    return _machine(_merged(base, changes, name, file), origin)


def _on_its_base(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a file's values merged over its base; the file is the source of what it changes."""
    _check_base(values["base"], f"{path}: base")
    own = {key: value for key, value in values.items() if key != "base"}
    return _merged(values["base"], own, path.stem, path.name)


def _check_base(base: Any, origin: str) -> None:
    if base not in machine_names():
        raise UserError(f"{origin}: {unknown_name('machine', str(base), machine_names())}")


def _merged(base_name: str, own: Mapping[str, Any], name: str, file: str) -> dict[str, Any]:
    """Return a packaged machine's values with changes, each with its source."""
    base = _packaged(base_name)
    merged = {**base, "about": f"{base_name}, changed in {file}", "name": name, **own}
    for key in ("costs", "tflops", "calls"):
        if isinstance(own.get(key), dict):
            merged[key] = {**base.get(key, {}), **own[key]}
    sources = own.get("sources", {})
    if isinstance(sources, dict):
        changed = {key: value for key, value in own.items() if key != "sources"}
        merged["sources"] = {**base["sources"], **dict.fromkeys(_numbers(changed), f"given in {file}"), **sources}
    return merged


def _machine(values: dict[str, Any], origin: str) -> Datasheet | Publication:
    if values.get("kind") == "published":
        return parsed(Publication, values, origin)
    return parsed(Datasheet, values, origin)
