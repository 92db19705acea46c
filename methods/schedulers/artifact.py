"""A fitted scheduler as files: the distilled networks, the value models behind them, and a card. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError, model_validator

from harness.errors import UserError
from harness.registry import unknown_name
from methods.schedulers.signals import signal_names
from methods.settings import Settings

if TYPE_CHECKING:
    import lightgbm

SCHEDULER_FILE = "scheduler.json"
PLANNER_FILE = "planner.json"
EDGES_FILE = "edges.json"

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
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Network(_Part):
    """A multilayer perceptron with rectified hidden layers; standardisation is folded into its first one."""

    signals: list[str] = Field(min_length=1)
    """Its inputs, by name."""
    weights: list[list[list[float]]]
    """For each layer, [outputs, inputs]."""
    biases: list[list[float]]
    """For each layer, [outputs]; the last layer's one output is the margin of a call."""

    @model_validator(mode="after")
    def _layers_fit_together(self) -> Self:
        _check_distinct(self.signals)
        if len(self.weights) != len(self.biases) or not self.weights:
            raise ValueError(f"has {len(self.weights)} layers of weights and {len(self.biases)} of biases")
        inputs = len(self.signals)
        for number, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True), 1):
            if not biases or len(weights) != len(biases) or {*map(len, weights)} != {inputs}:
                raise ValueError(f"layer {number}: needs weights [outputs, {inputs}] and as many biases as outputs")
            inputs = len(biases)
        if inputs != 1:
            raise ValueError(f"its last layer has {inputs} outputs instead of 1")
        return self


class StepModels(_Part):
    """The value models of one step, as LightGBM's text."""

    call: str
    """Q(call)."""
    skip: str
    """Q(skip)."""


class Planner(_Part):
    """The value models of every step in which anything was decided."""

    signals: list[str] = Field(min_length=1)
    """Their inputs, by name."""
    steps: dict[int, StepModels] = Field(min_length=1)
    """Both models of each step."""

    @model_validator(mode="after")
    def _signals_are_distinct(self) -> Self:
        _check_distinct(self.signals)
        return self

    def boosters(self, name: str) -> dict[int, tuple[lightgbm.Booster, lightgbm.Booster]]:
        """Return Q(call) and Q(skip) of each step, ready to predict.

        Args:
            name: of the artifact, which errors name.

        Raises:
            UserError: a text is no model, or one of other inputs.
        """
        from lightgbm import Booster
        from lightgbm.basic import LightGBMError

        found = {}
        for step, models in self.steps.items():
            where = f"scheduler artifact {name}: {PLANNER_FILE}: steps.{step}"
            try:
                found[step] = Booster(model_str=models.call), Booster(model_str=models.skip)
            except LightGBMError as error:
                raise UserError(f"{where}: {' '.join(str(error).split())}; fit it anew") from error
            if any(booster.num_feature() != len(self.signals) for booster in found[step]):
                raise UserError(f"{where}: its models do not take {len(self.signals)} signals; fit it anew")
        return found


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
    latency: tuple[PositiveFloat, PositiveFloat]
    """T_tgt and T_mid under that clock, in milliseconds."""
    rate: float = Field(gt=0)
    """Committed tokens a verification's time that the fitted values reached on prompts that they had not seen."""
    call_gain: float
    """Extra tokens that a call brings on the traces: h of the latency-normalized heuristic."""
    variants: dict[str, Network] = Field(min_length=1)
    """`full`, one without each group of the paper's signals, and `plus` with look-up's besides."""
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


def fitted_elsewhere(
    pair: str, clock: str, drafting: Mapping[str, Any], used_for: str, charged: str, settings: Settings
) -> str | None:
    """Return in which way an artifact was fitted to something else than it is used for, None where it was not.

    Args:
        pair: that it was fitted to.
        clock: that it was fitted under.
        drafting: settings that it was fitted to.
        used_for: the pair that it is used for.
        charged: the clock that it is used under; the wall may be any machine's.
        settings: that it is used with.
    """
    if pair != used_for:
        return f"to pair {pair}, not {used_for}"
    if drafting and settings.small != "ngram":
        return f"with n-gram look-up, not with small: {settings.small}"
    own = settings.model_dump(mode="json", include={*drafting})
    other = sorted(key for key in own if drafting[key] != own[key])
    if other:
        return f"with {other[0]} {drafting[other[0]]}, not {own[other[0]]}"
    return f"under {clock}, not {charged}" if charged not in ("wall", clock) else None


def load_artifact(name: str, settings: Settings) -> Artifact:
    """Return an artifact by packaged name or folder, fit for a method's settings.

    Raises:
        UserError: there is none, it is broken, or it was fitted for another number of steps.
    """
    artifact: Artifact = parsed(Artifact, name, SCHEDULER_FILE)
    fitted = artifact.drafting.get("steps")
    if fitted != settings.steps:
        raise UserError(f"scheduler artifact {name}: fitted for {fitted} steps, not {settings.steps}; fit another")
    for network in artifact.variants.values():
        _check_known(network.signals, name, settings)
    return artifact


def load_planner(name: str, settings: Settings) -> Planner:
    """Return an artifact's value models, fit for a method's settings.

    Raises:
        UserError: there are none, or they are broken.
    """
    planner: Planner = parsed(Planner, name, PLANNER_FILE)
    _check_known(planner.signals, name, settings)
    strange = sorted(planner.steps.keys() - {*range(1, settings.steps + 1)})
    if strange:
        raise UserError(f"scheduler artifact {name}: {PLANNER_FILE}: steps.{strange[0]}: there is no such step")
    return planner


def _check_known(signals: Sequence[str], name: str, settings: Settings) -> None:
    unknown = sorted({*signals} - {*signal_names(settings.steps)})
    if unknown:
        raise UserError(f"scheduler artifact {name}: unknown signals {', '.join(unknown)}; fit it anew")


def _check_distinct(signals: Sequence[str]) -> None:
    if len({*signals}) < len(signals):
        raise ValueError("signals: one stands twice")


def write_artifact(folder: Path, artifact: Artifact, planner: Planner) -> None:
    """Write both files into a folder that exists.

    Raises:
        UserError: one cannot be written.
    """
    write_part(folder / PLANNER_FILE, planner)
    write_part(folder / SCHEDULER_FILE, artifact)


def write_part(file: Path, part: BaseModel) -> None:
    """Write one of an artifact's files, whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    text = json.dumps(part.model_dump(mode="json"), separators=(",", ":"), sort_keys=True)
    scratch = file.with_suffix(".new")
    try:
        scratch.write_text(f"{text}\n", encoding="utf-8")
        scratch.replace(file)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror}); make room and fit again") from error


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
        how = "treegraft fit --method treegraft-calibrated" if file == EDGES_FILE else "treegraft fit"
        raise UserError(f"scheduler artifact {name}: {file} cannot be read; write it with {how}") from error


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
        raise UserError(
            f"scheduler artifact {name}: {file}: {where}: {first['msg'].removeprefix('Value error, ')}; write it anew"
        ) from error
