"""The row schema: one row is one answer of one method. `reports` reads it alone, and tallies of edges.

A leaf: it imports nothing of the project but leaves of `methods.core` and `harness.errors`, and no torch.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import UserError
from methods.core.generation import Finish
from methods.core.generation import Forward as Forward  # reports take them from here
from methods.core.generation import Round as Round
from methods.core.generation import Spans as Spans
from methods.core.reliability import EdgeTally

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["reference", "identical", "tie", "numeric", "different", "unverified"]

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
"""The configuration's keys that decide about an answer, beside weights, data, seed and floating-point type."""

ROWS_FILE = "rows.jsonl"
MANIFEST_FILE = "manifest.json"


class Record(BaseModel):
    """Base of everything written: unknown keys are refused, fields cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Row(Record):
    """One answer (question, turn, repeat) of one method. Times in seconds."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    key: str
    """Hash of what was asked: pair, weights, data, prompt, method, parameters, seed, repeat, clock."""
    attempt: int = Field(ge=1)
    """1, and one more each time a failed block was run again; readers keep the last."""
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
    token_ids: list[int] = Field(default_factory=list)
    """Committed tokens."""
    committed: int = Field(default=0, ge=0)
    """Number of committed tokens."""
    finish: Finish | None = None
    """Why decoding ended: end of sequence, length or stop string."""
    rounds: list[Round] | None = None
    """Every round; null for outside peers."""
    prefill: list[Forward] = Field(default_factory=list)
    """Forwards before the first round."""
    prefill_tokens: int = Field(default=0, ge=0)
    """Committed tokens that prefill already yielded: none in our own methods."""
    decode_forwards: int | None = None
    """Target forwards after prefill, counted; given for outside peers only."""
    prefill_s: float | None = None
    """From the call to the end of prefill."""
    decode_s: float | None = None
    """From the end of prefill to the last commit."""
    e2e_s: float | None = None
    """From the call to the last commit."""
    spans: Spans | None = None
    """Where the decode time went; null for outside peers."""
    edges: EdgeTally | None = None
    """What became of draft edges that the text reached: see `methods.core.reliability`; null where none was scored."""
    flips: int | None = None
    """Positions where the method's own draw was not the baseline's token; null unless the run follows the baseline."""
    telemetry: dict[str, Any] = Field(default_factory=dict)
    """What was read off the machine while the row was timed: see the watches of `hardware_profiles.cpu` and `.gpu`."""

    @property
    def timed_tokens(self) -> int:
        """Committed tokens that `decode_s` paid for: those that prefill yielded leave the rate."""
        return self.committed - self.prefill_tokens


class TaskData(Record):
    """Where a task's questions came from."""

    source: Literal["data", "package", "hub", "embedded"]
    """Kind of source; embedded ones are labelled in every table."""
    origin: str
    """The file, package or hub id with its revision."""
    split: str
    """eval or fit."""
    sha256: str
    """Digest of all questions loaded."""
    n: int
    """Questions used, after the limit."""
    notes: list[str] = Field(default_factory=list)
    """Why earlier sources were passed over."""


class Start(Record):
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
    machine: dict[str, Any]
    """Processor, memory, threads, GPUs; `nvml`: driver and power limits of a run's GPUs, or the `problem` with NVML."""


class Latency(Record):
    """What schedulers are told of time, in milliseconds."""

    target_ms: float
    """T_tgt: a verification."""
    middle_ms: float
    """T_mid: a middle step."""
    source: str
    """Measured, given by `latency`, or of the profile."""


class Manifest(Record):
    """What a run was asked, with what, and where it ran."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    config: dict[str, Any]
    """The whole configuration; `methods` are names, in the order of the run."""
    pair: dict[str, Any]
    """The model pair's description."""
    weights: dict[str, dict[str, str]]
    """For each role: origin and sha256."""
    methods: list[dict[str, Any]]
    """Every method with all its parameters."""
    tasks: dict[str, TaskData]
    """Where each task's questions came from."""
    starts: list[Start]
    """Every start, the first run first."""
    latency: Latency | None = None
    """T_tgt and T_mid, kept when the run goes on; null where no method needs a middle drafter."""
    profile: dict[str, Any] | None = None
    """The hardware profile that the clock charged; null where times were measured."""

    def asked(self) -> dict[str, Any]:
        """Return what must agree for rows to belong to one run: everything but starts, notes and folders."""
        whole = self.model_dump(exclude={"starts": True, "latency": True, "tasks": {"__all__": {"notes", "origin"}}})
        whole["config"] = {
            key: value for key, value in whole["config"].items() if key not in ("out", "data", "threads")
        }
        return whole


def read_manifest(folder: Path) -> Manifest:
    """Return a run's manifest.

    Raises:
        UserError: there is none, or it is not one.
    """
    path = folder / MANIFEST_FILE
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the folder of a run") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise UserError(
            f"{path}: not a manifest ({where}: {first['msg']}); restore it or give another --out"
        ) from error


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a run folder or a `rows.jsonl` file, every attempt, in file order.

    A torn last line (a run killed in mid-write) is passed over; any other broken line is an error. A whole
    last line may lack its newline.

    Raises:
        UserError: there is no such file, or a line is not a row of schema 1.
    """
    file = path / ROWS_FILE if path.is_dir() else path
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                row = _parse_row(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, file, number)
                if row is not None:
                    yield row
    except OSError as error:
        raise UserError(f"{file}: no rows to read ({error.strerror}); give the folder of a run") from error


def _parse_row(line: bytes, file: Path, number: int) -> Row | None:
    """Return a line's row; none where it is blank or torn, that is broken and without a newline behind it."""
    if not line.strip():
        return None
    try:
        return Row.model_validate_json(line)
    except ValidationError as error:
        if not line.endswith(b"\n"):
            return None
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "line"
        raise UserError(
            f"{file}:{number}: not a row of schema 1 ({where}: {first['msg']}); restore the file or remove the line"
        ) from error


_PLACE = attrgetter("pair", "clock", "seed", "repeat", "task", "question_id", "turn", "method")

OfRow = TypeVar("OfRow")
"""A row, or what has its fields."""


def last_attempts(rows: Iterable[OfRow], where: str | Path = "rows") -> list[OfRow]:
    """Return the last attempt of each key, in the order the keys first came.

    A key holds the prompt. An answer of which the prompt was another, or could not be built, has a key of its own and
    gives way too to a later attempt at the same place of the run.

    Raises:
        UserError: an attempt stands twice, which no run writes: files were joined or edited.
    """
    latest: dict[str, Any] = {}
    places: dict[Any, int] = {}
    for row in rows:
        one: Any = row
        earlier = latest.get(one.key)
        if earlier is not None and earlier.attempt == one.attempt:
            raise UserError(
                f"{where}: attempt {one.attempt} of {one.method} on {one.task}/{one.question_id}/{one.turn} stands "
                "twice; the file was joined or edited: restore it"
            )
        if earlier is None or one.attempt > earlier.attempt:
            latest[one.key] = one
        places[_PLACE(one)] = max(one.attempt, places.get(_PLACE(one), 0))
    return [one for one in latest.values() if one.attempt == places[_PLACE(one)]]


def load_rows(path: str | Path) -> pd.DataFrame:
    """Return a run's rows as a data frame, one line a row, the last attempt of each key.

    Args:
        path: the folder of a run, or a `rows.jsonl` file.

    Returns:
        The columns of `Row`, with `timed_tokens` added.

    Raises:
        UserError: no such file, a line that is not a row, or an attempt that stands twice.
    """
    import pandas as pd

    rows = last_attempts(read_rows(Path(path)), path)
    columns = [*Row.model_fields, "timed_tokens"]
    records = [{**dict(row), "timed_tokens": row.timed_tokens} for row in rows]
    return pd.DataFrame.from_records(records, columns=columns)
