"""A task as data: where its questions come from and how a record becomes a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.errors import UserError

SplitName = Literal["eval", "fit"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Prompt(_Strict):
    """How a record in the source's own format becomes a question."""

    turns: str
    """Key that holds the user's message, or a list of messages."""
    reference: str | None = None
    """Key that holds the reference answer, or a list of them; a record may lack it."""
    id: str | None = None
    """Key that holds a whole number to use as question id; without it, the record's row number counted from 0."""
    category: str = ""
    """Category of every question whose record has no `category`."""
    prefix: str = ""
    """Text put before the message, with no separator."""
    replace: dict[str, str] = {}
    """Replacements in the message, in order."""
    reference_replace: dict[str, str] = {}
    """Replacements in the reference, in order."""
    question_form: bool = False
    """Give the message a capital first letter and a final question mark."""
    max_chars: Annotated[int, Field(gt=0)] | None = None
    """Leave out records whose message, as the source has it, is longer than this many characters."""


class Split(_Strict):
    """One split of a task: which file or hub split, and which rows of it."""

    rows: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(gt=0)]]
    """First row and the row after the last, counted from 0 among the rows that `max_chars` lets through."""
    files: tuple[str, ...] = ()
    """Upstream file names (glob patterns) looked for in `DIR/<task>/`; the first pattern that matches wins."""
    hub: str | None = None
    """Name of the split on the hub."""

    @model_validator(mode="after")
    def _rows_are_a_range(self) -> Split:
        if self.rows[0] >= self.rows[1]:
            raise ValueError(f"rows {list(self.rows)} hold nothing: the second number must be the larger")
        return self


class Hub(_Strict):
    """A data set on the Hugging Face hub, pinned to one commit."""

    id: str
    """Repository id, owner/name."""
    config: str | None = None
    """Configuration name; None for a data set that has one only."""
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    """Full commit hash, so that the questions never change under a version of the task."""


class Package(_Strict):
    """A file that an installed Python distribution carries."""

    distribution: str
    """Name of the distribution, as pip shows it."""
    file: str
    """File name inside the distribution."""


class Task(_Strict):
    """A benchmark task, as its YAML file states it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Name on the command line and of the task's folder under `--data`."""
    version: int = Field(ge=1)
    """Raised whenever the questions or the prompt format change, so that old rows are not compared with new ones."""
    title: str
    """Name in prose."""
    licence: str
    """Licence of the questions (not of this project)."""
    prompt: Prompt
    """How a record in the source's own format becomes a question."""
    spec_bench: tuple[str, ...] = ()
    """Categories of a Spec-Bench `question.jsonl` that belong to this task."""
    package: Package | None = None
    """Installed distribution that carries the records of both splits."""
    hub: Hub | None = None
    """Pinned data set; None: the task is not fetched from the hub."""
    eval: Split
    """What is measured."""
    fit: Split | None = None
    """What models may be fitted on, disjoint from `eval`; None: the task is held out."""

    @model_validator(mode="after")
    def _splits_are_disjoint(self) -> Task:
        if self.fit is None:
            return self
        shared = self.package is not None or self.eval.hub == self.fit.hub or {*self.eval.files} & {*self.fit.files}
        if shared and self.eval.rows[0] < self.fit.rows[1] and self.fit.rows[0] < self.eval.rows[1]:
            raise ValueError("eval and fit take the same rows of one source: make their rows disjoint")
        return self

    def split(self, name: SplitName) -> Split:
        """Return the split called `name`.

        Raises:
            UserError: the task is held out and has no fit split.
        """
        split = self.eval if name == "eval" else self.fit
        if split is None:
            raise UserError(f"task {self.name!r} is held out and has no {name} split: leave it out of the fit")
        return split


def load_task(path: Path) -> Task:
    """Return the task that the YAML file at `path` states.

    Raises:
        UserError: the file cannot be read, is not YAML, or has a wrong, missing or unknown key.
    """
    try:
        return Task.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}): give a YAML file") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is not YAML ({' '.join(str(error).split())}): mend it") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "top level"
        raise UserError(f"{path}: {key}: {first['msg'].removeprefix('Value error, ')}: mend the key") from error
