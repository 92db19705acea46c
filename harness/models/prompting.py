"""What prompts, and the ends of answers, depend on beside the questions: template, its date, tokenizer, end tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Strict

from foundation.strict_model import StrictModel

TEMPLATE_DATE = date(2024, 7, 26)
"""The day that chat templates see unless a run says otherwise: Llama's templates fall back on it too."""

_SAMPLE = "The 3rd draft: it's 27.5% shorter,\n\tisn't it?  def f(x): return {'ä': x**2}  # naïve 漢字 🙂 <b>END</b>"


class Prompting(StrictModel):
    """What the prompts of one run, and where its answers end, have in common."""

    chat_template: str | None = None
    """sha256 of the tokenizer's chat template; null where prompts are bare text."""
    template_date: Annotated[date, Strict(False)] | None = None
    """The day that the chat template sees; null where it asks for none."""
    tokenizer: str
    """sha256 of the vocabulary, the special tokens and the tokens of a sample text."""
    eos_ids: list[int]
    """Tokens that end an answer."""


def prompting_of(
    tokenizer: Any, template: Literal["chat", "plain"], eos_ids: Iterable[int], day: date | None
) -> Prompting:
    """Return what prompts depend on.

    Args:
        tokenizer: the target's.
        template: the pair's.
        eos_ids: tokens that end an answer.
        day: for the chat template; None takes the pinned one.
    """
    is_chat = template == "chat"
    return Prompting(
        chat_template=_digest(tokenizer.chat_template) if is_chat else None,
        template_date=(day or TEMPLATE_DATE) if is_chat and asks_date(tokenizer) else None,
        tokenizer=_tokenizer_digest(tokenizer),
        eos_ids=sorted(eos_ids),
    )


def asks_date(tokenizer: Any) -> bool:
    """Return whether a tokenizer's chat template asks for the date."""
    return "strftime_now" in json.dumps(tokenizer.chat_template)


def prompt_digest(prompt: Sequence[int]) -> str:
    """Return the sha256 of a prompt's token ids."""
    return _digest(list(prompt))


def _tokenizer_digest(tokenizer: Any) -> str:
    """Return a digest of what a tokenizer does: its serialised form changes with the versions of its library."""
    vocabulary = sorted((index, repr(token)) for token, index in tokenizer.get_vocab().items())
    special = [str(tokenizer.bos_token), str(tokenizer.eos_token), sorted(tokenizer.all_special_ids)]
    return _digest([vocabulary, special, list(tokenizer(_SAMPLE)["input_ids"])])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
