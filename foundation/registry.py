"""Registries of named objects, with plug-ins."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from typing import Generic, TypeVar

from foundation.errors import UserError
from foundation.plain_text import check_name

T = TypeVar("T")


def entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    """Return the installed entry points of a group; they are read once, since that takes ten milliseconds."""
    return _entry_points(group, tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    return tuple(metadata.entry_points(group=group))


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name, with the nearest known names."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(known)}"
    return UserError(f"unknown {kind} {name!r}; {hint}")


class Registry(Generic[T]):
    """Objects by name, from decorators here or entry points of `group`; errors call one a `kind`."""

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._objects: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers its object under `name`."""

        def decorate(thing: T) -> T:
            self.add(name, thing)
            return thing

        return decorate

    def add(self, name: str, thing: T) -> None:
        """Register `thing`; raises UserError if the name is no name, or taken by another object."""
        try:
            check_name(name)
        except ValueError as error:
            raise UserError(f"{self.kind} {name[:100]!r}: {error}") from error
        if self._objects.get(name, thing) is not thing:
            raise UserError(f"two {self.kind}s are called {name!r}: rename one of them")
        self._objects[name] = thing

    def names(self) -> list[str]:
        """Return every known name, plug-ins included, without loading them."""
        return sorted({*self._objects, *(point.name for point in entry_points(self.group))})

    def get(self, name: str) -> T:
        """Return the object called `name`, loading its plug-in; raises UserError if unknown, ambiguous or broken."""
        points = [point for point in entry_points(self.group) if point.name == name]
        if len({point.value for point in points}) > 1:
            owners = ", ".join(point.value for point in points)
            raise UserError(f"{self.kind} {name!r} is claimed by {owners}: uninstall one of them")
        if points:
            try:
                self.add(name, points[0].load())
            except Exception as error:  # a plug-in's import may raise anything
                raise UserError(
                    f"{self.kind} {name!r}: plug-in {points[0].value} does not load ({error}): fix or uninstall it"
                ) from error
        if name not in self._objects:
            raise unknown_name(self.kind, name, self.names())
        return self._objects[name]
