"""What commands share: flags made from settings models, and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from harness.plan import Block

Function = TypeVar("Function", bound=Callable[..., Any])

Bar = Callable[[str, int], AbstractContextManager[Callable[[int, str], None]]]
"""Makes a progress bar of a title and a total; inside it, a call advances it and says how it goes."""

METAVARS = {"tasks": "a,b", "methods": "x,y", "layers": "0,1,…", "stop": "TEXT", "prompts": "FILE"}
METAVARS |= dict.fromkeys(("out", "data", "work"), "DIR")
METAVARS |= {"fit": "RUN", "on": "RUN", "figure": "FILE"}
REPEATED = {"stop", "prompts"}


def flags_of(model: type[BaseModel]) -> Callable[[Function], Function]:
    """Give a command one flag for every key of a settings model, with its meaning and default."""

    def decorate(function: Function) -> Function:
        for name, field in reversed(model.model_fields.items()):
            function = _flag(name, field)(function)
        return function

    return decorate


def _flag(name: str, field: FieldInfo) -> Callable[[Function], Function]:
    kind = field.annotation
    default = "required" if field.is_required() else _shown(field.get_default(call_default_factory=True))
    options: dict[str, Any] = {"default": None, "help": f"{field.description}  [default: {default}]"}
    if kind is bool:
        options.update(is_flag=True, default=None)
    elif name in REPEATED:
        options.update(multiple=True, default=None)
    elif get_origin(kind) is not list:
        options["type"] = next(part for part in (*_parts(kind), str) if part in (int, float, str))
    if name in METAVARS:
        options["metavar"] = METAVARS[name]
    return click.option(f"--{name.replace('_', '-')}", name, **options)


def _parts(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _shown(default: Any) -> str:
    if default is None:
        return "see above"
    if isinstance(default, list):
        return ",".join(default) or "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


def given(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were typed, 0 and "" among them."""
    typed = {key: value for key, value in flags.items() if value not in (None, ()) and value is not False}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in typed.items()}


@contextmanager
def block_bar(blocks: Iterable[Block], count: int) -> Iterator[Iterator[Block]]:
    """Show a progress bar with the remaining time, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("blocks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield iter(bar.track(blocks, total=count))


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Show a progress bar with the remaining time, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task(title, total=total, note="")
        yield lambda count, note: shown.update(task, advance=count, note=note)
