"""A pair with its models' shapes and random weights: the time of a forward depends on shapes, not on weights."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from foundation.errors import UserError
from foundation.roles import ProfiledRole
from hardware_profiles.roofline import Architecture, known_architectures
from harness.models.distilled import of_distilled_shape
from harness.models.gguf import quiet_transformers
from harness.models.loading import DTYPES, LoadedPair, distilled_folder, local_folder, ready, torch_device
from harness.models.pair import ModelSource, Pair
from harness.models.shared_layers import sharing_layers
from harness.models.toy import toy_model
from methods.core.engines import EngineChoice
from methods.core.engines.choice import Engines
from methods.core.model import TreeModel
from methods.method import Models

_POSITIONS = 32_768  # longer than any profile's contexts; it changes no forward's time


def random_pair(
    pair: Pair,
    *,
    dtype: str,
    device: str,
    engine: EngineChoice = "auto",
    seed: int = 0,
    trust_remote_code: bool = False,
) -> LoadedPair:
    """Make target and middle of a pair without their weights, tokenizer or a network.

    Shapes come from the packaged architectures or a local model's configuration. A small neural model is left out, as
    in every profile. No tokenizer, no end-of-sequence token; `weights` of the result name the source of each shape.

    Args:
        pair: its description.
        dtype: `bf16` or `fp32`.
        device: a torch device, on which the models are made.
        engine: what runs the forwards.
        seed: of the weights.
        trust_remote_code: let a local model run its own code.
    """
    place = torch_device(device)
    models: dict[ProfiledRole, PreTrainedModel] = {}
    origins: dict[str, dict[str, str]] = {}
    sources: dict[ProfiledRole, ModelSource | None] = {"target": pair.target, "middle": pair.middle}
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(seed)
        for role, source in sources.items():
            if source is None:
                continue
            where = f"pair {pair.name}: {role}"
            if source.is_derived:
                models[role], origin = _derived(source, models["target"], where)
            else:
                models[role], origin = _made(source, pair, where, DTYPES[dtype], place, trust_remote_code)
            origins[role] = {"origin": f"random, its shape from {origin}"}
    models = {role: ready(model, place) for role, model in models.items()}
    engines = Engines(engine, models["target"])
    wrapped = {role: TreeModel(model, engines.of(model)) for role, model in models.items()}
    no_middle = f"pair {pair.name}: {pair.no_middle}"
    both = Models(wrapped["target"], None, middle=wrapped.get("middle"), no_middle=no_middle)
    return LoadedPair(pair, both, frozenset(), origins)


def _derived(source: ModelSource, target: PreTrainedModel, where: str) -> tuple[PreTrainedModel, str]:
    """Return a drafter made of its target, and the origin of its shape."""
    if source.target_layers is not None:
        drafter = sharing_layers(target, source.target_layers, f"{where}.target_layers")
        return drafter, f"layers {source.target_layers} of the target"
    return of_distilled_shape(target, distilled_folder(str(source.distilled))), f"the card of {source.distilled}"


def _made(
    source: ModelSource, pair: Pair, where: str, dtype: torch.dtype, place: torch.device, trust_remote_code: bool
) -> tuple[PreTrainedModel, str]:
    """Return a model of its own shape, and the origin of that."""
    if source.toy is not None:
        toy: PreTrainedModel = toy_model(source.toy.get("seed", 0))
        torch.nn.Module.to(toy, dtype)
        return toy, f"toy {source.toy}"
    config, origin = _shape(source, pair, where, trust_remote_code)
    try:
        with quiet_transformers(), place:
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation=pair.attention, trust_remote_code=trust_remote_code
            )
    except torch.OutOfMemoryError as error:
        raise UserError(f"{where}: does not fit on {place}; give a smaller pair or a larger device") from error
    except Exception as error:  # a broken configuration can raise anything
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{where}: cannot be made from {origin} ({reason}); fix that configuration") from error
    return model, origin


def _shape(source: ModelSource, pair: Pair, where: str, trust_remote_code: bool) -> tuple[Any, str]:
    """Return a model's configuration and its origin."""
    known = known_architectures().get(source.hub or source.package or "")
    if known is not None:
        return _configuration(known), known.source
    if source.hub is not None:
        raise UserError(
            f"{where}: the shape of {source.hub} is not known; put its config.json into a folder and give that as path"
        )
    folder = local_folder(source, pair)
    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=trust_remote_code)
    except Exception as error:  # as above
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{where}: {folder}: no configuration to read ({reason}); give a saved model's") from error
    if getattr(config, "quantization_config", None):
        raise UserError(f"{where}: {folder}: is quantised, which random weights are not; give it without quantisation")
    return config, f"config.json of {folder}"


def _configuration(shape: Architecture) -> Any:
    """Return the configuration of a known architecture, with defaults where they change no forward's time."""
    assert shape.family is not None  # every packaged one has it
    return AutoConfig.for_model(
        shape.family,
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=_POSITIONS,
        bos_token_id=None,
        eos_token_id=None,
    )
