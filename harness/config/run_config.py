"""The configuration of a run: every key of a configuration file and every flag of `treegraft run`."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from foundation.strict_model import FromList, StrictModel
from methods.catalog import BASELINE
from methods.core.engines import DeviceName, EngineChoice
from methods.settings import Settings


class RunConfig(StrictModel):
    """The configuration of a run. Every flag of `treegraft run` is a key of the same name."""

    pair: str = "smollm2"
    """A named pair, a pair's YAML file, or a target alone: hub id, local folder or GGUF file."""
    tasks: list[str] = Field(default=["alpaca", "gsm8k", "humaneval", "nq", "cnndm", "mt_bench"], min_length=1)
    """Names of tasks."""
    methods: list[str | dict[str, Any]] = Field(default=[BASELINE, "all-small", "prompt-lookup"], min_length=1)
    """Names of methods, or definitions {name, base, and parameters}; `autoregressive` is always run, and so
    is the baseline of another engine."""
    limit: int | None = Field(default=None, ge=1, lt=2**31)
    """Most questions a task; null takes all."""
    max_new_tokens: int = Field(default=128, ge=1, lt=2**20)
    """Most tokens an answer."""
    data: str | None = None
    """Folder with <task>/question.jsonl, or `embedded`: the built-in set; else TREEGRAFT_DATA, or the first source."""
    split: Literal["eval", "fit"] = "eval"
    """Evaluation questions, or those for fitting and tuning."""
    out: str | None = None
    """Folder for the rows; null makes runs/<time>."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Draws and orders derive from it."""
    temperature: float = Field(default=0.0, ge=0.0, le=1000.0, allow_inf_nan=False)
    """0 is greedy; else at least 0.001, below which logits overflow."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus mass kept, in (0, 1]."""
    top_k: int = Field(default=0, ge=0, lt=2**31)
    """Tokens kept; 0 keeps all."""
    repetition_penalty: float = Field(default=1.0, ge=0.001, le=1000.0, allow_inf_nan=False)
    """1 is none."""
    stop: list[str] = Field(default_factory=list)
    """Strings that end an answer."""
    template_date: date | None = None
    """The day, YYYY-MM-DD, that a chat template which writes the date sees; null takes 2024-07-26, so that prompts do
    not depend on when they are asked."""
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
    device: DeviceName = "cpu"
    """cpu, cuda, or cuda:<index>."""
    engine: EngineChoice = "auto"
    """`lean`, our own forward of the dense decoder family; `hf`, Hugging Face's of any; `auto`: lean where it can."""
    follow: Literal["own", "reference"] = "own"
    """Commit each method's own draws, or the baseline's tokens: then all methods decode one text, as studies in half
    precision should (flips are counted; external baselines decode their own)."""
    clock: str = "wall"
    """`wall` measures; `profile:NAME` charges the same forwards what they cost on that device."""
    latency: Annotated[tuple[float, float], FromList] | None = None
    """T,M: verify latency and draft latency in milliseconds, for schedulers; null measures them once a run."""
    trust_remote_code: bool = False
    """Let a model from the hub bring code of its own."""

    @property
    def drafting(self) -> dict[str, int]:
        """The tree methods' common parameters, where given."""
        return self.model_dump(include={*METHOD_KEYS}, exclude_none=True)

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
        try:
            return [float(part) for part in value.split(",")] if isinstance(value, str) else parts
        except ValueError as error:
            raise ValueError("give two times, such as 69.4,44.2") from error

    @field_validator("latency")
    @classmethod
    def _latency_takes_time(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not all(0 < ms < math.inf for ms in value):
            raise ValueError("give two times above 0 in milliseconds, such as 69.4,44.2")
        return value

    @field_validator("template_date", mode="before")
    @classmethod
    def _date_is_a_day(cls, value: Any) -> Any:
        if value is None or type(value) is date:  # YAML reads dates
            return value
        try:
            return datetime.strptime(value, "%Y-%m-%d").date()
        except (TypeError, ValueError) as error:
            raise ValueError("give a day, such as 2024-07-26") from error

    @field_validator("temperature")
    @classmethod
    def _logits_stay_finite(cls, value: float) -> float:
        if 0 < value < 0.001:
            raise ValueError("give 0 (greedy), or 0.001 to 1000")
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


METHOD_KEYS = tuple(key for key in Settings.model_fields if key in RunConfig.model_fields)
"""Method parameters that a run can set for all its methods."""


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file."""
    schema = RunConfig.model_json_schema()
    schema["$defs"] = {**schema.get("$defs", {}), "Settings": Settings.model_json_schema()}
    return schema
