"""Engines: what runs a forward behind `TreeModel`, and where."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

EngineName = Literal["lean", "hf"]
"""`lean`: our own forward of the dense decoder family; `hf`: Hugging Face's, of any architecture."""
EngineChoice = Literal["auto", "lean", "hf"]
"""`auto` is lean where it knows the architecture, else hf."""


def _is_device(name: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name, re.ASCII):
        raise ValueError("not a device; give cpu, cuda or cuda:0")
    return name


DeviceName = Annotated[str, AfterValidator(_is_device)]
"""`cpu`, `cuda` or `cuda:<index>`; whether the machine has it is seen when models are loaded."""
