"""The base of all models that are read from or written to files, and their validation errors in one line."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Strict, ValidationError

FromList = Strict(False)
"""Annotates a tuple: YAML and JSON have lists alone. Its items stay strict."""

_SHOWN = 100


class StrictModel(BaseModel):
    """Refuses unknown keys and values of another type, is immutable, and documents each field in place."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class FiniteModel(StrictModel):
    """A strict model without infinite or NaN numbers."""

    model_config = ConfigDict(allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Fault:
    """One validation error of a model."""

    place: tuple[str | int, ...]
    """Keys that lead to it; empty for the whole."""
    message: str
    """What is wrong."""
    given: object
    """The value given."""
    kind: str
    """Pydantic's type of the error."""

    @property
    def key(self) -> str:
        """Its keys joined by dots; empty for the whole."""
        return ".".join(map(str, self.place))

    @property
    def is_unknown_key(self) -> bool:
        """Whether the key is unknown."""
        return self.kind == "extra_forbidden"

    @property
    def is_missing_key(self) -> bool:
        """Whether a required key is missing."""
        return self.kind == "missing"

    @property
    def shown(self) -> str:
        """The value given, as text cut to what a line has room for."""
        text = repr(self.given)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

    def line(self, whole: str = "") -> str:
        """Return key and message; `whole` stands for the key where the values as a whole are wrong."""
        where = self.key or whole
        return f"{where}: {self.message}" if where else self.message


def first_fault(error: ValidationError) -> Fault:
    """Return the first error; an unknown key comes first, since the key that it misspells is missing too."""
    errors = error.errors(include_url=False)
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    return Fault(first["loc"], first["msg"].removeprefix("Value error, "), first["input"], first["type"])
