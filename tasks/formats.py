"""Records to questions: the FastChat/EAGLE format, and each task's own upstream format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from harness.errors import UserError
from tasks.question import Question
from tasks.records import Record
from tasks.task import Prompt, Split


def is_fastchat(record: Record, prompt: Prompt) -> bool:
    """Return whether the record is in the FastChat format rather than in the task's own."""
    return "turns" in record.fields or prompt.turns not in record.fields


def from_fastchat(records: Iterable[Record], prompt: Prompt) -> list[Question]:
    """Return the question of every record in the FastChat/EAGLE format.

    Args:
        records: records with `question_id`, `turns`, and perhaps `category` and `reference`.
        prompt: the task's own format, whose key an error names beside `turns`.

    Raises:
        UserError: a key is missing or wrong, or an id stands twice; the message names file and line.
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


def from_upstream(records: Iterable[Record], prompt: Prompt, split: Split) -> list[Question]:
    """Return the questions of one split from records in the source's own format.

    Args:
        records: all records of the source, in its order; read no further than the split goes.
        prompt: how a record becomes a question.
        split: which rows to take.

    Raises:
        UserError: a key is missing or wrong, or an id stands twice; the message names file and line.
    """
    listed = (_with_lists(record, prompt) for record in records)
    kept = islice(_short_enough(listed, prompt), *split.rows)
    return _distinct((record, _upstream_question(record, prompt)) for record in kept)


def in_categories(records: list[Record], categories: tuple[str, ...]) -> list[Record]:
    """Return the records whose category is one of `categories`, the rest unread: they may be shaped otherwise."""
    return [record for record in records if record.fields.get("category") in categories]


def _with_lists(record: Record, prompt: Prompt) -> Record:
    lone = {
        key: [value]
        for key, value in record.fields.items()
        if key in (prompt.turns, prompt.reference) and isinstance(value, str)
    }
    return replace(record, fields=record.fields | lone)


def _short_enough(records: Iterable[Record], prompt: Prompt) -> Iterator[Record]:
    for record in records:
        if prompt.max_chars is None or sum(map(len, _messages(record, prompt.turns))) <= prompt.max_chars:
            yield record


def _upstream_question(record: Record, prompt: Prompt) -> Question:
    turns = _messages(record, prompt.turns)
    reference = _references(record, prompt.reference) if prompt.reference else None
    return Question(
        question_id=_id(record, prompt.id) if prompt.id in record.fields else record.row,
        category=_category(record, prompt.category),
        turns=tuple(_message(turn, prompt) for turn in turns),
        reference=None if reference is None else tuple(_replace(text, prompt.reference_replace) for text in reference),
    )


def _message(text: str, prompt: Prompt) -> str:
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
            raise UserError(f"{record.place}: {key!r} holds half a surrogate pair, which is no character: mend it")
    return tuple(value)
