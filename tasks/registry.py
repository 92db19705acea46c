"""Tasks by name: the YAML files beside this module, and plug-ins.

An entry point of the group `treegraft.tasks` gives a `Task` or the path of its YAML file.
"""

from __future__ import annotations

from pathlib import Path

from foundation.errors import UserError
from foundation.registry import Registry
from tasks.task import Task, load_task

TASKS: Registry[Task | Path | str] = Registry("task", "treegraft.tasks")

for _path in Path(__file__).parent.glob("*.yaml"):
    TASKS.add(_path.stem, _path)


def task_names() -> list[str]:
    """Return the names of all tasks, plug-ins included, in alphabetical order."""
    return TASKS.names()


def get_task(name: str) -> Task:
    """Return a task by name; raises UserError if unknown or ambiguous, or if its plug-in or file is broken."""
    entry = TASKS.get(name)
    task = load_task(Path(entry)) if isinstance(entry, str | Path) else entry
    if not isinstance(task, Task):
        raise UserError(
            f"task {name!r}: its plug-in gives a {type(task).__name__}: give a Task or a path of a YAML file"
        )
    if task.name != name:
        raise UserError(f"task {name!r}: what it names calls itself {task.name!r}: make the two names one")
    return task
