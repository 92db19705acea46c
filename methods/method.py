"""The method interface, the models it runs on, and the registry of methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from foundation.errors import UserError
from foundation.registry import Registry
from methods.core.generation import Generation
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams
from methods.facts import NO_SMALL, MethodFacts
from methods.latency import Latency
from methods.settings import Settings


class PromptError(UserError):
    """A prompt that the model cannot decode; its row fails and the run goes on, other commands end."""


@dataclass(frozen=True, slots=True)
class Models:
    """The loaded models of a pair, shared by all methods of a run."""

    target: TreeModel
    """The model whose output every method must reproduce."""
    tokenizer: Any
    """The target's tokenizer."""
    middle: TreeModel | None = None
    """The neural drafter, if the pair has one."""
    no_middle: str = "this pair has no middle drafter; use a pair that has one"
    """Error of a method that needs a middle drafter if the pair has none."""
    small: TreeModel | None = None
    """A small neural model to replace the look-up drafter, if the pair has one."""
    no_small: str = NO_SMALL
    """Error of a method that needs a small neural model if the pair has none."""
    gguf: Path | None = None
    """The target's GGUF file, if it came from one."""


class Method(ABC):
    """A decoding method over loaded models.

    One object serves a whole run. `generate` carries nothing over from one prompt to the next, unless `facts` say
    `memory="run"`.

    Args:
        models: the pair's models.
        settings: the method's parameters, resolved from flags, configuration, catalogue and pair.
    """

    facts: ClassVar[MethodFacts] = MethodFacts()
    """The method's facts, known before models are loaded; subclasses inherit them."""
    latency: Latency | None = None
    """Verify latency and draft latency, T_tgt and T_mid; the runner sets it before the first prompt."""

    def __init__(self, models: Models, settings: Settings) -> None:
        self.models = models
        self.settings = settings

    @abstractmethod
    def generate(self, prompt_ids: Sequence[int], params: DecodingParams) -> Generation:
        """Decode one prompt.

        Args:
            prompt_ids: token ids of the prompt, template included.
            params: how to decode; the same for every method of a block.

        Returns:
            The committed tokens, cut by `methods.core.stopping.Stopper`, with rounds and times.

        Raises:
            PromptError: the prompt is empty or does not fit the context.
        """

    def check_prompt(self, prompt_ids: Sequence[int], params: DecodingParams) -> None:
        """Raise `PromptError` unless the prompt and its answer fit the target's context."""
        if not prompt_ids:
            raise PromptError("empty prompt: give at least one token")
        needed, limit = len(prompt_ids) + params.max_new_tokens, self.models.target.max_positions
        if needed > limit:
            raise PromptError(
                f"prompt of {len(prompt_ids)} tokens + {params.max_new_tokens} new ones exceeds the context of {limit}"
            )


METHODS: Registry[type[Method]] = Registry("method", "treegraft.methods")

register_method = METHODS.register
