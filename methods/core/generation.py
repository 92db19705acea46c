"""What decoding one prompt gives back. Imports no torch: reports read these too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from methods.core.reliability import EdgeTally

Role = Literal["target", "middle", "small"]
Finish = Literal["eos", "length", "stop"]


@dataclass(frozen=True, slots=True)
class Forward:
    """One forward pass of a neural model, or one small step of a look-up drafter."""

    role: Role
    """Who ran it."""
    step: int | None
    """Drafting step, from 1; null in verification and prefill."""
    tokens: int
    """Tokens in the forward (tree nodes; for a look-up, frontier nodes)."""
    context: int
    """Tokens already in the cache, that is to the left of the forward."""


@dataclass(frozen=True, slots=True)
class Round:
    """One target forward after prefill, and the drafting before it."""

    schedule: list[int] | None
    """Per drafting step that took place: 1 where the middle drafter was called; null where nothing is scheduled."""
    drafted: int
    """Draft nodes sent to the target, root not counted."""
    accepted: int
    """Draft tokens that became committed tokens, after cutting; the bonus token is not one."""
    forwards: list[Forward]
    """Every forward of the round, in order."""
    by_middle: int | None = None
    """Accepted draft tokens that the middle drafter was the first to propose; null where nobody counted."""

    @property
    def calls(self) -> int:
        """Times the middle drafter was called; without a schedule, its forwards."""
        if self.schedule is not None:
            return sum(self.schedule)
        return sum(forward.role == "middle" for forward in self.forwards)


@dataclass(frozen=True, slots=True)
class Spans:
    """Where the decode time went, in seconds; the parts add up to `decode_s`."""

    small_s: float
    """Look-up drafter: index upkeep and small steps."""
    middle_s: float
    """Neural drafter: its forwards, rescoring, reselecting and grafting."""
    scheduler_s: float
    """Decisions whether to call the middle drafter."""
    verify_s: float
    """Target forward, draws along the tree, and the commit of its KV rows."""
    other_s: float
    """Everything else: pruning, stop checks, bookkeeping."""

    @property
    def whole_s(self) -> float:
        """All phases together."""
        return sum((self.small_s, self.middle_s, self.scheduler_s, self.verify_s, self.other_s))


@dataclass(frozen=True, slots=True)
class Generation:
    """The outcome of one `Method.generate` call."""

    token_ids: list[int]
    """Committed tokens, the end-of-sequence token included where there is one."""
    finish: Finish
    """Why it ended."""
    rounds: list[Round] | None
    """Null for peers whose rounds are not ours to see."""
    prefill: list[Forward]
    """Forwards before the first round."""
    prefill_s: float
    """Seconds from the call to the end of prefill, a drafter's set-up included."""
    decode_s: float
    """Seconds from the end of prefill to the last commit."""
    spans: Spans | None
    """Null for peers, and where spans were switched off."""
    prefill_tokens: int = 0
    """Committed tokens that prefill already yielded; they leave the rate. Ours yields none."""
    decode_forwards: int | None = None
    """Peers only: target forwards counted after prefill, since their rounds are null."""
    edges: EdgeTally | None = None
    """What became of draft edges that the text reached, by what was believed of them; null where none was scored."""
    flips: list[tuple[int, int]] | None = None
    """Output position and own draw, wherever that was not the reference's token; null where none was followed."""

    @property
    def e2e_s(self) -> float:
        """Seconds from the call to the last commit."""
        return self.prefill_s + self.decode_s
