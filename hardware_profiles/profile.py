"""A hardware profile: latencies of forwards and of the work around them on a device, as a YAML file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from foundation.atomic_write import write_text_whole
from foundation.errors import UserError
from foundation.plain_yaml import yaml_values
from foundation.registry import unknown_name
from foundation.roles import Role
from foundation.strict_model import FiniteModel, first_fault
from hardware_profiles.curve import MOST_MS, Curve
from hardware_profiles.roofline import Roofline

Kind = Literal["measured", "published", "roofline"]
Model = TypeVar("Model", bound=BaseModel)


def _latency_tag(value: object) -> str:
    """Return the class that a latency belongs to."""
    facts = isinstance(value, dict) and "architecture" in value
    return "roofline" if facts or isinstance(value, Roofline) else "curve"


Latencies = dict[
    Role, Annotated[Annotated[Curve, Tag("curve")] | Annotated[Roofline, Tag("roofline")], Discriminator(_latency_tag)]
]
"""Latency of a forward, by role."""

NAME = r"^[a-z0-9][a-z0-9._-]*$"
"""Pattern of profile names."""


class _Part(FiniteModel):
    model_config = ConfigDict(strict=True)


class Costs(_Part):
    """Milliseconds of the work around forwards."""

    small_step_ms: float = Field(ge=0, le=MOST_MS)
    """A look-up step, whatever its frontier."""
    small_node_ms: float = Field(ge=0, le=MOST_MS)
    """Each frontier node of a look-up step, on top."""
    small_commit_ms: float = Field(ge=0, le=MOST_MS)
    """Index upkeep, per round."""
    middle_call_ms: float = Field(ge=0, le=MOST_MS)
    """A middle step besides its forward: rescoring, reselecting, grafting."""
    scheduler_ms: float = Field(ge=0, le=MOST_MS)
    """A scheduler's decision."""
    verify_ms: float = Field(ge=0, le=MOST_MS)
    """Verification besides the target's forward, per round: the walk and the commit."""
    other_ms: float = Field(ge=0, le=MOST_MS)
    """Everything else, per round."""


class CurveError(_Part):
    """Error of a curve at points of the same session that it was not fitted to."""

    points: int = Field(ge=0)
    """Number of points."""
    median_pct: float = Field(ge=0)
    """Median absolute relative error, in percent."""
    worst_pct: float = Field(ge=0)
    """Largest absolute relative error, in percent."""


class Profile(_Part):
    """Latencies of one pair on one device."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    name: str = Field(pattern=f"{NAME.removesuffix('$')}(/.+)?$")
    """Its name, as rows carry it after `profile:`; MACHINE/PAIR for a machine's."""
    about: str = ""
    """One line for `treegraft ls profiles`."""
    kind: Kind
    """Measured on the device, taken from a publication, or computed from datasheets."""
    device: str
    """Hardware that the numbers describe."""
    pair: str
    """Pair whose models were measured."""
    dtype: str
    """Floating-point type of the forwards."""
    engine: Literal["lean", "hf", "unknown"] = "unknown"
    """What ran the measured forwards."""
    weights: Literal["own", "random"] = "own"
    """Whether the models had their own weights; random ones take the same time but say nothing of acceptance."""
    sources: dict[str, str] = Field(min_length=1)
    """Source of each number."""
    launch_overhead_ms: float = Field(default=0.0, ge=0, le=MOST_MS)
    """Charged for every neural forward on top of its curve."""
    forwards: Latencies
    """Latency of a tree's forward, by role; `small` is a neural model in the look-up drafter's place."""
    prefill: Latencies
    """Latency of a prefill forward, by role; empty if unknown."""
    errors: dict[str, CurveError] = Field(default_factory=dict)
    """Errors of the curves, by role."""
    costs: Costs
    """Costs of the work around forwards."""
    unknown: list[str] = Field(default_factory=list)
    """Unknown costs, which count as 0, and `prefill` if unknown."""
    measured_with: dict[str, Any] = Field(default_factory=dict)
    """Machine and versions of a measured profile."""

    @model_validator(mode="after")
    def _knows_its_roles(self) -> Profile:
        if "target" not in self.forwards:
            raise ValueError("forwards: has no target; give its latencies")
        if self.prefill and self.forwards.keys() - self.prefill.keys():
            raise ValueError(f"prefill: has no {', '.join(sorted(self.forwards.keys() - self.prefill.keys()))}")
        return self

    def caption(self, acceptance_of: str) -> str:
        """Return the caption of modelled numbers; `acceptance_of` is the pair that decoded or was traced."""
        dtype = "" if self.dtype == "unknown" else f" in {self.dtype}"
        engine = "" if self.engine == "unknown" else f" by engine {self.engine}"
        random = ", random weights" if self.weights == "random" else ""
        unknown = f"; unknown and charged nothing: {', '.join(self.unknown)}" if self.unknown else ""
        return (
            f"Modelled: acceptance of pair {acceptance_of}, latencies of pair {self.pair}{dtype}{engine} on "
            f"{self.device} (profile:{self.name}, {self.kind}{random}){unknown}"
        )

    def forward_ms(self, role: Role, tokens: int, context: int) -> float:
        """Return the milliseconds of one tree forward; raises UserError if the profile lacks the role."""
        return self._ms(self.forwards, role, tokens, context)

    def prefill_ms(self, role: Role, tokens: int, context: int) -> float:
        """Return the milliseconds of one prefill forward; raises UserError if the profile lacks the role."""
        return self._ms(self.prefill, role, tokens, context)

    def _ms(self, curves: Latencies, role: Role, tokens: int, context: int) -> float:
        if role not in curves:
            raise UserError(f"profile {self.name}: has no latencies of a {role}; measure one with treegraft profile")
        try:
            return curves[role].at(tokens, context) + self.launch_overhead_ms
        except UserError as error:
            where = "forwards" if curves is self.forwards else "prefill"
            raise UserError(f"profile {self.name}: {where}.{role}: {error}") from error


def profile_names() -> list[str]:
    """Return the names of the packaged profiles."""
    folder = files("hardware_profiles").joinpath("profiles")
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted(file.name.removesuffix(".yaml") for file in entries if file.name.endswith(".yaml"))


def get_profile(name: str) -> Profile:
    """Return a profile by packaged name or YAML file; raises UserError, with file and key, if missing or invalid."""
    if name in profile_names():
        text = files("hardware_profiles").joinpath("profiles", f"{name}.yaml").read_text(encoding="utf-8")
        return _parse(text, f"profile {name}")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"{unknown_name('profile', name, profile_names())} (or a profile's YAML file)")
    try:
        return _parse(path.read_text(encoding="utf-8"), name)
    except (OSError, ValueError) as error:  # a null byte in the name and text that is not UTF-8 are ValueErrors
        raise UserError(f"{name}: cannot be read ({error}); give an existing profile file") from error


def _parse(text: str, origin: str) -> Profile:
    profile = parsed(Profile, yaml_values(text, origin), origin)
    try:
        profile.model_dump_json()  # as manifests do, which a YAML file that refers to itself cannot be
    except ValueError as error:
        raise UserError(f"{origin}: holds what JSON cannot ({' '.join(str(error).split())}); fix the file") from error
    return profile


def parsed(model: type[Model], values: Any, origin: str) -> Model:
    """Return a file's values as a model; raises UserError with `origin` and the key if they are invalid."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        fault = first_fault(error)
        # Between the keys pydantic names the class that it chose for a latency.
        where = ".".join(str(part) for part in fault.place if part not in ("curve", "roofline")) or "profile"
        raise UserError(f"{origin}: {where}: {fault.message}") from error


def write_profile(profile: Profile, file: Path) -> None:
    """Write a profile as YAML; raises UserError if the file cannot be written."""
    text = yaml.safe_dump(profile.model_dump(mode="json"), sort_keys=False, width=118, default_flow_style=None)
    write_text_whole(file, text, "give another --out")
