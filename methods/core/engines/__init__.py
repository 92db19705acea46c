"""Engines: what runs a forward behind `TreeModel`."""

from typing import Literal

EngineName = Literal["lean", "hf"]
"""`lean`: our own forward of the dense decoder family; `hf`: Hugging Face's, of any architecture."""
EngineChoice = Literal["auto", "lean", "hf"]
"""`auto` is lean where it knows the architecture, else hf."""
