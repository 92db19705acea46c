"""A run's configuration: flags and a YAML file, checked before anything is loaded. Imports no torch."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from hardware_profiles.plain_yaml import read_yaml
from harness.errors import UserError
from harness.registry import unknown_name
from methods.catalog import BASELINE, MethodSpec, catalogue, resolve
from methods.settings import Settings

Model = TypeVar("Model", bound=BaseModel)

METHOD_FLAGS = ("steps", "width", "budget")


class RunConfig(BaseModel):
    """Everything a run is asked to do. Every flag of `treegraft run` is a key of the same name."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    pair: str = "smollm2"
    """A named pair, a pair's YAML file, or a target alone: hub id, local folder or GGUF file."""
    tasks: list[str] = Field(default=["alpaca", "gsm8k", "humaneval", "nq", "cnndm", "mt_bench"], min_length=1)
    """Names of tasks."""
    methods: list[str | dict[str, Any]] = Field(default=[BASELINE, "all-small", "prompt-lookup"], min_length=1)
    """Names of methods, or definitions {name, base, and parameters}; `autoregressive` is always run."""
    limit: int | None = Field(default=None, ge=1)
    """Most questions a task; null takes all."""
    max_new_tokens: int = Field(default=128, ge=1)
    """Most tokens an answer."""
    data: str | None = None
    """Folder with <task>/question.jsonl, or `embedded`: the built-in set; else TREEGRAFT_DATA, or the first source."""
    split: Literal["eval", "fit"] = "eval"
    """Evaluation questions, or those for fitting and tuning."""
    out: str | None = None
    """Folder for the rows; null makes runs/<time>."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Draws and orders derive from it."""
    temperature: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus mass kept, in (0, 1]."""
    top_k: int = Field(default=0, ge=0)
    """Tokens kept; 0 keeps all."""
    repetition_penalty: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    """1 is none."""
    stop: list[str] = []
    """Strings that end an answer."""
    dtype: Literal["bf16", "fp32"] | None = None
    """Floating-point type of the models; null takes the pair's."""
    repeats: int = Field(default=1, ge=1, le=1000)
    """How often each question is answered."""
    steps: int | None = Field(default=None, ge=1)
    """Drafting steps a round of tree methods; null takes the pair's, or 5. A method's `schedule` has as many."""
    width: int | None = Field(default=None, ge=1)
    """Frontier size of tree methods; null takes the pair's, or 10."""
    budget: int | None = Field(default=None, ge=1)
    """Draft nodes that tree methods send to the target a round; null takes the pair's, or 15."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Threads of the CPU forwards; null takes OMP_NUM_THREADS, or one a physical core that it may use."""
    device: str = "cpu"
    """cpu, cuda, or cuda:<index>."""
    follow: Literal["own", "reference"] = "own"
    """Commit each method's own draws, or the baseline's tokens: then all methods decode one text, as studies in half
    precision should (flips are counted; outside peers decode their own)."""
    clock: str = "wall"
    """`wall` measures; `profile:NAME` charges the same forwards what they cost on that device."""
    latency: tuple[float, float] | None = None
    """T,M: milliseconds of a target and a middle forward that schedulers are told; null measures them once a run."""
    trust_remote_code: bool = False
    """Let a model from the hub bring code of its own."""

    @property
    def drafting(self) -> dict[str, int]:
        """What it gives of the parameters that every tree method has."""
        return self.model_dump(include={*METHOD_FLAGS}, exclude_none=True)

    @field_validator("tasks", "methods", mode="before")
    @classmethod
    def _split_commas(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value

    @field_validator("clock")
    @classmethod
    def _clock_is_known(cls, value: str) -> str:
        if value != "wall" and not value.startswith("profile:"):
            raise ValueError("give wall or profile:NAME")
        return value

    @field_validator("latency", mode="before")
    @classmethod
    def _split_latency(cls, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value
        if parts is not None and (not isinstance(parts, list | tuple) or len(parts) != 2):
            raise ValueError("give two times, such as 69.4,44.2")
        return parts

    @field_validator("latency")
    @classmethod
    def _latency_takes_time(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not all(0 < ms < math.inf for ms in value):
            raise ValueError("give two times above 0 in milliseconds, such as 69.4,44.2")
        return value

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _stop_is_text(cls, value: list[str]) -> list[str]:
        if not all(value):
            raise ValueError("a stop string is empty: leave it out")
        return value


class RunPlanError(UserError):
    """A configuration that contradicts itself."""


def load_config(path: Path | None, flags: dict[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """Read a configuration file, if any, and lay the flags over it.

    Where neither gives `data`, the environment variable TREEGRAFT_DATA does.

    Args:
        path: a YAML file.
        flags: the flags that were given, by key.

    Returns:
        The whole configuration, and the file's own keys.

    Raises:
        UserError: the file cannot be read, or a key or value is not known; the line names it.
    """
    values = read_keys(path, "pair: smollm2") if path is not None else {}
    where = str(path) if path is not None else "flags"
    for key in values:
        if key not in RunConfig.model_fields:
            raise UserError(f"{where}: {unknown_name('key', str(key), RunConfig.model_fields)}")
    try:
        return RunConfig.model_validate({**_environment(), **values, **flags}), values
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        source = f"--{key.replace('_', '-')}" if key in flags else f"{where}: {key}"
        raise UserError(
            f"{source}: {first['msg'].removeprefix('Value error, ')} (given: {first['input']!r})"
        ) from error


def from_flags(model: type[Model], flags: dict[str, Any]) -> Model:
    """Return settings that are given by flags alone, TREEGRAFT_DATA among them.

    Raises:
        UserError: a flag is missing or its value is unusable; the line names it.
    """
    try:
        known = {key: value for key, value in _environment().items() if key in model.model_fields}
        return model.model_validate({**known, **flags})
    except ValidationError as error:
        first = error.errors()[0]
        flag = f"--{str(first['loc'][0]).replace('_', '-')}"
        if first["type"] == "missing":
            raise UserError(f"{flag}: missing; {model.model_fields[str(first['loc'][0])].description}") from error
        raise UserError(f"{flag}: {first['msg'].removeprefix('Value error, ')} (given: {first['input']!r})") from error


def _environment() -> dict[str, str]:
    return {"data": os.environ["TREEGRAFT_DATA"]} if os.environ.get("TREEGRAFT_DATA") else {}


def read_keys(path: Path, example: str) -> dict[str, Any]:
    """Return the keys and values of a configuration file.

    Args:
        path: a YAML file.
        example: what such a file may hold, for those that hold nothing.

    Raises:
        UserError: it cannot be read, is not YAML or holds no keys.
    """
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give an existing YAML file") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # a date that does not exist is a ValueError
        raise UserError(f"{path}: not YAML ({' '.join(str(error).split())}); mend the file") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: holds no keys; write for example `{example}`")
    return values


def resolve_methods(
    config: RunConfig, file_values: dict[str, Any], flags: dict[str, Any], pair_defaults: dict[str, Any]
) -> list[MethodSpec]:
    """Return the methods of a run, the baseline first, each with all its parameters.

    Raises:
        UserError: a name is unknown, double or taken; a definition is not usable.
    """
    definitions = _definitions(file_values.get("methods"))
    if "methods" in flags:
        definitions |= _definitions(flags["methods"])
    names = [entry if isinstance(entry, str) else entry["name"] for entry in config.methods]
    for name in names:
        if names.count(name) > 1:
            raise RunPlanError(
                f"methods: {name!r} is there twice; a second copy needs a name of its own (base: {name})"
            )
    names = [BASELINE, *(name for name in names if name != BASELINE)]
    return [
        resolve(
            name,
            definitions=definitions,
            pair=pair_defaults,
            config={key: file_values[key] for key in METHOD_FLAGS if file_values.get(key) is not None},
            flags={key: flags[key] for key in METHOD_FLAGS if flags.get(key) is not None},
        )
        for name in names
    ]


def _definitions(entries: Any) -> dict[str, dict[str, Any]]:
    definitions: dict[str, dict[str, Any]] = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, str):
            continue
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise RunPlanError(f"methods: a definition has no name: {entry!r}; write {{name: mine, base: all-small}}")
        if name in catalogue() or name in definitions:
            raise RunPlanError(f"methods: the name {name!r} is taken; choose another for the definition")
        if not isinstance(entry.get("base"), str):
            raise RunPlanError(f"methods: {name!r} names no base; write {{name: {name}, base: all-small}}")
        definitions[name] = {key: value for key, value in entry.items() if key != "name"}
    return definitions


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file."""
    schema = RunConfig.model_json_schema()
    schema["$defs"] = {**schema.get("$defs", {}), "Settings": Settings.model_json_schema()}
    return schema
