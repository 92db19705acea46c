"""Pairs a method's answers with the baseline's of the same block, prompt by prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from foundation.errors import UserError
from reports.row_summary import Tally
from reports.row_validation import BASELINE as BASELINE

PromptId = tuple[str, int]
"""Task and question id."""
Repetition = tuple[int, int]
"""Seed and repeat."""


@dataclass(frozen=True, slots=True)
class Answers:
    """One method's rows for one prompt in one repetition, all turns in order."""

    turns: tuple[Tally, ...]
    decode_s: float = field(init=False)
    """Decode seconds of all turns."""
    e2e_s: float | None = field(init=False)
    """Seconds from call to last commit, all turns; null where one turn lacks them."""
    timed_tokens: int = field(init=False)
    """Committed tokens that `decode_s` paid for, all turns."""
    committed: int = field(init=False)
    """Committed tokens of all turns, an external baseline's first one included: `e2e_s` paid for it."""

    def __post_init__(self) -> None:
        # Summed once: every method reads the baseline's.
        for name in ("decode_s", "e2e_s", "timed_tokens", "committed"):
            values = [getattr(row, name) for row in self.turns]
            object.__setattr__(self, name, None if None in values else sum(values))


@dataclass(frozen=True, slots=True)
class Pairing:
    """One prompt, answered by the baseline and by a method in the same repetitions."""

    prompt: PromptId
    baseline: tuple[Answers, ...]
    method: tuple[Answers, ...]

    @property
    def against(self) -> str:
        """Name of the baseline."""
        return self.method[0].turns[0].baseline

    @property
    def repetitive(self) -> bool:
        """Whether an answer of either side ends in a cycle."""
        return any(row.repetitive for answers in (*self.baseline, *self.method) for row in answers.turns)


def turns_of(rows: Iterable[Tally]) -> dict[PromptId, set[int]]:
    """Return the turns of each prompt in any row: those of a whole conversation."""
    turns: defaultdict[PromptId, set[int]] = defaultdict(set)
    for row in rows:
        turns[row.task, row.question_id].add(row.turn)
    return dict(turns)


def pair_with_baseline(rows: Iterable[Tally], turns: Mapping[PromptId, set[int]]) -> dict[str, list[Pairing]]:
    """Pair each method's conversations with those of its baseline for the same prompt, seed and repeat.

    Every engine has its own baseline, which is paired with itself: two engines never meet in one speedup.

    The unit of loss is the block: a conversation with a turn that failed, is missing or has no rate is left out whole,
    on both sides, and so is a prompt without any conversation left. Prompts are sorted by task and question id.

    Args:
        rows: the rows of one pair and clock.
        turns: the turns of every prompt, from `turns_of`.
    """
    by_method: defaultdict[str, list[Tally]] = defaultdict(list)
    for row in rows:
        by_method[row.method].append(row)
    whole = {method: _whole_conversations(own, turns) for method, own in by_method.items()}
    return {method: _pair(whole.get(own[0].baseline, {}), whole[method]) for method, own in by_method.items()}


Conversations = Mapping[PromptId, Mapping[Repetition, Answers]]


def _pair(references: Conversations, answers: Conversations) -> list[Pairing]:
    pairings = []
    for prompt in sorted(references.keys() & answers.keys()):
        shared = sorted(references[prompt].keys() & answers[prompt].keys())
        if shared:
            ours, theirs = answers[prompt], references[prompt]
            pairings.append(Pairing(prompt, tuple(theirs[r] for r in shared), tuple(ours[r] for r in shared)))
    return pairings


def _whole_conversations(rows: Sequence[Tally], turns: Mapping[PromptId, set[int]]) -> Conversations:
    conversations: defaultdict[tuple[PromptId, Repetition], dict[int, Tally]] = defaultdict(dict)
    for row in rows:
        conversation = conversations[(row.task, row.question_id), (row.seed, row.repeat)]
        if row.turn in conversation:
            raise UserError(
                f"rows: {row.method} answers {row.task}/{row.question_id}/{row.turn} (seed {row.seed}, repeat "
                f"{row.repeat}) twice with different settings; keep such runs in separate folders"
            )
        conversation[row.turn] = row
    whole: defaultdict[PromptId, dict[Repetition, Answers]] = defaultdict(dict)
    for (prompt, repetition), by_turn in conversations.items():
        rated = {turn for turn, row in by_turn.items() if row.is_rated}
        if rated == turns[prompt]:
            whole[prompt][repetition] = Answers(tuple(by_turn[turn] for turn in sorted(rated)))
    return whole
