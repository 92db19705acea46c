"""External baselines: Hugging Face `generate` on the same model objects, timed from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, cast

import torch
from pydantic import BaseModel
from transformers import GenerationConfig, PreTrainedModel, StoppingCriteria
from transformers.utils import logging as transformers_logging

from foundation.errors import UserError
from methods.core.generation import Finish, Forward, Generation
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams
from methods.core.stopping import Stopper
from methods.external.facts import FACTS
from methods.external.options import AssistantOptions, LookupOptions
from methods.method import Method, Models, register_method
from methods.settings import Settings


class _ForwardCounter:
    """Records the tokens of each forward, and when the first one ended."""

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
    """Our end-of-answer rule, so that an external baseline stops where every method stops.

    Each call reads the new tokens alone, and the seconds that it takes are kept apart: they are ours, not the peer's.
    """

    def __init__(self, stopper: Stopper, prompt_tokens: int) -> None:
        self._stopper = stopper
        self._prompt_tokens = prompt_tokens
        self.token_ids: list[int] = []
        """The answer so far, cut where it ends."""
        self.finish: Finish | None = None
        """Why it ended."""
        self.first_tokens = 0
        """How many tokens the first forward yielded: several, if that forward carried a draft."""
        self.seconds = 0.0
        """What the rule itself took, without the wait for the device."""

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        new = input_ids[0, self._prompt_tokens + len(self.token_ids) :].tolist()  # waits for the peer's forward
        started = perf_counter()
        kept, self.finish = self._stopper.cut(self.token_ids, new)
        self.token_ids += kept
        self.first_tokens = self.first_tokens or len(kept)
        done = torch.full((input_ids.shape[0],), self.finish is not None, device=input_ids.device, dtype=torch.bool)
        self.seconds += perf_counter() - started
        return done


@register_method("hf-generate")
class HuggingFaceGenerate(Method):
    """`generate`, plain or with prompt look-up by `options`; its rounds and spans are null.

    Its first forward is prefill, whose tokens are excluded from tokens/s; our end rule is outside its decode time.
    """

    facts = FACTS["hf-generate"]

    @contextmanager
    def assistant(self) -> Iterator[dict[str, Any]]:
        """Yield further arguments of `generate`."""
        yield {}

    def drafting(self) -> BaseModel:
        """Return the drafting keys of the generation config."""
        return self.settings.options_as(LookupOptions, "hf-generate")

    def generate(self, prompt_ids: Sequence[int], params: DecodingParams) -> Generation:
        """Decode one prompt; see `Method.generate`."""
        self.check_prompt(prompt_ids, params)
        target = self.models.target
        inputs = torch.tensor([list(prompt_ids)], device=target.device)
        end_rule = _EndRule(Stopper(params, self.models.tokenizer), len(prompt_ids))
        torch.manual_seed(params.draw_seed(0))
        with (
            _config_of(target.model, GenerationConfig()),
            self.assistant() as given,
            _ForwardCounter(target) as counter,
        ):
            target.synchronise()
            started = perf_counter()
            cast("Any", target.model).generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=self._config(params),
                stopping_criteria=[end_rule],
                **given,
            )
            target.synchronise()
            ended = perf_counter()
        return Generation(
            token_ids=end_rule.token_ids,
            finish=_finished(end_rule.finish),
            rounds=None,
            prefill=[Forward("target", None, counter.tokens[0], 0)],
            prefill_s=counter.first_ended - started,
            decode_s=ended - counter.first_ended - end_rule.seconds,
            spans=None,
            prefill_tokens=end_rule.first_tokens,
            decode_forwards=len(counter.tokens) - 1,
        )

    def _config(self, params: DecodingParams) -> GenerationConfig:
        eos = sorted(params.eos_ids)
        sampling: dict[str, Any] = {"do_sample": not params.greedy}
        if not params.greedy:
            sampling |= {"temperature": params.temperature, "top_p": params.top_p, "top_k": params.top_k}
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
    """`generate` with the pair's middle drafter as its assistant; raises UserError if the pair has none."""

    facts = FACTS["hf-assisted"]

    def __init__(self, models: Models, settings: Settings) -> None:
        super().__init__(models, settings)
        if models.middle is None:
            raise UserError(models.no_middle)
        self._assistant = models.middle.model

    @contextmanager
    def assistant(self) -> Iterator[dict[str, Any]]:
        """Yield the assistant model; its own generation config says how far it drafts."""
        with _config_of(self._assistant, GenerationConfig(**self.drafting().model_dump(exclude_none=True))):
            yield {"assistant_model": self._assistant}

    def drafting(self) -> BaseModel:
        """Return the drafting keys of the assistant's generation config."""
        return self.settings.options_as(AssistantOptions, "hf-assisted")


@contextmanager
def _config_of(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """Use `config` instead of the model's own, from which `generate` would fill whatever is None."""
    own, verbosity = model.generation_config, transformers_logging.get_verbosity()
    model.generation_config = config
    transformers_logging.set_verbosity_error()  # it warns about arguments that it passes to itself
    try:
        yield
    finally:
        model.generation_config = own
        transformers_logging.set_verbosity(verbosity)


def _finished(finish: Finish | None) -> Finish:
    if finish is None:
        raise RuntimeError("generate returned before the answer ended")
    return finish
