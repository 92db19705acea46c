"""Prompt tokens of questions: one template, exactly one beginning-of-sequence token, every turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Any, Literal

from harness.models.prompting import TEMPLATE_DATE, asks_date
from methods.method import PromptError

Message = dict[Literal["role", "content"], str]

_DIRECTIVES = [f"%{pad}{letter}" for letter in "aAbBcCdDeFgGhHIjklmMnprRStTuUVwWxXyYzZ" for pad in ("", "-")]


def prompt_ids(
    tokenizer: Any, template: Literal["chat", "plain"], messages: Sequence[Message], day: date | None = None
) -> list[int]:
    """Return the token ids of a conversation whose last message is the user's.

    A chat template writes special tokens itself, so the tokenizer adds none; `plain` joins the messages' text and
    leaves them to the tokenizer.

    Args:
        tokenizer: the target's.
        template: the pair's.
        messages: the conversation.
        day: the date that a chat template sees, at midnight; None takes the pinned one.

    Raises:
        PromptError: the chat template refuses the conversation.
    """
    if template == "plain":
        text = "\n".join(message["content"] for message in messages)
        return list(tokenizer(text)["input_ids"])
    try:
        given = {"chat_template": _dated(tokenizer.get_chat_template(), day)} if asks_date(tokenizer) else {}
        text = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False, **given)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    except Exception as error:  # a template is code of the model's, which may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise PromptError(
            f"the chat template refuses the conversation ({reason}); mend it, or set template: plain in the pair's file"
        ) from error


def _dated(template: str, day: date | None) -> str:
    """Return a chat template that sees a day.

    A macro in front hides transformers' function of that name, which reads the machine's clock; that cannot be given
    as a variable, since transformers lets no function through. Blocks swallow the newline behind them, here our own.
    """
    now = datetime.combine(day or TEMPLATE_DATE, time())
    replaced = "".join(
        f".replace({json.dumps(directive)}, {json.dumps(now.strftime(directive))})" for directive in _DIRECTIVES
    )
    kept = json.dumps("\ue000")  # stands for a written percent sign, which begins no directive
    text = f'format.replace("%%", {kept}){replaced}.replace({kept}, "%")'
    return f"{{% macro strftime_now(format) %}}{{{{ {text} }}}}{{% endmacro %}}\n{template}"


def conversation(turns: Sequence[str], answers: Sequence[str]) -> list[Message]:
    """Return the messages up to the turn after `answers`, one answer a finished turn."""
    messages: list[Message] = []
    for index, turn in enumerate(turns[: len(answers) + 1]):
        messages.append({"role": "user", "content": turn})
        if index < len(answers):
            messages.append({"role": "assistant", "content": answers[index]})
    return messages


def split_markers(tokenizer: Any) -> list[str]:
    """Return the markers of a chat template that a tokenizer takes to pieces, so that a model sees text instead.

    A marker is an entry of the vocabulary in brackets, such as `<|im_start|>`, that stands in the template's output;
    one read from a GGUF file may be split all the same. None where the template refuses the probe: runs tell of it.
    """
    try:
        probe = conversation(["?", "?"], ["!"])
        text = tokenizer.apply_chat_template(probe, add_generation_prompt=True, tokenize=False)
    except Exception:  # noqa: BLE001 - a template is code of the model's, which may raise anything
        return []
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    markers = {token: index for token, index in tokenizer.get_vocab().items() if _is_marker(token) and token in text}
    return sorted(marker for marker, index in markers.items() if ids.count(index) < text.count(marker))


def _is_marker(token: str) -> bool:
    return len(token) > 2 and token[0] + token[-1] in ("<>", "[]")
