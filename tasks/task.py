"""A task as data: sources of its questions and how a record becomes a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from foundation.errors import UserError
from foundation.plain_yaml import yaml_values
from foundation.strict_model import FromList, StrictModel, first_fault

SplitName = Literal["eval", "fit"]


class PromptFormat(StrictModel):
    """How a record in the source's own format becomes a question."""

    turns: str
    """Key of the user's message, or of a list of messages."""
    reference: str | None = None
    """Key of the reference answer, or of a list of them; a record may lack it."""
    id: str | None = None
    """Key of a whole number used as question id; without it, the record's row number from 0."""
    category: str = ""
    """Category of every question whose record has no `category`."""
    prefix: str = ""
    """Text in front of the message, with no separator."""
    replace: dict[str, str] = Field(default_factory=dict)
    """Replacements in the message, in order."""
    reference_replace: dict[str, str] = Field(default_factory=dict)
    """Replacements in the reference, in order."""
    question_form: bool = False
    """Give the message a capital first letter and a final question mark."""
    max_chars: Annotated[int, Field(gt=0)] | None = None
    """Leave out records whose message in the source is longer than this many characters."""


class Split(StrictModel):
    """One split of a task: its file or hub split, and its rows."""

    rows: Annotated[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(gt=0)]], FromList]
    """First row and the row after the last, counted from 0 among the rows that `max_chars` lets through."""
    files: Annotated[tuple[str, ...], FromList] = ()
    """Upstream file names (glob patterns) looked for in `DIR/<task>/`; the first pattern that matches wins."""
    hub: str | None = None
    """Name of the split on the hub."""

    @model_validator(mode="after")
    def _rows_are_a_range(self) -> Split:
        if self.rows[0] >= self.rows[1]:
            raise ValueError(f"rows {list(self.rows)} hold nothing: the second number must be the larger")
        return self


class Hub(StrictModel):
    """A data set on the Hugging Face hub, pinned to one commit."""

    id: str
    """Repository id, owner/name."""
    config: str | None = None
    """Configuration name; None for a data set with only one."""
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    """Full commit hash, so that the questions of a task's version never change."""


class Package(StrictModel):
    """A file in an installed Python distribution."""

    distribution: str
    """Name of the distribution, as in pip."""
    file: str
    """File name inside the distribution."""


class Task(StrictModel):
    """A benchmark task, as its YAML file states it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Name on the command line, and of the task's folder under `--data`."""
    version: int = Field(ge=1)
    """Raised whenever questions or prompt format change, so that old rows are not compared with new ones."""
    title: str
    """Name in prose."""
    licence: str
    """Licence of the questions, not of this project."""
    prompt: PromptFormat
    """How a record in the source's own format becomes a question."""
    spec_bench: Annotated[tuple[str, ...], FromList] = ()
    """Categories of a Spec-Bench `question.jsonl` that belong to this task."""
    package: Package | None = None
    """Installed distribution with the records of both splits."""
    hub: Hub | None = None
    """Pinned data set; None: the task is not fetched from the hub."""
    eval: Split
    """Split that is measured."""
    fit: Split | None = None
    """Split that models may be fitted on, disjoint from `eval`; None: the task is held out."""

    @model_validator(mode="after")
    def _splits_are_disjoint(self) -> Task:
        if self.fit is None:
            return self
        shared = self.package is not None or self.eval.hub == self.fit.hub or {*self.eval.files} & {*self.fit.files}
        if shared and self.eval.rows[0] < self.fit.rows[1] and self.fit.rows[0] < self.eval.rows[1]:
            raise ValueError("eval and fit take the same rows of one source: make their rows disjoint")
        return self

    def split(self, name: SplitName) -> Split:
        """Return the split called `name`; raises UserError if the task is held out and has no fit split."""
        split = self.eval if name == "eval" else self.fit
        if split is None:
            raise UserError(f"task {self.name!r} is held out and has no {name} split: leave it out of the fit")
        return split


def load_task(path: Path) -> Task:
    """Return the task in a YAML file; raises UserError if it cannot be read or a key is invalid."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}): give a YAML file") from error
    try:
        return Task.model_validate(yaml_values(text, str(path)))
    except ValidationError as error:
        raise UserError(f"{path}: {first_fault(error).line('top level')}: fix the key") from error
