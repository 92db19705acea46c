"""Telemetry of one span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reading:
    """What was seen during one span."""

    telemetry: dict[str, Any]
    """Numbers by name; the class that reads them documents them."""
    marks: list[str]
    """Disturbances, by name."""
