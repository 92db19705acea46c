"""A hardware profile: what forwards and the work around them cost on a device, as a YAML file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from hardware_profiles.curve import MOST_MS, Curve
from hardware_profiles.plain_yaml import read_yaml
from hardware_profiles.roofline import Roofline
from harness.errors import UserError
from harness.registry import unknown_name

Kind = Literal["measured", "published", "roofline"]
Role = Literal["target", "middle", "small"]
Model = TypeVar("Model", bound=BaseModel)


def _latency_tag(value: object) -> str:
    """Return which of its two classes a latency is of."""
    facts = isinstance(value, dict) and "architecture" in value
    return "roofline" if facts or isinstance(value, Roofline) else "curve"


Latencies = dict[
    Role,
    Annotated[Annotated[Curve, Tag("curve")] | Annotated[Roofline, Tag("roofline")], Discriminator(_latency_tag)],
]
"""Latency of a forward, by role."""


NAME = r"^[a-z0-9][a-z0-9._-]*$"
"""What a profile may be called."""


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Costs(_Part):
    """What the work around forwards takes, in milliseconds."""

    small_step_ms: float = Field(ge=0, le=MOST_MS)
    """A look-up step, whatever its frontier."""
    small_node_ms: float = Field(ge=0, le=MOST_MS)
    """Each node of a look-up step's frontier, besides."""
    small_commit_ms: float = Field(ge=0, le=MOST_MS)
    """Index upkeep, a round."""
    middle_call_ms: float = Field(ge=0, le=MOST_MS)
    """A middle step beside its forward: rescoring, reselecting, grafting."""
    scheduler_ms: float = Field(ge=0, le=MOST_MS)
    """A decision."""
    verify_ms: float = Field(ge=0, le=MOST_MS)
    """Verification beside the target's forward, a round: the walk and the commit."""
    other_ms: float = Field(ge=0, le=MOST_MS)
    """Everything else, a round."""


class CurveError(_Part):
    """How far a curve is off at points that it was not fitted to, measured in the same session."""

    points: int = Field(ge=0)
    """How many."""
    median_pct: float = Field(ge=0)
    """Median absolute relative error, in percent."""
    worst_pct: float = Field(ge=0)
    """The largest one."""


class Profile(_Part):
    """One device with one pair's latencies."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    name: str = Field(pattern=f"{NAME.removesuffix('$')}(/.+)?$")
    """Its name, as rows carry it behind `profile:`; a machine's with the pair behind a slash."""
    about: str = ""
    """One line for `treegraft ls profiles`."""
    kind: Kind
    """Measured on the device, taken from a publication, or computed from datasheets."""
    device: str
    """What the numbers are of."""
    pair: str
    """The pair whose models they are of."""
    dtype: str
    """Floating-point type of the forwards."""
    weights: Literal["own", "random"] = "own"
    """Whether the models that were measured had their own weights: random ones take the same time, and tell nothing of
    what is accepted."""
    sources: dict[str, str] = Field(min_length=1)
    """Where each number comes from."""
    launch_overhead_ms: float = Field(default=0.0, ge=0, le=MOST_MS)
    """Charged for every neural forward on top of its curve."""
    forwards: Latencies
    """Latency of a tree's forward, by role; `small` is a neural model in the look-up drafter's place."""
    prefill: Latencies
    """Latency of a prefill forward, by role; empty where nobody knows."""
    errors: dict[str, CurveError] = Field(default_factory=dict)
    """How far the curves are off, by role."""
    costs: Costs
    """What the work around forwards takes."""
    unknown: list[str] = Field(default_factory=list)
    """What nobody knows: costs that are 0 for that reason alone, and `prefill`."""
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
        """Return what numbers under it are: modelled, and of whose acceptance and latencies.

        Args:
            acceptance_of: the pair that decoded or was traced.
        """
        dtype = "" if self.dtype == "unknown" else f" in {self.dtype}"
        random = ", random weights" if self.weights == "random" else ""
        unknown = f"; unknown and charged nothing: {', '.join(self.unknown)}" if self.unknown else ""
        return (
            f"Modelled: acceptance of pair {acceptance_of}, latencies of pair {self.pair}{dtype} on {self.device} "
            f"(profile:{self.name}, {self.kind}{random}){unknown}"
        )

    def forward_ms(self, role: Role, tokens: int, context: int) -> float:
        """Return the milliseconds of one tree forward.

        Raises:
            UserError: the profile has no curve of that role.
        """
        return self._ms(self.forwards, role, tokens, context)

    def prefill_ms(self, role: Role, tokens: int, context: int) -> float:
        """Return the milliseconds of one prefill forward.

        Raises:
            UserError: the profile has no curve of that role.
        """
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
    """Return a profile by packaged name or YAML file.

    Raises:
        UserError: nothing of the kind is there, or it is no profile; names the file and the key.
    """
    if name in profile_names():
        text = files("hardware_profiles").joinpath("profiles", f"{name}.yaml").read_text(encoding="utf-8")
        return _parse(text, f"profile {name}")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"{unknown_name('profile', name, profile_names())} (or a profile's YAML file)")
    try:
        return _parse(path.read_text(encoding="utf-8"), name)
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError, as text that is not UTF-8
        raise UserError(f"{name}: cannot be read ({error}); give an existing profile file") from error


def _parse(text: str, origin: str) -> Profile:
    try:
        values = read_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{origin}: not YAML ({' '.join(str(error).split())}); mend the file") from error
    profile = parsed(Profile, values, origin)
    try:
        profile.model_dump_json()  # manifests hold it so: a file that refers to itself cannot be
    except ValueError as error:
        raise UserError(f"{origin}: holds what JSON cannot ({' '.join(str(error).split())}); mend the file") from error
    return profile


def parsed(model: type[Model], values: Any, origin: str) -> Model:
    """Return what a file holds as an object.

    Args:
        model: of which class.
        values: the file's.
        origin: what an error names.

    Raises:
        UserError: a key is missing, unknown or of another kind.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        # Between the keys pydantic names the class that it took a latency for.
        where = ".".join(str(part) for part in first["loc"] if part not in ("curve", "roofline")) or "profile"
        raise UserError(f"{origin}: {where}: {first['msg'].removeprefix('Value error, ')}") from error


def write_profile(profile: Profile, file: Path) -> None:
    """Write a profile as YAML.

    Raises:
        UserError: the file cannot be written.
    """
    text = yaml.safe_dump(profile.model_dump(mode="json"), sort_keys=False, width=118, default_flow_style=None)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror}); give another --out") from error
