"""Records to questions: the FastChat/EAGLE format, and each task's own upstream format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from foundation.errors import UserError
from tasks.question import Question
from tasks.records import Record
from tasks.task import PromptFormat, Split


def is_fastchat(record: Record, prompt: PromptFormat) -> bool:
    """Return whether the record is in the FastChat format rather than in the task's own."""
    return "turns" in record.fields or prompt.turns not in record.fields


def from_fastchat(records: Iterable[Record], prompt: PromptFormat) -> list[Question]:
    """Return the questions of records with `question_id`, `turns` and perhaps `category` and `reference`.

    Raises UserError, with file and line, if a key is missing or invalid or an id is repeated.
    """
    pairs = []
    for record in records:
        if "turns" not in record.fields:
            raise UserError(
                f"{record.place}: has neither 'turns' nor {prompt.turns!r}: add 'turns', a list of messages"
            )
        if "question_id" not in record.fields:
            raise UserError(f"{record.place}: has no 'question_id': add one, a whole number")
        question = Question(
            question_id=_id(record, "question_id"),
            category=_category(record, ""),
            turns=_messages(record, "turns"),
            reference=_references(record, "reference"),
        )
        pairs.append((record, question))
    return _distinct(pairs)


def from_upstream(records: Iterable[Record], prompt: PromptFormat, split: Split) -> list[Question]:
    """Return one split's questions from a source's records, in its order; no record behind the split is read.

    Raises UserError, with file and line, if a key is missing or invalid or an id is repeated.
    """
    listed = (_with_lists(record, prompt) for record in records)
    kept = islice(_short_enough(listed, prompt), *split.rows)
    return _distinct((record, _upstream_question(record, prompt)) for record in kept)


def in_categories(records: list[Record], categories: tuple[str, ...]) -> list[Record]:
    """Return the records of these categories; the others are not read, since their format may differ."""
    return [record for record in records if record.fields.get("category") in categories]


def _with_lists(record: Record, prompt: PromptFormat) -> Record:
    lone = {
        key: [value]
        for key, value in record.fields.items()
        if key in (prompt.turns, prompt.reference) and isinstance(value, str)
    }
    return replace(record, fields=record.fields | lone)


def _short_enough(records: Iterable[Record], prompt: PromptFormat) -> Iterator[Record]:
    for record in records:
        if prompt.max_chars is None or sum(map(len, _messages(record, prompt.turns))) <= prompt.max_chars:
            yield record


def _upstream_question(record: Record, prompt: PromptFormat) -> Question:
    turns = _messages(record, prompt.turns)
    reference = _references(record, prompt.reference) if prompt.reference else None
    return Question(
        question_id=_id(record, prompt.id) if prompt.id in record.fields else record.row,
        category=_category(record, prompt.category),
        turns=tuple(_message(turn, prompt) for turn in turns),
        reference=None if reference is None else tuple(_replace(text, prompt.reference_replace) for text in reference),
    )


def _message(text: str, prompt: PromptFormat) -> str:
    text = _replace(text, prompt.replace)
    if prompt.question_form:
        text = text[0].upper() + text[1:] + ("" if text.endswith("?") else "?")
    return prompt.prefix + text


def _replace(text: str, replacements: dict[str, str]) -> str:
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text


def _distinct(pairs: Iterable[tuple[Record, Question]]) -> list[Question]:
    places: dict[int, str] = {}
    questions = []
    for record, question in pairs:
        first = places.setdefault(question.question_id, record.place)
        if first != record.place:
            raise UserError(f"{record.place}: question id {question.question_id} stands already at {first}: change one")
        questions.append(question)
    return questions


def _id(record: Record, key: str | None) -> int:
    value = record.fields[key or ""]
    if not isinstance(value, int) or isinstance(value, bool):
        raise UserError(f"{record.place}: {key!r} is {value!r}: make it a whole number")
    return value


def _category(record: Record, default: str) -> str:
    value = record.fields.get("category", default)
    if not isinstance(value, str):
        raise UserError(f"{record.place}: 'category' is {value!r}: make it a string")
    return value


def _messages(record: Record, key: str) -> tuple[str, ...]:
    if key not in record.fields:
        raise UserError(f"{record.place}: has no {key!r}: add it")
    turns = _strings(record, key)
    if not turns:
        raise UserError(f"{record.place}: {key!r} is empty: give at least one message")
    if not all(turn.strip() for turn in turns):
        raise UserError(f"{record.place}: {key!r} holds an empty message: fill it or remove the record")
    return turns


def _references(record: Record, key: str) -> tuple[str, ...] | None:
    if record.fields.get(key) is None:
        return None
    return _strings(record, key) or None


def _strings(record: Record, key: str) -> tuple[str, ...]:
    value = record.fields[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UserError(f"{record.place}: {key!r} is not a list of strings: make it one")
    for item in value:
        if any("\ud800" <= char <= "\udfff" for char in item):
            raise UserError(f"{record.place}: {key!r} holds half a surrogate pair, which is no character: fix it")
    return tuple(value)
