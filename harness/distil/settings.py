"""Settings of `treegraft distill`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from foundation.strict_model import StrictModel
from methods.core.engines import DeviceName, EngineChoice


class DistilSettings(StrictModel):
    """Every flag of the command, by key."""

    target: str = "smollm2"
    """Pair name or file, local folder, GGUF file or hub id of the target."""
    layers: list[int] = Field(min_length=1)
    """The target's layers that the drafter begins as copies of, such as 0,1,2,17,18,29."""
    out: str
    """Folder of the finished drafter."""
    work: str | None = None
    """Folder of text and training state, from which a stopped command goes on; null is OUT-work."""
    prompts: list[str] = Field(default_factory=list)
    """JSON-lines files with `turns`: own first questions, answered beside what the target asks itself."""
    tokens: int = Field(default=1_000_000, ge=1)
    """Tokens of text to write, prompts included."""
    batch: int = Field(default=128, ge=1)
    """Sequences written at once."""
    question_tokens: int = Field(default=96, ge=1)
    """Most tokens of a question that the target writes."""
    answer_tokens: int = Field(default=192, ge=1)
    """Most tokens of an answer."""
    article_tokens: int = Field(default=448, ge=1)
    """Most tokens of an article that the target writes to be summarised."""
    vocabulary: int = Field(default=10_000, ge=0)
    """Tokens that the head knows, those that the text holds most; 0 is all."""
    epochs: int = Field(default=4, ge=1)
    """Passes over the text."""
    batch_tokens: int = Field(default=3072, ge=1)
    """Tokens of a training batch, padding included."""
    learning_rate: float = Field(default=5e-4, gt=0, allow_inf_nan=False)
    """Highest one: linear warm-up, then a cosine down to a fiftieth."""
    warmup: int = Field(default=40, ge=1)
    """Batches of warm-up."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """AdamW's."""
    elsewhere: float = Field(default=0.3, gt=0, allow_inf_nan=False)
    """Weight of predictions of sampled text; those of answers count 1, those of given text nothing."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of openings, draws and batches."""
    tasks: list[str] = Field(
        min_length=1, default_factory=lambda: ["alpaca", "gsm8k", "humaneval", "nq", "cnndm", "mt_bench"]
    )
    """Tasks whose questions agreement is measured on; never trained on."""
    data: str | None = None
    """Folder of task data; null is TREEGRAFT_DATA, then what is installed or embedded."""
    limit: int | None = Field(default=40, ge=1)
    """Most questions a task."""
    max_new_tokens: int = Field(default=128, ge=1)
    """Most tokens of an answer that agreement is measured on."""
    dtype: Literal["bf16", "fp32"] | None = None
    """bf16 or fp32; null is the pair's own."""
    device: DeviceName = "cpu"
    """Torch device."""
    engine: EngineChoice = "auto"
    """`lean`, our own forward of the dense decoder family; `hf`, Hugging Face's of any; `auto`: lean where it can."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Torch threads; null is OMP_NUM_THREADS, or one a physical core that it may use."""
    trust_remote_code: bool = False
    """Let a hub model run code of its own."""

    @field_validator("layers", mode="before")
    @classmethod
    def _split_layers(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return [int(part) for part in value.split(",")]
        except ValueError as error:
            raise ValueError("give numbers of layers, such as 0,8,16") from error

    @field_validator("tasks", mode="before")
    @classmethod
    def _split_tasks(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
