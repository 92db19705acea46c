"""Verify latency and draft latency."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """Verify latency and draft latency of a run, in milliseconds."""

    target_ms: float
    """T_tgt: verify latency."""
    middle_ms: float
    """T_mid: draft latency of a middle step."""
    source: str = "given"
    """Measured, given by `latency`, or from a profile."""
