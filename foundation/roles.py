"""The roles of a pair's models."""

from typing import Literal

Role = Literal["target", "middle", "small"]
"""The model whose output counts, the neural drafter, and a small neural model in the look-up drafter's place."""

DrafterRole = Literal["small", "middle"]
"""Roles that draft; in rounds look-up counts as `small`, as the pair's small model does that may stand in its place."""

ProfiledRole = Literal["target", "middle"]
"""Roles whose forwards are profiled."""
