"""Settings of `treegraft profile`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from foundation.strict_model import StrictModel
from methods.core.engines import DeviceName, EngineChoice


class ProfileSettings(StrictModel):
    """Every flag of the command, by key."""

    pair: str = "smollm2"
    """The pair to measure: a name, or a pair's YAML file."""
    out: str = "profile.yaml"
    """The profile's file; with --check also a packaged profile's name."""
    repeats: int = Field(default=9, ge=3)
    """Forwards a point of the grid, of which medians are kept."""
    seed: int = 0
    """Tokens and order derive from it."""
    dtype: Literal["bf16", "fp32"] | None = None
    """Floating-point type of the models; null takes the pair's."""
    device: DeviceName = "cpu"
    """cpu, cuda, or cuda:<index>."""
    engine: EngineChoice = "auto"
    """`lean`, our own forward of the dense decoder family; `hf`, Hugging Face's of any; `auto`: lean where it can."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Threads of the CPU forwards; null takes OMP_NUM_THREADS, or one a physical core that it may use."""
    random_weights: bool = False
    """Give models of the pair's shapes random weights: times are the same, and neither weights nor a network needed."""
    trust_remote_code: bool = False
    """Let a model from the hub bring code of its own."""
