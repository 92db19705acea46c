"""One benchmark question, and the digest that names a list of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a task, ready for a chat template.

    Attributes:
        question_id: number, unique among the questions of its task and split.
        category: the source's label; may be empty.
        turns: the user's messages, in order; never empty, and no message is blank.
        reference: the reference answers (one a turn, or several for one turn); None where the source has none.
    """

    question_id: int
    category: str
    turns: tuple[str, ...]
    reference: tuple[str, ...] | None


def digest(questions: Iterable[Question]) -> str:
    """Return the SHA-256 (hex) of the questions as canonical JSON, one a line."""
    sha256 = hashlib.sha256()
    for question in questions:
        line = json.dumps(asdict(question), sort_keys=True, separators=(",", ":"))
        sha256.update(f"{line}\n".encode())
    return sha256.hexdigest()
