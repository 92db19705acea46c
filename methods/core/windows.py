"""Attention windows of a model's layers."""

from __future__ import annotations

from typing import Any

from foundation.errors import UserError

_DEFAULT = {False: "full_attention", True: "sliding_attention"}


def kinds_of_layers(config: Any) -> list[str]:
    """Return each layer's kind of attention; a model that names none has one kind.

    Raises:
        UserError: layers that cannot evaluate trees.
    """
    window = getattr(config, "sliding_window", None)
    kinds = list(getattr(config, "layer_types", None) or [_DEFAULT[window is not None]] * config.num_hidden_layers)
    unknown = sorted(set(kinds) - set(_DEFAULT.values()))
    if unknown:
        raise UserError(
            f"{config.model_type}: layers of type {', '.join(unknown)} cannot evaluate trees; use another model"
        )
    return kinds


def layer_windows(config: Any) -> dict[str, int | None]:
    """Return the window (None: none) of each kind of attention; a model of several kinds takes a mask for each."""
    window = getattr(config, "sliding_window", None)
    return {kind: window if kind == _DEFAULT[True] else None for kind in sorted(set(kinds_of_layers(config)))}
