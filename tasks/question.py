"""One benchmark question, and the digest of a list of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a task, ready for a chat template."""

    question_id: int
    """Unique among the questions of its task and split."""
    category: str
    """The source's label; may be empty."""
    turns: tuple[str, ...]
    """The user's messages in order, at least one, none blank."""
    reference: tuple[str, ...] | None
    """The reference answers, one a turn or several for one turn; None if the source has none."""


def digest(questions: Iterable[Question]) -> str:
    """Return the SHA-256 (hex) of the questions as canonical JSON, one a line."""
    sha256 = hashlib.sha256()
    for question in questions:
        line = json.dumps(asdict(question), sort_keys=True, separators=(",", ":"))
        sha256.update(f"{line}\n".encode())
    return sha256.hexdigest()
