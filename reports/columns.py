"""Tables as data: their columns, each a header, its cell in a line and its words in the legend, and how cells print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

EMPTY = "–"

Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class Column(Generic[Line]):
    """One column of a table: all that tables know of it."""

    header: str
    """Its head."""
    cell: Callable[[Line], str]
    """Its cell in a line."""
    legend: str = ""
    """What it means, in the legend; with a line break where the next column's words begin a new line."""


def legend(columns: Iterable[Column[Line]]) -> tuple[str, ...]:
    """Return the lines of some columns' legend."""
    words = " ".join(column.legend for column in columns if column.legend)
    return tuple(line.strip() for line in words.strip().split("\n"))


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    title: str
    headers: tuple[str, ...]
    body: list[list[str]]
    notes: Sequence[str]
    """What a reader must know about missing values, each with the methods it holds for."""


def table(title: str, columns: Sequence[Column[Line]], lines: Iterable[Line], notes: Sequence[str] = ()) -> Table:
    """Return the table of some lines."""
    body = [[column.cell(line) for column in columns] for line in lines]
    return Table(title, tuple(column.header for column in columns), body, notes)


def value(header: str, name: str, spec: str, legend: str = "") -> Column[Any]:
    """Return the column of a number that lines hold under a name."""
    return Column(header, lambda line: number(getattr(line, name), spec), legend)


def alignment(headers: Sequence[str]) -> tuple[str, ...]:
    """Return the columns' sides: names to the left, numbers to the right."""
    return ("left", *["right"] * (len(headers) - 1))


def number(value: float | None, spec: str) -> str:
    """Return a number as a cell, a missing one as a dash."""
    return EMPTY if value is None else format(value, spec)


def with_interval(value: float | None, low: float | None, high: float | None, spec: str) -> str:
    """Return a number as a cell, its interval behind it where there is one."""
    text = number(value, spec)
    return text if low is None or high is None else f"{text} [{low:{spec}}, {high:{spec}}]"


def p_value(value: float | None) -> str:
    """Return a p-value as a cell, without its leading zero."""
    if value is None:
        return EMPTY
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def compared(n: int, dropped: int) -> str:
    """Return the prompts compared as a cell, and of how many where some were left out."""
    return f"{n}/{n + dropped}" if dropped else str(n)
