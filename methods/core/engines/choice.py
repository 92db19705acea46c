"""Chooses a model's engine."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from foundation.errors import UserError
from methods.core.engines import EngineChoice
from methods.core.engines.engine import Engine
from methods.core.engines.hf import HuggingFaceEngine
from methods.core.engines.lean import LeanEngine
from methods.core.engines.products import Matrix, Packer, measured_choice

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_ROTARY = ("default", "linear", "llama3", "yarn")  # the others change with the text's length


def why_not_lean(model: PreTrainedModel) -> str | None:
    """Return why this engine cannot run a model, None where it can."""
    config, kind = model.config, type(model).__name__
    if kind not in FAMILIES or not type(model).__module__.startswith("transformers."):
        return f"{kind} is not one of {', '.join(FAMILIES)}"
    rotary: Any = model.base_model.rotary_emb
    partial = (getattr(config, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0)
    places = {str(parameter.device) for parameter in model.parameters()}
    refusals = {
        f"rotary embedding {rotary.rope_type}": rotary.rope_type not in _ROTARY or partial != 1.0,
        f"activation {config.hidden_act}": config.hidden_act != "silu",
        "quantised weights": getattr(config, "quantization_config", None) is not None,
        "layers on several devices": len(places) > 1 or "meta" in places,
        "eager attention": config._attn_implementation == "eager",
    }
    return next((reason for reason, holds in refusals.items() if holds), None)


class Engines:
    """Makes the engines of a pair's models, which share packed weights.

    Args:
        choice: `auto`, `lean` or `hf`.
        target: the largest model, on whose head the kernels are chosen.
    """

    def __init__(self, choice: EngineChoice, target: PreTrainedModel) -> None:
        self._choice = choice
        self._packer = None if choice == "hf" else _packer(target)

    def of(self, model: PreTrainedModel) -> Engine:
        """Return a model's engine.

        Raises:
            UserError: `lean` was asked for and cannot run it.
        """
        refusal = why_not_lean(model)
        if self._packer is not None and refusal is None:
            return LeanEngine(model, self._packer)
        if self._choice == "lean":
            raise UserError(f"--engine lean: cannot run {model.config.model_type} ({refusal}); give auto or hf")
        return HuggingFaceEngine(model)


def _packer(target: PreTrainedModel) -> Packer:
    head: Any = target.get_output_embeddings()
    modules: list[Any] = [module for module in target.modules() if hasattr(module, "stored")]
    if not modules or head.weight.device.type != "cpu":
        return Packer(measured_choice(Matrix(head.weight)))
    largest = max(modules, key=lambda module: module.weight.numel())
    return Packer(measured_choice(Matrix(head.weight)), measured_choice(Matrix(largest.weight, stored=largest.stored)))
