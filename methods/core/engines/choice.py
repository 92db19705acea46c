"""Chooses a model's engine."""

from __future__ import annotations

from transformers import PreTrainedModel

from foundation.errors import UserError
from methods.core.engines import EngineChoice
from methods.core.engines.engine import Engine
from methods.core.engines.hf import HuggingFaceEngine
from methods.core.engines.lean import LeanEngine, why_not_lean
from methods.core.engines.products import Packer, measured_choice


class Engines:
    """Makes the engines of a pair's models, which share packed weights.

    Args:
        choice: `auto`, `lean` or `hf`.
        target: the largest model, on whose head the kernels are chosen.
    """

    def __init__(self, choice: EngineChoice, target: PreTrainedModel) -> None:
        self._choice = choice
        self._packer = None if choice == "hf" else Packer(measured_choice(target.get_output_embeddings().weight))

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
