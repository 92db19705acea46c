"""Tasks by name: the YAML files beside this module, and plug-ins.

A plug-in's entry point in the group `treegraft.tasks` gives a `Task`, or the path of a YAML file that states one.
"""

from __future__ import annotations

from pathlib import Path

from harness.errors import UserError
from harness.registry import Registry
from tasks.task import Task, load_task

TASKS: Registry[Task | Path | str] = Registry("task", "treegraft.tasks")

for _path in Path(__file__).parent.glob("*.yaml"):
    TASKS.add(_path.stem, _path)


def task_names() -> list[str]:
    """Return the name of every task, plug-ins included, in alphabetical order."""
    return TASKS.names()


def get_task(name: str) -> Task:
    """Return the task called `name`.

    Raises:
        UserError: the name is unknown or claimed twice, or its plug-in or YAML file is broken.
    """
    found = TASKS.get(name)
    task = load_task(Path(found)) if isinstance(found, str | Path) else found
    if not isinstance(task, Task):
        raise UserError(
            f"task {name!r}: its plug-in gives a {type(task).__name__}: give a Task or a path of a YAML file"
        )
    if task.name != name:
        raise UserError(f"task {name!r}: what it names calls itself {task.name!r}: make the two names one")
    return task
