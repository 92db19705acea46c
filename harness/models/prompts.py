"""Prompt tokens of questions: one template, exactly one beginning-of-sequence token, every turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from jinja2 import TemplateError

from methods.method import PromptError

Message = dict[Literal["role", "content"], str]


def prompt_ids(tokenizer: Any, template: Literal["chat", "plain"], messages: Sequence[Message]) -> list[int]:
    """Return the token ids of a conversation whose last message is the user's.

    A chat template writes special tokens itself, so the tokenizer adds none; `plain` joins the messages' text and
    leaves them to the tokenizer.

    Raises:
        PromptError: the chat template refuses the conversation.
    """
    if template == "plain":
        text = "\n".join(message["content"] for message in messages)
        return list(tokenizer(text)["input_ids"])
    try:
        text = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
    except (TemplateError, ValueError) as error:
        raise PromptError(f"the chat template refuses the conversation ({' '.join(str(error).split())})") from error
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def conversation(turns: Sequence[str], answers: Sequence[str]) -> list[Message]:
    """Return the messages up to the turn after `answers`, one answer a finished turn."""
    messages: list[Message] = []
    for index, turn in enumerate(turns[: len(answers) + 1]):
        messages.append({"role": "user", "content": turn})
        if index < len(answers):
            messages.append({"role": "assistant", "content": answers[index]})
    return messages
