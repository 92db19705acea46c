"""Rows to pairs: a method's answers beside the baseline's of the same block, prompt by prompt."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.errors import UserError
from harness.results import Row

BASELINE = "autoregressive"

Prompt = tuple[str, int]
"""Task and question id."""
Repetition = tuple[int, int]
"""Seed and repeat."""


@dataclass(frozen=True, slots=True)
class Answers:
    """One method's rows for one prompt in one repetition, all turns in order."""

    turns: tuple[Row, ...]

    @property
    def decode_s(self) -> float:
        """Decode seconds of all turns."""
        return math.fsum(row.decode_s or 0.0 for row in self.turns)

    @property
    def timed_tokens(self) -> int:
        """Committed tokens that `decode_s` paid for, all turns."""
        return sum(row.timed_tokens for row in self.turns)

    @property
    def e2e_s(self) -> float:
        """Seconds from call to last commit, all turns."""
        return math.fsum(row.e2e_s or 0.0 for row in self.turns)

    @property
    def committed(self) -> int:
        """Committed tokens of all turns, a peer's first one included: `e2e_s` paid for it."""
        return sum(row.committed for row in self.turns)


@dataclass(frozen=True, slots=True)
class Pairing:
    """One prompt, answered by the baseline and by a method in the same repetitions."""

    prompt: Prompt
    baseline: tuple[Answers, ...]
    method: tuple[Answers, ...]


def is_rated(row: Row) -> bool:
    """Tell whether a row has a rate: it answered, with timed tokens and positive finite times."""
    return row.status == "ok" and row.timed_tokens > 0 and _is_time(row.decode_s) and _is_time(row.e2e_s)


def _is_time(seconds: float | None) -> bool:
    return seconds is not None and 0.0 < seconds < math.inf


def turns_asked(rows: Iterable[Row]) -> dict[Prompt, set[int]]:
    """Return the turns that any row of a prompt knows of: what a whole conversation has."""
    turns: defaultdict[Prompt, set[int]] = defaultdict(set)
    for row in rows:
        turns[row.task, row.question_id].add(row.turn)
    return dict(turns)


def pair_with_baseline(
    baseline: Sequence[Row], method: Sequence[Row], turns: Mapping[Prompt, set[int]]
) -> list[Pairing]:
    """Pair a method's conversations with the baseline's of the same prompt, seed and repeat.

    The unit of loss is the block: a conversation with a turn that failed, is missing or has no
    rate is left out whole, on both sides, and so is a prompt without any conversation left.

    Args:
        baseline: the baseline's rows of one pair and clock.
        method: the method's rows of the same pair and clock.
        turns: the turns of every prompt, from `turns_asked`.

    Returns:
        The prompts that both answered, sorted by task and question id.

    Raises:
        UserError: one method has two answers to the same turn of the same block.
    """
    references, answers = _whole_conversations(baseline, turns), _whole_conversations(method, turns)
    pairings = []
    for prompt in sorted(references.keys() & answers.keys()):
        shared = sorted(references[prompt].keys() & answers[prompt].keys())
        if shared:
            ours, theirs = answers[prompt], references[prompt]
            pairings.append(Pairing(prompt, tuple(theirs[r] for r in shared), tuple(ours[r] for r in shared)))
    return pairings


def _whole_conversations(
    rows: Sequence[Row], turns: Mapping[Prompt, set[int]]
) -> dict[Prompt, dict[Repetition, Answers]]:
    found: defaultdict[tuple[Prompt, Repetition], dict[int, Row]] = defaultdict(dict)
    for row in rows:
        conversation = found[(row.task, row.question_id), (row.seed, row.repeat)]
        if row.turn in conversation:
            raise UserError(
                f"rows: {row.method} answers {row.task}/{row.question_id}/{row.turn} (seed {row.seed}, repeat "
                f"{row.repeat}) twice with different settings; keep such runs in separate folders"
            )
        conversation[row.turn] = row
    whole: defaultdict[Prompt, dict[Repetition, Answers]] = defaultdict(dict)
    for (prompt, repetition), by_turn in found.items():
        rated = {turn for turn, row in by_turn.items() if is_rated(row)}
        if rated == turns[prompt]:
            whole[prompt][repetition] = Answers(tuple(by_turn[turn] for turn in sorted(rated)))
    return whole
