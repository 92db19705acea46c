"""Scripts: which parts of a sequence are given and which the target writes, token by token."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

from harness.distil.prompt_seeds import Opening
from harness.models.prompts import Message, prompt_ids

_ASKED, _ANSWERED, _ASKED_AGAIN = ("FIRSTQUESTION", "FIRSTANSWER", "SECONDQUESTION")


class Part(IntEnum):
    """The source of a token."""

    GIVEN = 0
    """Template or opening."""
    SAMPLED = 1
    """The target's own, sampled: user turns and articles."""
    ANSWER = 2
    """The target's own, greedy."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a sequence: given `tokens`, or up to `limit` that the target writes."""

    part: Part
    tokens: tuple[int, ...] = ()
    limit: int = 0


@dataclass(slots=True)
class Writing:
    """A sequence in the making.

    Attributes:
        script: the segments still to come, the current one first.
        ends: tokens that end a segment of the target's.
        tokens: ids so far, [length].
        parts: their sources, [length].
    """

    script: list[Segment]
    ends: frozenset[int]
    tokens: list[int] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    _taken: int = 0

    @property
    def ready(self) -> int:
        """Tokens that can be taken before the target has to write."""
        segment = self.script[0] if self.script else Segment(Part.ANSWER)
        return len(segment.tokens) - self._taken if segment.part is Part.GIVEN else 0

    def take(self, greedy: int, sampled: int) -> bool:
        """Append a given token or one of the target's two proposals; return False at the end of the script."""
        while self.script:
            segment = self.script[0]
            if segment.part is Part.GIVEN:
                if self._taken < len(segment.tokens):
                    return self._append(segment.tokens[self._taken], Part.GIVEN)
            elif segment.part is Part.SAMPLED:
                if self._taken < segment.limit and sampled not in self.ends:
                    return self._append(sampled, Part.SAMPLED)
            elif self._taken == segment.limit:
                return False  # cut short: nothing can follow an unfinished answer
            else:
                self._append(greedy, Part.ANSWER)
                if greedy in self.ends:
                    self._begin_next(written=greedy)
                return True
            self._begin_next()
        return False

    def _append(self, token: int, part: Part) -> bool:
        self.tokens.append(token)
        self.parts.append(part)
        self._taken += 1
        return True

    def _begin_next(self, written: int | None = None) -> None:
        self.script.pop(0)
        following = self.script[0].tokens if self.script else ()
        self._taken = int(written is not None and following[:1] == (written,))  # the template's own end is there


@dataclass(frozen=True, slots=True)
class Frame:
    """The template's tokens around the turns of a conversation.

    Attributes:
        before: in front of the first question.
        asked: between a question and its answer.
        answered: between an answer and the next question.
    """

    before: tuple[int, ...]
    asked: tuple[int, ...]
    answered: tuple[int, ...]


def frame_of(tokenizer: Any, template: Literal["chat", "plain"]) -> Frame:
    """Return the tokens of a pair's template around questions and answers."""
    messages: list[Message] = [
        {"role": "user", "content": _ASKED},
        {"role": "assistant", "content": _ANSWERED},
        {"role": "user", "content": _ASKED_AGAIN},
    ]

    def text_of(count: int) -> str:
        return str(tokenizer.decode(prompt_ids(tokenizer, template, messages[:count])))

    before, asked = text_of(1).split(_ASKED)
    answered = text_of(3).split(_ANSWERED)[1].split(_ASKED_AGAIN)[0]
    pieces = (tuple(tokenizer(piece, add_special_tokens=False)["input_ids"]) for piece in (before, asked, answered))
    return Frame(*pieces)


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """Most tokens of a question, an answer and an article."""

    question: int = 96
    answer: int = 192
    article: int = 448


def script_of(opening: Opening, frame: Frame, tokenizer: Any, limits: TokenLimits) -> list[Segment]:
    """Return the script of a conversation: the question of `opening`, its answer, and further turns."""
    first_words = opening.text if opening.text or frame.before else "The"  # a forward needs a token
    text = tuple(tokenizer(first_words, add_special_tokens=False)["input_ids"])
    script = [Segment(Part.GIVEN, frame.before + text)]
    if not opening.whole:
        script.append(Segment(Part.SAMPLED, limit=limits.question))
    script += [Segment(Part.GIVEN, frame.asked), Segment(Part.ANSWER, limit=limits.answer)]
    for _ in range(opening.turns - 1):
        script += [
            Segment(Part.GIVEN, frame.answered),
            Segment(Part.SAMPLED, limit=limits.question),
            Segment(Part.GIVEN, frame.asked),
            Segment(Part.ANSWER, limit=limits.answer),
        ]
    return script


def article_script(request: str, frame: Frame, tokenizer: Any, limits: TokenLimits) -> list[Segment]:
    """Return the script of an article, sampled from the target on request."""
    text = tuple(tokenizer(request, add_special_tokens=False)["input_ids"])
    return [Segment(Part.GIVEN, frame.before + text + frame.asked), Segment(Part.SAMPLED, limit=limits.article)]
