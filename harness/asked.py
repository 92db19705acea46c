"""What a manifest asked, as the objects that it was made of. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from harness.config import RunConfig
from harness.errors import UserError
from harness.pair import Pair
from harness.results import MANIFEST_FILE, Manifest
from methods.catalog import MethodSpec

Model = TypeVar("Model", bound=BaseModel)


def config_asked(manifest: Manifest, run: Path) -> RunConfig:
    """Return a run's configuration.

    Raises:
        UserError: the manifest was edited into something else.
    """
    return _object(RunConfig, manifest.config, run, "config")


def pair_asked(manifest: Manifest, run: Path) -> Pair:
    """Return a run's pair.

    Raises:
        UserError: the manifest was edited into something else.
    """
    return _object(Pair, manifest.pair, run, "pair")


def methods_asked(manifest: Manifest, run: Path) -> dict[str, MethodSpec]:
    """Return a run's methods by name, in its order.

    Raises:
        UserError: the manifest was edited into something else.
    """
    specs = [_object(MethodSpec, spec, run, f"methods.{place}") for place, spec in enumerate(manifest.methods)]
    return {spec.name: spec for spec in specs}


def _object(model: type[Model], values: Mapping[str, Any], run: Path, key: str) -> Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (key, *first["loc"])))
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{run / MANIFEST_FILE}: {where}: {message}; it was edited, restore it") from error
