"""Questions that must never be fitted on: those that this suite measures on, known by digest."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from tasks.question import Question
from tasks.registry import get_task, task_names
from tasks.sources import load_questions

_DIGESTS = "eval_digests.txt"


def question_digest(question: Question) -> str:
    """Return the SHA-256 (hex) of a question's first turn, however its words are spaced."""
    return hashlib.sha256(" ".join(question.turns[0].split()).encode()).hexdigest()


def known_eval_digests() -> frozenset[str]:
    """Return the digests of the questions that papers of this field report on, and of the embedded set."""
    text = files("tasks").joinpath(_DIGESTS).read_text(encoding="utf-8")
    known = {line for line in text.split("\n") if line and not line.startswith("#")}
    for name in task_names():
        known |= {question_digest(question) for question in load_questions(get_task(name), data="embedded").questions}
    return frozenset(known)
