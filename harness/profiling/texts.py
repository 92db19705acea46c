"""Texts for measuring the costs of decoding around its forwards."""

from __future__ import annotations

import random
from dataclasses import dataclass

from harness.models.loading import LoadedPair
from harness.models.prompts import conversation, prompt_ids
from tasks.registry import get_task
from tasks.sources import load_questions

ANSWER = 64
"""Tokens of an answer."""

_PROMPT = 64  # prompt and answer fit the smallest context of a profile
_PHRASES, _PHRASE, _BETWEEN = 3, 12, 4  # three tokens of four are in a phrase that look-up can find


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and its continuation."""

    prompt: list[int]
    """Token ids."""
    answer: tuple[int, ...] | None = None
    """The tokens to commit, whatever the target draws; None commits its draws."""


def embedded_texts(loaded: LoadedPair) -> list[Text]:
    """Return four prompts of the embedded tasks, without answers."""
    questions = [
        question
        for task in ("mt_bench", "gsm8k")
        for question in load_questions(get_task(task), data="embedded").questions[:2]
    ]
    prompts = (conversation(question.turns, []) for question in questions)
    return [Text(prompt_ids(loaded.models.tokenizer, loaded.pair.template, prompt)) for prompt in prompts]


def random_texts(vocabulary: int, seed: int) -> list[Text]:
    """Return four texts of random tokens with recurring phrases; token ids lie below `vocabulary`."""
    rng = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(count)]

    texts = []
    for _ in range(4):
        phrases = [tokens(_PHRASE) for _ in range(_PHRASES)]
        text: list[int] = []
        while len(text) < _PROMPT + ANSWER:
            text += [*rng.choice(phrases), *tokens(_BETWEEN)]
        texts.append(Text(text[:_PROMPT], tuple(text[_PROMPT : _PROMPT + ANSWER])))
    return texts
