"""A distilled drafter on disk: int8 weights of the trained layers, its token ids, and its card."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from foundation.atomic_write import write_text_whole
from foundation.digests import file_digest
from foundation.errors import UserError
from foundation.strict_model import StrictModel
from harness.models.shared_layers import sharing_layers
from harness.models.tensor_file import write_tensors
from methods.core.limited_head import LimitedHead

WEIGHTS = "drafter.safetensors"
CARD = "card.json"
TRAINED = ("layers", "norm")
"""The trained modules of a model's body; embeddings and head stay the target's own."""


class TargetIdentity(StrictModel):
    """The target whose embeddings and head a drafter borrows."""

    name: str
    """Its pair's name."""
    origin: str
    """Origin of its weights."""
    sha256: str
    """Digest of its weights."""


class Card(StrictModel):
    """What a distilled drafter is and how it was made."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    target: TargetIdentity
    """The target it was distilled from, and drafts for."""
    sha256: str = ""
    """Digest of the weights' file."""
    licence: str
    """Licence of the weights: the target's."""
    layers: list[int]
    """The target's layers that training began with."""
    vocabulary: int
    """Tokens in the head; 0 is all of them."""
    floor: float
    """Log-probability of a token outside the head."""
    recipe: dict[str, Any]
    """How it was trained."""
    text: dict[str, Any]
    """What it was trained on."""
    figures: dict[str, Any]
    """Measurements of the weights in this folder."""
    versions: dict[str, str]
    """Python and packages that trained it."""


def write_distilled(folder: Path, state: Mapping[str, torch.Tensor], token_ids: torch.Tensor, card: Card) -> Card:
    """Write a drafter: matrices as int8 with one fp32 scale a row, the rest as it is; return its card with the digest.

    Args:
        folder: made where missing.
        state: trained tensors by their name in the model's body.
        token_ids: the head's tokens, ascending, [tokens]; empty is all of them.
        card: its description.
    """
    tensors = {"token_ids": token_ids.to(torch.int32)}
    for name, value in state.items():
        weights = value.detach().float().cpu()
        if weights.ndim == 2:
            scale = weights.abs().amax(dim=1).clamp(min=1e-12) / 127
            tensors[f"{name}.scale"] = scale
            tensors[name] = (weights / scale[:, None]).round().to(torch.int8)
        else:
            tensors[name] = weights.clone()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); give another folder") from error
    write_tensors(folder / WEIGHTS, tensors, "give another folder")
    card = card.model_copy(update={"sha256": file_digest(folder / WEIGHTS)})
    write_card(folder, card)
    return card


def write_card(folder: Path, card: Card) -> None:
    """Write a drafter's card beside its weights."""
    write_text_whole(folder / CARD, card.model_dump_json(indent=1) + "\n", "give another folder")


def read_card(folder: Path) -> Card:
    """Return a drafter's card."""
    file = folder / CARD
    try:
        return Card.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{file}: no such file; give a folder that treegraft distill wrote") from error
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UserError(f"{file}: unreadable ({' '.join(str(error).split())[:200]}); distil it again") from error


def load_distilled(target: PreTrainedModel, target_digest: str, folder: Path) -> PreTrainedModel:
    """Return a distilled drafter over its target's embeddings and head, in the target's floating-point type.

    Args:
        target: the target's model.
        target_digest: sha256 of its weights.
        folder: as `write_distilled` wrote it.
    """
    card = read_card(folder)
    if card.target.sha256 != target_digest:
        raise UserError(f"{folder}: distilled from {card.target.origin}, other weights than this target's; distil one")
    file = folder / WEIGHTS
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: cannot be read ({error}); distil it again") from error
    if file_digest(file) != card.sha256:
        raise UserError(f"{file}: not the weights of the card beside it; fetch both again, or distil them")
    head: Any = target.get_output_embeddings()
    token_ids = _token_ids(tensors, card, len(head.weight), file)
    drafter = sharing_layers(target, card.layers, f"{folder / CARD}: layers")
    load_trained(drafter, _whole(tensors, file), target.dtype, file)
    _limit_head(drafter, token_ids, card.floor)
    return drafter


def of_distilled_shape(target: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Return an untrained drafter with the layers and head size of a folder's card, over any large enough target."""
    card = read_card(folder)
    if card.vocabulary > target.config.vocab_size:
        raise UserError(
            f"{folder / CARD}: vocabulary: {card.vocabulary} tokens of the target's {target.config.vocab_size}; "
            "give its own target"
        )
    drafter = sharing_layers(target, card.layers, f"{folder / CARD}: layers")
    for name in TRAINED:
        drafter.base_model._modules[name] = copy.deepcopy(drafter.base_model.get_submodule(name))
    _limit_head(drafter, torch.arange(card.vocabulary), card.floor)
    return drafter


def _limit_head(drafter: PreTrainedModel, token_ids: torch.Tensor, floor: float) -> None:
    """Limit a drafter's head to some tokens; none keeps all."""
    if len(token_ids):
        whole: Any = drafter.get_output_embeddings()
        rows = whole.weight.detach()[token_ids].clone()
        drafter.set_output_embeddings(LimitedHead(rows, token_ids, whole.weight.shape[0], floor))


def load_trained(model: PreTrainedModel, state: Mapping[str, torch.Tensor], dtype: torch.dtype, file: Path) -> None:
    """Give a model its own layers and norm, from these tensors."""
    body = model.base_model
    foreign = [key for key in state if key.split(".")[0] not in TRAINED]
    if foreign:
        raise UserError(f"{file}: holds {foreign[0]}, which no drafter has of its own; distil it again")
    for name in TRAINED:
        module = copy.deepcopy(body.get_submodule(name)).to(dtype)
        own = {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
        try:
            module.load_state_dict(own)
        except RuntimeError as error:
            raise UserError(f"{file}: not this target's layers ({' '.join(str(error).split())[:200]})") from error
        body._modules[name] = module


def _token_ids(tensors: dict[str, torch.Tensor], card: Card, vocabulary: int, file: Path) -> torch.Tensor:
    """Take the head's tokens out of the tensors; none where the head is whole."""
    token_ids = tensors.pop("token_ids", torch.empty(0)).to(torch.int64)
    ascending = token_ids.ndim == 1 and bool((token_ids.diff() > 0).all())
    inside = not len(token_ids) or (int(token_ids[0]) >= 0 and int(token_ids[-1]) < vocabulary)
    if len(token_ids) != card.vocabulary or not ascending or not inside:
        raise UserError(f"{file}: its token_ids are not the {card.vocabulary} tokens of its card; distil it again")
    return token_ids


def _whole(tensors: Mapping[str, torch.Tensor], file: Path) -> dict[str, torch.Tensor]:
    """Return de-quantised tensors, fp32."""
    whole = {name: value for name, value in tensors.items() if not name.endswith(".scale")}
    scaled = {name for name, value in whole.items() if value.dtype == torch.int8}
    if {f"{name}.scale" for name in scaled} != tensors.keys() - whole.keys():
        raise UserError(f"{file}: a matrix without its scale, or a scale without its matrix; distil it again")
    for name in scaled:
        scale = tensors[f"{name}.scale"]
        if scale.shape != whole[name].shape[:1]:
            raise UserError(f"{file}: {name}.scale: not one number a row; distil it again")
        whole[name] = whole[name].float() * scale[:, None]
    return whole
