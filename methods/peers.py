"""Outside peers: Hugging Face `generate` on the same model objects, counted from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, cast

import torch
from pydantic import BaseModel
from transformers import GenerationConfig, PreTrainedModel, StoppingCriteria
from transformers.utils import logging as transformers_logging

from harness.errors import UserError
from methods.core.generation import Finish, Forward, Generation
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams
from methods.core.stopping import Stopper
from methods.method import Method, Models, register_method
from methods.peer_options import assistant_options, lookup_options
from methods.settings import Settings


class _ForwardCounter:
    """Records each forward of a model and when the first one ended."""

    def __init__(self, target: TreeModel) -> None:
        self._target = target
        self.tokens: list[int] = []
        self.first_ended = 0.0

    def __enter__(self) -> _ForwardCounter:
        self._handle = self._target.model.register_forward_hook(self._record, with_kwargs=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._handle.remove()

    def _record(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        self.tokens.append((kwargs["input_ids"] if "input_ids" in kwargs else args[0]).shape[1])
        if not self.first_ended:
            self._target.synchronise()
            self.first_ended = perf_counter()


class _EndRule(StoppingCriteria):
    """Our own end-of-answer rule, so that a peer stops where every method stops.

    It also sees how many tokens the first forward yielded: several, where that forward carried a draft.
    """

    def __init__(self, stopper: Stopper, prompt_tokens: int) -> None:
        self._stopper = stopper
        self._prompt_tokens = prompt_tokens
        self.first_tokens = 0

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        new = input_ids[0, self._prompt_tokens :].tolist()
        self.first_tokens = self.first_tokens or len(new)
        ended = self._stopper.cut([], new)[1] is not None
        return torch.full((input_ids.shape[0],), ended, device=input_ids.device, dtype=torch.bool)


@register_method("hf-generate")
class HuggingFaceGenerate(Method):
    """`generate`, plain or with the prompt look-up that `options` ask of it.

    Its first forward is prefill; the tokens that it yields leave the rate. Rounds and spans are not ours to
    see and stay null.
    """

    @contextmanager
    def assistant(self) -> Iterator[dict[str, Any]]:
        """Yield what else `generate` is given."""
        yield {}

    def drafting(self) -> BaseModel:
        """Return what the generation config holds of drafting."""
        return lookup_options(self.settings)

    def generate(self, prompt_ids: Sequence[int], params: DecodingParams) -> Generation:
        """Decode one prompt; see `Method.generate`."""
        self.check_prompt(prompt_ids, params)
        target = self.models.target
        stopper = Stopper(params, self.models.tokenizer)
        inputs = torch.tensor([list(prompt_ids)], device=target.device)
        end_rule = _EndRule(stopper, len(prompt_ids))
        torch.manual_seed(params.draw_seed(0))
        with (
            _config_of(target.model, GenerationConfig()),
            self.assistant() as given,
            _ForwardCounter(target) as counter,
        ):
            target.synchronise()
            started = perf_counter()
            output = cast("Any", target.model).generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=self._config(params),
                stopping_criteria=[end_rule],
                **given,
            )
            target.synchronise()
            ended = perf_counter()
        token_ids, finish = stopper.cut([], output[0, len(prompt_ids) :].tolist())
        return Generation(
            token_ids=token_ids,
            finish=_finished(finish),
            rounds=None,
            prefill=[Forward("target", None, counter.tokens[0], 0)],
            prefill_s=counter.first_ended - started,
            decode_s=ended - counter.first_ended,
            spans=None,
            prefill_tokens=min(end_rule.first_tokens, len(token_ids)),
            decode_forwards=len(counter.tokens) - 1,
        )

    def _config(self, params: DecodingParams) -> GenerationConfig:
        eos = sorted(params.eos_ids)
        sampling: dict[str, Any] = {"do_sample": False}
        if not params.greedy:
            sampling = {
                "do_sample": True,
                "temperature": params.temperature,
                "top_p": params.top_p,
                "top_k": params.top_k,
            }
        return GenerationConfig(
            max_new_tokens=params.max_new_tokens,
            repetition_penalty=params.repetition_penalty,
            eos_token_id=eos or None,
            pad_token_id=eos[0] if eos else 0,
            **sampling,
            **self.drafting().model_dump(exclude_none=True),
        )


@register_method("hf-assisted")
class HuggingFaceAssisted(HuggingFaceGenerate):
    """`generate` with the pair's middle drafter as its assistant.

    Raises:
        UserError: the pair has no middle drafter.
    """

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        if models.middle is None:
            raise UserError(models.no_middle)
        self._assistant = models.middle.model

    @contextmanager
    def assistant(self) -> Iterator[dict[str, Any]]:
        """Yield the assistant model; how far it drafts is read from its own generation config."""
        with _config_of(self._assistant, GenerationConfig(**self.drafting().model_dump(exclude_none=True))):
            yield {"assistant_model": self._assistant}

    def drafting(self) -> BaseModel:
        """Return what the generation configs hold of drafting."""
        return assistant_options(self.settings)


@contextmanager
def _config_of(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """Let `generate` do what it is asked to: it would fill whatever is None from the model's own generation config."""
    own, verbosity = model.generation_config, transformers_logging.get_verbosity()
    model.generation_config = config
    transformers_logging.set_verbosity_error()  # it warns of arguments that it passes to itself
    try:
        yield
    finally:
        model.generation_config = own
        transformers_logging.set_verbosity(verbosity)


def _finished(finish: Finish | None) -> Finish:
    if finish is None:
        raise RuntimeError("generate returned before the answer ended")
    return finish
