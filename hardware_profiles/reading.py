"""What a watch over the machine gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reading:
    """What was seen during one span."""

    telemetry: dict[str, Any]
    """Numbers by name; the watch that read them says what they are."""
    marks: list[str]
    """Disturbances."""
