"""The manifest of a run: configuration, models, methods, data and machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from foundation.errors import UserError
from foundation.strict_model import StrictModel, first_fault
from hardware_profiles.profile import Profile
from harness.config.run_config import RunConfig
from harness.models.pair import Pair
from harness.models.prompting import Prompting
from harness.records.schema import Start, TaskData
from methods.catalog import MethodSpec
from methods.core.engines import EngineName
from methods.latency import Latency

MANIFEST_FILE = "manifest.json"


class MethodTraits(StrictModel):
    """A method's facts at the time of the run: a plug-in may be gone when its rows are read."""

    drafters: list[Literal["middle", "small"]]
    """Neural drafters of the pair that it needs."""
    weighs_times: bool
    """Whether its schedules depend on the run's latencies."""
    memory: Literal["question", "run"] = "question"
    """How long it keeps what it learnt from decoded text; older runs do not say."""

    @classmethod
    def of(cls, spec: MethodSpec) -> MethodTraits:
        """Return the facts of a method's family."""
        memory = spec.facts.memory
        return cls(drafters=list(spec.needed_drafters), weighs_times=spec.weighs_times, memory=memory)


class Manifest(StrictModel):
    """The configuration of a run, its models, methods and data, and where it ran."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    config: RunConfig
    """The whole configuration; `methods` are names, in the order of the run."""
    pair: Pair
    """The model pair's description."""
    weights: dict[str, dict[str, str]]
    """For each role: origin and sha256."""
    engines: dict[str, EngineName]
    """For each role, what runs its forwards."""
    prompting: Prompting | None = None
    """What prompts and the ends of answers depend on; older runs do not say."""
    methods: list[MethodSpec]
    """Every method with all its parameters."""
    traits: dict[str, MethodTraits] = Field(default_factory=dict)
    """By method, its facts at the time of the run; older runs have none."""
    tasks: dict[str, TaskData]
    """Where each task's questions came from."""
    starts: list[Start]
    """Every start, the first run first."""
    latency: Latency | None = None
    """T_tgt and T_mid, kept when the run goes on; null where no method needs a middle drafter."""
    profile: Profile | None = None
    """The hardware profile that the clock charged; null where times were measured."""

    @model_validator(mode="before")
    @classmethod
    def _older_runs_are_hugging_faces(cls, values: Any) -> Any:
        """Name the engine of runs from before there were several."""
        if isinstance(values, dict) and "engines" not in values and isinstance(values.get("weights"), dict):
            config = values.get("config")
            known = {**config, "engine": "hf"} if isinstance(config, dict) else config
            return {**values, "engines": dict.fromkeys(values["weights"], "hf"), "config": known}
        return values

    def identity(self) -> dict[str, Any]:
        """Return what must agree for rows to belong to one run.

        Everything but starts, latency, traits, the origin and notes of each task's data, and of the configuration
        `out`, `data` and `threads`. What an older run does not say of its prompting is left out.
        """
        prompting = {} if self.prompting is None else self.prompting.model_dump(mode="json", exclude_none=True)
        asked = self.model_dump(
            mode="json",
            exclude={
                "starts": True,
                "latency": True,
                "traits": True,
                "prompting": True,
                "tasks": {"__all__": {"notes", "origin"}},
                "config": {"out", "data", "threads", "template_date"},
            },
        )
        return {**asked, **prompting}

    @property
    def specs(self) -> dict[str, MethodSpec]:
        """Its methods by name, in order."""
        return {spec.name: spec for spec in self.methods}

    def traits_of(self, name: str) -> MethodTraits:
        """Return the facts of one of its methods.

        Raises:
            UserError: an older run of a plug-in that is not installed any more.
        """
        return self.traits.get(name) or MethodTraits.of(self.specs[name])


def read_manifest(folder: Path) -> Manifest:
    """Return a run's manifest.

    Raises:
        UserError: it is missing or invalid.
    """
    path = folder / MANIFEST_FILE
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the folder of a run") from error
    except ValidationError as error:
        line = first_fault(error).line("file")
        raise UserError(f"{path}: not a manifest ({line}); it was edited: restore it, or give another --out") from error
