"""Progress bars with the remaining time, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Advance = Callable[[int, str], None]
"""Advances a bar by a count and sets its note."""

Bar = Callable[[str, int], AbstractContextManager[Advance]]
"""Makes a progress bar from a title and a total."""


@contextmanager
def terminal_bar(title: str, total: int) -> Iterator[Advance]:
    """Show a progress bar on stderr if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
    console = Console(stderr=True)
    with Progress(TextColumn(title), *columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total, note="")
        yield lambda count, note: progress.update(task, advance=count, note=note)


@contextmanager
def no_bar(title: str, total: int) -> Iterator[Advance]:
    """Show nothing."""
    yield lambda count, note: None
