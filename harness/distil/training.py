"""Training: the student learns the target's distribution over the limited vocabulary at each position."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from foundation.errors import UserError
from harness.distil.dataset import Dataset, Example
from harness.distil.settings import DistilSettings
from harness.distil.student import trained_state
from harness.models.tensor_file import write_tensors

_STATE = "training.safetensors"
RECIPE = {
    "layers",
    "vocabulary",
    "epochs",
    "batch_tokens",
    "learning_rate",
    "warmup",
    "weight_decay",
    "elsewhere",
    "seed",
}
"""Settings that determine the weights, given the text."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One trained batch.

    Attributes:
        done: batches since the last report; the first counts those restored too.
        loss: weighted mean cross-entropy in nats.
        agreement: share of positions where the student's best token is the target's, both of the limited head.
    """

    done: int
    loss: float
    agreement: float


class Trainer:
    """Trains a student and saves its state, so that a stopped training continues.

    Args:
        student: from `student_of`.
        head: the target's head rows of the limited vocabulary, [tokens, hidden size].
        dataset: the text.
        recipe: settings, of which `RECIPE` count.
        folder: of the saved state.
        save_every: batches between two saves.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        head: torch.Tensor,
        dataset: Dataset,
        recipe: DistilSettings,
        folder: Path,
        save_every: int = 200,
    ) -> None:
        self._student = student
        self._head = head
        self._dataset = dataset
        self._recipe = recipe
        self._file = folder / _STATE
        self._save_every = save_every
        self._parameters = [weights for weights in student.parameters() if weights.requires_grad]
        self._optimiser = torch.optim.AdamW(
            self._parameters, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=recipe.weight_decay, fused=True
        )
        self._plan = [
            batch
            for epoch in range(recipe.epochs)
            for batch in dataset.batches(recipe.batch_tokens, recipe.seed * 1000 + epoch)
        ]

    @property
    def steps(self) -> int:
        """Batches in all."""
        return len(self._plan)

    def train(self, progress: Callable[[Progress], None]) -> None:
        """Train to the end of the recipe, from the saved state if there is one."""
        recipe = self._recipe
        reported = 0
        for step in range(self._restore(), self.steps):
            for group in self._optimiser.param_groups:
                group["lr"] = recipe.learning_rate * _scale(step, self.steps, recipe.warmup)
            loss, agreement = self._learn(self._dataset.padded_batch(self._plan[step]))
            progress(Progress(step + 1 - reported, loss, agreement))
            reported = step + 1
            if reported % self._save_every == 0 or reported == self.steps:
                self._save(reported)

    def _learn(self, batch: Example) -> tuple[float, float]:
        device = self._student.device
        weights = batch.weights.to(device)
        chosen = weights > 0
        with torch.no_grad():
            teacher = torch.nn.functional.linear(batch.hidden.to(device)[chosen], self._head).float().softmax(-1)
        with torch.autocast(device.type, torch.bfloat16, enabled=self._head.dtype == torch.bfloat16):
            hidden = self._student.base_model(input_ids=batch.tokens.to(device), use_cache=False).last_hidden_state
            logits = torch.nn.functional.linear(hidden[chosen].to(self._head.dtype), self._head)
        surprise = -(teacher * logits.float().log_softmax(-1)).sum(-1)
        loss = (surprise * weights[chosen]).sum() / weights.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimiser.step()
        self._optimiser.zero_grad()
        right = teacher.argmax(-1) == logits.argmax(-1)
        return loss.item(), float(right.float().mean())

    def _save(self, step: int) -> None:
        tensors = {f"weights.{key}": value for key, value in trained_state(self._student).items()}
        for index, state in self._optimiser.state_dict()["state"].items():
            tensors |= {f"moments.{index}.{key}": value for key, value in state.items()}
        whole = {key: value.contiguous() for key, value in tensors.items()}
        write_tensors(self._file, whole, "make room and run the same again", self._metadata(step))

    def _restore(self) -> int:
        """Load the saved state; return its number of batches, 0 where there is none of this recipe."""
        if not self._file.is_file():
            return 0
        try:
            with safe_open(self._file, framework="pt") as saved:
                metadata = saved.metadata()
                step = int(metadata["step"])
                if metadata != self._metadata(step):
                    return 0
                tensors = {key: saved.get_tensor(key) for key in saved.keys()}  # noqa: SIM118  # not a dict
        except (OSError, SafetensorError) as error:
            raise UserError(f"{self._file}: damaged ({error}); delete it, and training starts anew") from error
        own = trained_state(self._student)
        for name, value in _under("weights.", tensors).items():
            own[name].copy_(value)
        state: dict[int, dict[str, Any]] = {}
        for key, value in _under("moments.", tensors).items():
            index, name = key.split(".")
            state.setdefault(int(index), {})[name] = value
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": state})
        return step

    def _metadata(self, step: int) -> dict[str, str]:
        recipe = json.dumps(self._recipe.model_dump(include=RECIPE), sort_keys=True)
        return {"recipe": recipe, "sequences": str(len(self._dataset)), "step": str(step)}


def _scale(step: int, steps: int, warmup: int) -> float:
    """Return the factor on the highest learning rate."""
    return min(1.0, (step + 1) / warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
