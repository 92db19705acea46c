"""Questions that must not be fitted on, since this suite measures on them, by digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from unicodedata import category, normalize

from tasks.question import Question
from tasks.registry import get_task, task_names
from tasks.sources import NoQuestionsError, load_questions
from tasks.task import load_task

_DIGESTS = "eval_digests.txt"
_ENDS = ("?", "!", ".")
_PARTS = re.compile(r"\d+|[^\W\d_]+|[^\w\s]|_")


def question_digest(question: Question) -> str:
    """Return the SHA-256 (hex) of a question's first turn, whatever its white space."""
    return hashlib.sha256(" ".join(question.turns[0].split()).encode()).hexdigest()


def plain_digest(turn: str) -> str:
    """Return the SHA-256 (hex) of a first turn's words, numbers and signs, the same in every version of its data set.

    Case, white space, final marks, invisible characters and our tasks' prompt prefixes make no difference.
    """
    visible = "".join(character for character in normalize("NFKC", turn) if category(character) != "Cf")
    plain = visible.casefold().strip()
    for prefix in _prefixes():
        if plain.startswith(prefix):
            plain = plain.removeprefix(prefix)
            break
    parts = _PARTS.findall(plain)
    while parts and parts[-1] in _ENDS:
        parts.pop()
    return hashlib.sha256((" ".join(parts) or turn).encode()).hexdigest()


def measured_digests(data: str | None, tasks: Sequence[str]) -> frozenset[str]:
    """Return the plain digests of all questions that may be measured on; raises UserError if a file is broken.

    They are those that papers of this field report on, the embedded set, and all tasks of a data folder; without a
    folder, the usual sources of `tasks`.
    """
    text = files("tasks").joinpath(_DIGESTS).read_text(encoding="utf-8")
    digests = {line for line in text.split("\n") if line and not line.startswith("#")}
    every = task_names()
    for source, names in (("embedded", every), (data, tasks if data is None else every)):
        for name in names:
            try:
                questions = load_questions(get_task(name), data=source).questions
            except NoQuestionsError:
                continue
            digests |= {plain_digest(question.turns[0]) for question in questions}
    return frozenset(digests)


@cache
def _prefixes() -> list[str]:
    """Return the prompt prefixes of the packaged tasks, the longest first."""
    tasks = map(load_task, Path(__file__).parent.glob("*.yaml"))
    return sorted({task.prompt.prefix.casefold().strip() for task in tasks} - {""}, key=len, reverse=True)
