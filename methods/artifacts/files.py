"""Files of trained artifacts, by packaged name or folder."""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from foundation.atomic_write import write_text_whole
from foundation.errors import UserError
from foundation.registry import unknown_name
from foundation.strict_model import first_fault

ArtifactPart = TypeVar("ArtifactPart", bound=BaseModel)

SCHEDULER_FILE = "scheduler.json"
PLANNER_FILE = "planner.json"
EDGES_FILE = "edges.json"

_WRITERS = {EDGES_FILE: "treegraft fit --method treegraft-calibrated"}
"""By file, the command that writes it if not plain `treegraft fit`."""


def artifact_names() -> list[str]:
    """Return the names of the packaged artifacts."""
    return sorted(entry.name for entry in files("methods.artifacts").iterdir() if (entry / SCHEDULER_FILE).is_file())


def read_artifact_file(name: str, file: str) -> str:
    """Return the text of an artifact's file; raises UserError if the artifact or the file is missing."""
    try:
        return _folder(name).joinpath(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        how = _WRITERS.get(file, "treegraft fit")
        raise UserError(f"scheduler artifact {name}: {file} cannot be read; write it with {how}") from error


def read_part(kind: type[ArtifactPart], name: str, file: str) -> ArtifactPart:
    """Return an artifact's file as a model; raises UserError if it is missing or invalid."""
    try:
        return kind.model_validate_json(read_artifact_file(name, file))
    except ValidationError as error:
        line = first_fault(error).line("file")
        raise UserError(f"scheduler artifact {name}: {file}: {line}; write it anew") from error


def write_part(file: Path, part: BaseModel) -> None:
    """Write an artifact's file atomically; raises UserError if that fails."""
    text = json.dumps(part.model_dump(mode="json"), separators=(",", ":"), sort_keys=True)
    write_text_whole(file, f"{text}\n", "make room and fit again")


def _folder(name: str) -> Traversable:
    if name in artifact_names():
        return files("methods.artifacts").joinpath(name)
    if not Path(name).is_dir():
        unknown = unknown_name("scheduler artifact", name, artifact_names())
        raise UserError(f"{unknown} (or a folder that treegraft fit wrote)")
    return Path(name)
