"""Flags of commands, made from settings models."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

Function = TypeVar("Function", bound=Callable[..., Any])

METAVARS = {"tasks": "a,b", "methods": "x,y", "layers": "0,1,…", "stop": "TEXT", "prompts": "FILE"}
METAVARS |= dict.fromkeys(("out", "data", "work"), "DIR")
METAVARS |= {"fit": "RUN", "on": "RUN", "figure": "FILE"}
REPEATED = {"stop", "prompts"}


def flags_of(model: type[BaseModel]) -> Callable[[Function], Function]:
    """Give a command one flag for every key of a settings model, with its description and default."""

    def decorate(function: Function) -> Function:
        for name, field in reversed(model.model_fields.items()):
            function = _flag(name, field)(function)
        return function

    return decorate


def _flag(name: str, field: FieldInfo) -> Callable[[Function], Function]:
    kind = field.annotation
    default = "required" if field.is_required() else _text(field.get_default(call_default_factory=True))
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


def _text(default: Any) -> str:
    if default is None:
        return "see above"
    if isinstance(default, list):
        return ",".join(default) or "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


def given(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were typed, 0 and "" among them."""
    typed = {key: value for key, value in flags.items() if value not in (None, ()) and value is not False}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in typed.items()}
