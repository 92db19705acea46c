"""The trained artifact of a scheduler: distilled networks, their value models, and a card."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from foundation.errors import UserError
from foundation.strict_model import FiniteModel, FromList
from methods.artifacts.files import PLANNER_FILE, SCHEDULER_FILE, read_artifact_file, read_part, write_part
from methods.facts import FittedTo
from methods.schedulers.signals import signal_names
from methods.settings import Settings

if TYPE_CHECKING:
    import lightgbm


class Network(FiniteModel):
    """A multilayer perceptron with rectified hidden layers; standardisation is folded into its first one."""

    signals: list[str] = Field(min_length=1)
    """Its inputs, by name."""
    weights: list[list[list[float]]]
    """Per layer, [outputs, inputs]."""
    biases: list[list[float]]
    """Per layer, [outputs]; the last layer's one output is the margin of a call."""

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


class StepModels(FiniteModel):
    """The value models of one step, as LightGBM's text."""

    call: str
    """Q(call)."""
    skip: str
    """Q(skip)."""


class Planner(FiniteModel):
    """The value models of every step that needs a decision."""

    signals: list[str] = Field(min_length=1)
    """Their inputs, by name."""
    steps: dict[int, StepModels] = Field(min_length=1)
    """Both models, by step."""

    @model_validator(mode="after")
    def _signals_are_distinct(self) -> Self:
        _check_distinct(self.signals)
        return self

    def boosters(self, name: str) -> dict[int, tuple[lightgbm.Booster, lightgbm.Booster]]:
        """Return Q(call) and Q(skip) of each step; raises UserError, with the artifact's `name`, if invalid."""
        from lightgbm import Booster
        from lightgbm.basic import LightGBMError

        boosters = {}
        for step, models in self.steps.items():
            where = f"scheduler artifact {name}: {PLANNER_FILE}: steps.{step}"
            try:
                boosters[step] = Booster(model_str=models.call), Booster(model_str=models.skip)
            except LightGBMError as error:
                raise UserError(f"{where}: {' '.join(str(error).split())}; fit it anew") from error
            if any(booster.num_feature() != len(self.signals) for booster in boosters[step]):
                raise UserError(f"{where}: its models do not take {len(self.signals)} signals; fit it anew")
        return boosters


class Artifact(FiniteModel):
    """The file that `treegraft fit` writes besides the planner."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    pair: str
    """Pair whose rounds were traced."""
    clock: str
    """Source of the costs."""
    drafting: dict[str, Any]
    """Drafting settings of the traces."""
    latency: Annotated[tuple[PositiveFloat, PositiveFloat], FromList]
    """T_tgt and T_mid under that clock, in milliseconds."""
    rate: float = Field(gt=0)
    """Committed tokens per verification's time that the fitted values reached on held-out prompts."""
    call_gain: float
    """Extra tokens per call on the traces: h of the latency-normalized heuristic."""
    variants: dict[str, Network] = Field(min_length=1)
    """`full`, one without each group of the paper's signals, and `plus` with look-up's too."""
    card: dict[str, Any]
    """Data, recipe, figures and versions."""

    @property
    def fitted_to(self) -> FittedTo:
        """Pair, clock and settings of its fit; rounds are traced with n-gram look-up alone."""
        return FittedTo(self.pair, self.clock, {**self.drafting, "small": "ngram"} if self.drafting else {})


def artifact_digest(name: str) -> str:
    """Return one sha256 over an artifact's files; raises UserError if they are missing."""
    digest = hashlib.sha256()
    for file in (SCHEDULER_FILE, PLANNER_FILE):
        digest.update(read_artifact_file(name, file).encode())
    return digest.hexdigest()


def load_artifact(name: str, settings: Settings) -> Artifact:
    """Return an artifact by packaged name or folder; raises UserError if missing, invalid or fitted for other steps."""
    artifact = read_part(Artifact, name, SCHEDULER_FILE)
    fitted = artifact.drafting.get("steps")
    if fitted != settings.steps:
        raise UserError(f"scheduler artifact {name}: fitted for {fitted} steps, not {settings.steps}; fit another")
    for network in artifact.variants.values():
        _check_known(network.signals, name, settings)
    return artifact


def load_planner(name: str, settings: Settings) -> Planner:
    """Return an artifact's value models; raises UserError if missing or invalid."""
    planner = read_part(Planner, name, PLANNER_FILE)
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
    """Write both files into an existing folder; raises UserError if that fails."""
    write_part(folder / PLANNER_FILE, planner)
    write_part(folder / SCHEDULER_FILE, artifact)
