"""The row schema: one row is one answer of one method.

A leaf: of the project it imports only `harness.records.verdicts` and leaves of `methods.core` and `foundation`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from foundation.strict_model import StrictModel
from harness.records.verdicts import Verdict
from methods.core.generation import (
    Finish,
    Forward as Forward,  # readers of rows take them from here
    Round as Round,
    Spans as Spans,
)
from methods.core.reliability import (
    BINS as BINS,
    Bin as Bin,
    EdgeTally as EdgeTally,
    added as added,
    expected_error as expected_error,
)

DECODING_KEYS = (
    "max_new_tokens",
    "temperature",
    "top_p",
    "top_k",
    "repetition_penalty",
    "stop",
    "device",
    "follow",
)
"""Keys of the configuration that an answer depends on, beside weights, data, seed and floating-point type."""


class Row(StrictModel):
    """One answer (question, turn, repeat) of one method. Times in seconds."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    key: str
    """Hash of the request: pair, weights, data, prompt, method, parameters, seed, repeat, clock."""
    attempt: int = Field(ge=1)
    """1, and one more each time a failed block was run again; readers keep the last."""
    start: int = Field(default=0, ge=0)
    """Which of the manifest's starts ran it, from 0; older rows of runs that went on do not say and have 0."""
    pair: str
    """Name of the model pair."""
    task: str
    """Name of the task."""
    question_id: int
    """The question's id in its data file."""
    turn: int = Field(ge=0)
    """0, or 1 for the second turn of a conversation."""
    method: str
    """The method's unique name in this run."""
    engine: str = "hf"
    """What ran the target's forwards; rows from before there were several are Hugging Face's."""
    baseline: str = "autoregressive"
    """The method that its speedup is over: plain decoding by the same engine."""
    seed: int
    """Seed that draws and orders derive from."""
    repeat: int = Field(ge=0)
    """Which repetition, from 0."""
    clock: str
    """`wall` where times were measured; `profile:<name>` where they are modelled."""
    status: Literal["ok", "failed"]
    """Whether the method answered."""
    error: str | None = None
    """Why it failed, in one line."""
    verdict: Verdict | None = None
    """Losslessness against the baseline of the same block; null where it failed."""
    marks: list[str] = Field(default_factory=list)
    """Disturbances seen while it was timed."""
    prompt_tokens: int | None = None
    """Tokens of the prompt, template included; null where the prompt could not be built."""
    prompt_sha256: str | None = None
    """Digest of the prompt's token ids; null where the prompt could not be built, and in older rows."""
    token_ids: list[int] = Field(default_factory=list)
    """Committed tokens."""
    committed: int = Field(default=0, ge=0)
    """Number of committed tokens."""
    finish: Finish | None = None
    """Why decoding ended: end of sequence, length or stop string."""
    rounds: list[Round] | None = None
    """Every round; null for external baselines."""
    prefill: list[Forward] = Field(default_factory=list)
    """Forwards before the first round."""
    prefill_tokens: int = Field(default=0, ge=0)
    """Committed tokens that prefill already yielded: none in our own methods."""
    decode_forwards: int | None = None
    """Target forwards after prefill, counted; given for external baselines only."""
    prefill_s: float | None = None
    """From the call to the end of prefill."""
    decode_s: float | None = None
    """From the end of prefill to the last commit."""
    e2e_s: float | None = None
    """From the call to the last commit."""
    spans: Spans | None = None
    """Where the decode time went; null for external baselines."""
    edges: EdgeTally | None = None
    """What became of draft edges that the text reached: see `methods.core.reliability`; null where none was scored."""
    flips: int | None = None
    """Positions where the method's own draw was not the baseline's token; null unless the run follows the baseline."""
    telemetry: dict[str, Any] = Field(default_factory=dict)
    """What was read off the machine while the row was timed: see the watches of `hardware_profiles.cpu` and `.gpu`.
    Where an engine computes with quantised weights, also `equal_tokens`: leading tokens that are the baseline's."""

    @property
    def timed_tokens(self) -> int:
        """Committed tokens that `decode_s` paid for: those from prefill do not count in tokens/s."""
        return self.committed - self.prefill_tokens


class TaskData(StrictModel):
    """Where a task's questions came from."""

    source: Literal["data", "package", "hub", "embedded"]
    """Kind of source; embedded ones are labelled in every table."""
    origin: str
    """The file, package or hub id with its revision."""
    split: str
    """eval or fit."""
    sha256: str
    """Digest of all questions loaded."""
    n: int = Field(ge=0)
    """Questions used, after the limit."""
    notes: list[str] = Field(default_factory=list)
    """Why earlier sources were passed over."""


class Start(StrictModel):
    """One start of the command; a resumed run has several."""

    at: str
    """UTC time, ISO 8601."""
    command: list[str]
    """Its arguments."""
    git: dict[str, Any]
    """Commit and whether the checkout was dirty; empty outside one."""
    source: str = "unknown"
    """Digest of the code that ran, wherever it was installed from."""
    versions: dict[str, str]
    """Python and packages."""
    engines: dict[str, str] = Field(default_factory=dict)
    """For each role, its engine and how it computes; empty in older runs."""
    machine: dict[str, Any]
    """Processor, memory, threads, GPUs; `nvml`: driver and power limits of a run's GPUs, or the `problem` with NVML."""
    notes: list[str] = Field(default_factory=list)
    """What sets this start's rows apart: methods that started cold."""
