"""Questions: the user's own to train on, and the tasks' to measure agreement on."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from harness.distil.settings import DistilSettings
from harness.models.pair import Pair
from harness.models.prompts import conversation, prompt_ids
from tasks.known_eval import measured_digests, plain_digest
from tasks.registry import get_task
from tasks.sources import load_questions


def own_questions(files: Sequence[str], data: str | None) -> list[str]:
    """Return the first turns of JSON-lines files with `turns`; refuse evaluation questions, also those in `data`."""
    known = measured_digests(data, []) if files else frozenset[str]()
    return [
        _first_turn(file, number, line, known)
        for file in files
        for number, line in enumerate(_lines(file), start=1)
        if line.strip()
    ]


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--prompts {file}: cannot be read ({error}); give a JSON-lines file") from error


def _first_turn(file: str, number: int, line: str, known: Collection[str]) -> str:
    try:
        turns = json.loads(line)["turns"]
    except (ValueError, KeyError, TypeError, RecursionError):
        turns = None
    if not (isinstance(turns, list) and turns and isinstance(turns[0], str) and turns[0].strip()):
        raise UserError(f'--prompts {file}: line {number}: no question; write for example {{"turns": ["Why?"]}}')
    if plain_digest(turns[0]) in known:
        raise UserError(f"--prompts {file}: line {number}: a question to be measured on; take it out")
    return turns[0]


def task_prompts(settings: DistilSettings, pair: Pair, tokenizer: Any) -> dict[str, list[list[int]]]:
    """Return the first turns' prompt tokens of each task's evaluation questions."""
    prompts: dict[str, list[list[int]]] = {}
    for name in settings.tasks:
        questions = load_questions(get_task(name), split="eval", data=settings.data).questions[: settings.limit]
        prompts[name] = [prompt_ids(tokenizer, pair.template, conversation(one.turns, [])) for one in questions]
    return prompts
