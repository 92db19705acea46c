"""A fitted scheduler as files: the distilled networks, the value models behind them, and a card. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import UserError
from harness.registry import unknown_name
from methods.settings import Settings

SCHEDULER_FILE = "scheduler.json"
PLANNER_FILE = "planner.json"

DRAFTING_KEYS = (
    "steps",
    "width",
    "budget",
    "exhaustion",
    "estimate",
    "longest_match",
    "look_back",
    "reselect",
    "non_destructive",
    "raise_scores",
)
"""The settings that decide what a schedule drafts."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Network(_Part):
    """A multilayer perceptron with rectified hidden layers; standardisation is folded into its first one."""

    signals: list[str] = Field(min_length=1)
    """Its inputs, by name."""
    weights: list[list[list[float]]]
    """For each layer, [outputs, inputs]."""
    biases: list[list[float]]
    """For each layer, [outputs]; the last layer's one output is the margin of a call."""


class Planner(_Part):
    """The value models: Q(call) and Q(skip) of every step as LightGBM's text."""

    signals: list[str] = Field(min_length=1)
    """Their inputs, by name."""
    steps: dict[int, dict[Literal["call", "skip"], str]]
    """Both models of each step."""


class Artifact(_Part):
    """What `treegraft fit` writes beside the planner."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    pair: str
    """The pair whose rounds were traced."""
    clock: str
    """Where costs came from."""
    drafting: dict[str, Any]
    """Settings that the traces were drafted with."""
    latency: tuple[float, float]
    """T_tgt and T_mid under that clock, in milliseconds."""
    rate: float = Field(gt=0)
    """Committed tokens a verification's time that the fitted values reached on prompts that they had not seen."""
    call_gain: float
    """Extra tokens that a call brings on the traces: h of the latency-normalized heuristic."""
    variants: dict[str, Network] = Field(min_length=1)
    """`full`, and one without each group of signals."""
    card: dict[str, Any]
    """Data, recipe, figures and versions."""


def artifact_names() -> list[str]:
    """Return the names of the packaged artifacts."""
    folder = files("methods").joinpath("schedulers", "artifacts")
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def artifact_digest(name: str) -> str:
    """Return one sha256 over an artifact's files.

    Raises:
        UserError: there is none of that name.
    """
    digest = hashlib.sha256()
    for file in (SCHEDULER_FILE, PLANNER_FILE):
        digest.update(read_artifact_file(name, file).encode())
    return digest.hexdigest()


def load_artifact(name: str, settings: Settings) -> Artifact:
    """Return an artifact by packaged name or folder, fit for a method's settings.

    Raises:
        UserError: there is none, it is broken, or it was fitted for another number of steps.
    """
    artifact: Artifact = parsed(Artifact, name, SCHEDULER_FILE)
    fitted = artifact.drafting.get("steps")
    if fitted != settings.steps:
        raise UserError(f"scheduler artifact {name}: fitted for {fitted} steps, not {settings.steps}; fit another")
    return artifact


def load_planner(name: str) -> Planner:
    """Return an artifact's value models.

    Raises:
        UserError: there are none, or they are broken.
    """
    planner: Planner = parsed(Planner, name, PLANNER_FILE)
    return planner


def write_artifact(folder: Path, artifact: Artifact, planner: Planner) -> None:
    """Write both files into a folder that exists."""
    for file, part in ((SCHEDULER_FILE, artifact), (PLANNER_FILE, planner)):
        text = json.dumps(part.model_dump(mode="json"), separators=(",", ":"), sort_keys=True)
        (folder / file).write_text(f"{text}\n", encoding="utf-8")


def _folder(name: str) -> Traversable:
    if name in artifact_names():
        return files("methods").joinpath("schedulers", "artifacts", name)
    if not Path(name).is_dir():
        unknown = unknown_name("scheduler artifact", name, artifact_names())
        raise UserError(f"{unknown} (or a folder that treegraft fit wrote)")
    return Path(name)


def read_artifact_file(name: str, file: str) -> str:
    """Return the text of one of an artifact's files.

    Raises:
        UserError: there is no artifact of that name, or none of its files is called so.
    """
    try:
        return _folder(name).joinpath(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"scheduler artifact {name}: {file} cannot be read; write it with treegraft fit") from error


def parsed(kind: type[Any], name: str, file: str) -> Any:
    """Return one of an artifact's files as what it holds.

    Raises:
        UserError: it is not there or broken.
    """
    try:
        return kind.model_validate_json(read_artifact_file(name, file))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise UserError(f"scheduler artifact {name}: {file}: {where}: {first['msg']}; write it anew") from error
