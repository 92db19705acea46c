"""The result of decoding one prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foundation.roles import Role
from methods.core.reliability import EdgeTally

Finish = Literal["eos", "length", "stop"]


@dataclass(frozen=True, slots=True)
class Forward:
    """One forward pass of a neural model, or one step of a look-up drafter."""

    role: Role
    """Role of the model that ran it."""
    step: int | None
    """Drafting step, from 1; null in verification and prefill."""
    tokens: int
    """Tokens in the forward (tree nodes; for look-up, frontier nodes)."""
    context: int
    """Tokens already in the cache, to the left of the forward."""


@dataclass(frozen=True, slots=True)
class Round:
    """One target forward after prefill, and the drafting before it."""

    schedule: list[int] | None
    """Per drafting step taken, 1 if the middle drafter was called; null if nothing is scheduled."""
    drafted: int
    """Draft nodes sent to the target, root not counted."""
    accepted: int
    """Draft tokens committed, after cutting; the bonus token is not one."""
    forwards: list[Forward]
    """Every forward of the round, in order."""
    by_middle: int | None = None
    """Accepted draft tokens first proposed by the middle drafter; null if not counted."""

    @property
    def calls(self) -> int:
        """Middle calls; without a schedule, the middle's forwards."""
        if self.schedule is not None:
            return sum(self.schedule)
        return sum(forward.role == "middle" for forward in self.forwards)


@dataclass(frozen=True, slots=True)
class Spans:
    """Decode time by phase, in seconds; the parts add up to `decode_s`."""

    small_s: float
    """Look-up drafter: index upkeep and small steps."""
    middle_s: float
    """Neural drafter: its forwards, rescoring, reselecting and grafting."""
    scheduler_s: float
    """Scheduler decisions."""
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
    """The result of one `Method.generate` call."""

    token_ids: list[int]
    """Committed tokens, the end-of-sequence token included if there is one."""
    finish: Finish
    """Why it ended."""
    rounds: list[Round] | None
    """Null for external baselines, which have no per-round data."""
    prefill: list[Forward]
    """Forwards before the first round."""
    prefill_s: float
    """Seconds from the call to the end of prefill, drafter set-up included."""
    decode_s: float
    """Seconds from the end of prefill to the last commit."""
    spans: Spans | None
    """Null for external baselines, and if spans were switched off."""
    prefill_tokens: int = 0
    """Committed tokens that prefill already yielded, excluded from tokens/s; 0 for our methods."""
    decode_forwards: int | None = None
    """External baselines only: target forwards after prefill."""
    edges: EdgeTally | None = None
    """Outcomes of draft edges by their scored probability; null if none was scored."""
    flips: list[tuple[int, int]] | None = None
    """Output position and own draw wherever it differs from the reference's token; null without a reference."""

    @property
    def e2e_s(self) -> float:
        """Seconds from the call to the last commit."""
        return self.prefill_s + self.decode_s
