"""Rows reduced to their sums: a run's rounds and tokens need not stay in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import zip_longest

from foundation.errors import UserError
from harness.records.rows import last_attempts
from harness.records.schema import EdgeTally, Row, Spans
from harness.records.verdicts import Verdict
from reports.gpu_use import GpuUse, gpu_use
from reports.repetition import ends_in_cycle
from reports.row_validation import BASELINE, NOT_IDENTICAL, contradiction

SPANS_TOLERANCE = 0.02
NO_RATE = "no timed token or no possible time"

_SHORTEST_S, _LONGEST_S = 1e-9, 1e9  # a tick of the clock, and thirty years


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One row, its rounds and forwards summed. Times in seconds; fields not documented here are `Row`'s."""

    key: str
    attempt: int
    pair: str
    task: str
    question_id: int
    turn: int
    method: str
    engine: str
    baseline: str
    seed: int
    repeat: int
    clock: str
    answered: bool
    """Whether the status is ok."""
    verdict: Verdict
    """A missing one counts as unverified."""
    marked: bool
    """Whether it was timed under a disturbance."""
    repetitive: bool
    """Whether the answer ends in a cycle; computed here, so that older rows are marked by the same rule."""
    committed: int
    timed_tokens: int
    decode_s: float
    """0 where there is none."""
    e2e_s: float | None
    """Null where missing, as under a profile without prefill times."""
    rounds: int | None
    """Number of rounds; null for external baselines."""
    tokens: int
    """Hash of the committed tokens."""
    accepted: int
    """Draft tokens that became committed tokens."""
    by_middle: int | None
    """Those of them that the middle drafter was the first to propose; null where a round lacks it."""
    calls: int
    """Calls of the middle drafter."""
    calls_by_step: tuple[int, ...]
    """For each drafting step, rounds that called the middle drafter there; empty without a schedule."""
    called_tokens: int
    """Tokens that the middle drafter evaluated."""
    decode_forwards: int | None
    spans: Spans | None
    flaw: str | None
    """Why an answered row gives no rate: it has none, or contradicts itself."""
    edges: EdgeTally | None
    gpu: GpuUse | None
    """GPU telemetry; null where none was watched."""
    equal_tokens: int | None
    """Leading tokens that are the baseline's; null where the row does not tell."""

    @property
    def is_baseline(self) -> bool:
        """Whether it is what its engine's other methods are compared with."""
        return self.method == self.baseline

    @property
    def is_rated(self) -> bool:
        """Whether it answered, with timed tokens, possible times, and no contradiction."""
        return self.answered and self.flaw is None


def tally(row: Row) -> Tally:
    """Return a row's tally."""
    rounds = row.rounds or []
    return Tally(
        key=row.key,
        attempt=row.attempt,
        pair=row.pair,
        task=row.task,
        question_id=row.question_id,
        turn=row.turn,
        method=row.method,
        engine=row.engine,
        baseline=row.baseline,
        seed=row.seed,
        repeat=row.repeat,
        clock=row.clock,
        answered=row.status == "ok",
        verdict=row.verdict or "unverified",
        marked=bool(row.marks),
        repetitive=ends_in_cycle(row.token_ids),
        committed=row.committed,
        timed_tokens=row.timed_tokens,
        decode_s=row.decode_s or 0.0,
        e2e_s=row.e2e_s,
        rounds=None if row.rounds is None else len(rounds),
        tokens=hash(tuple(row.token_ids)),
        accepted=sum(one.accepted for one in rounds),
        by_middle=total_if_known([one.by_middle for one in rounds]),
        calls=sum(one.calls for one in rounds),
        calls_by_step=tuple(map(sum, zip_longest(*(one.schedule for one in rounds if one.schedule), fillvalue=0))),
        called_tokens=sum(forward.tokens for one in rounds for forward in one.forwards if forward.role == "middle"),
        decode_forwards=row.decode_forwards,
        spans=row.spans,
        flaw=_flaw(row) if row.status == "ok" else None,
        edges=row.edges,
        gpu=gpu_use(row),
        equal_tokens=_count(row.telemetry.get("equal_tokens")),
    )


def _count(value: object) -> int | None:
    """Return a telemetry value if it is a number of tokens."""
    return value if isinstance(value, int) and value >= 0 else None


def total_if_known(numbers: Sequence[int | None]) -> int | None:
    """Return the sum, or None where a number is missing."""
    given = [number for number in numbers if number is not None]
    return sum(given) if len(given) == len(numbers) else None


def _flaw(row: Row) -> str | None:
    """Return why a row gives no rate. A run writes no row that contradicts itself; an edited file may hold one."""
    unknown_prefill = row.clock != "wall" and row.prefill_s is None and row.e2e_s is None  # the profile has none
    if not (row.timed_tokens > 0 and _is_time(row.decode_s) and (unknown_prefill or _is_time(row.e2e_s))):
        return NO_RATE
    assert row.decode_s is not None
    if row.committed != len(row.token_ids):
        return "committed is not the number of token_ids"
    whole = None if row.prefill_s is None else row.prefill_s + row.decode_s
    if whole is not None and row.e2e_s is not None and not math.isclose(whole, row.e2e_s, rel_tol=1e-6):
        return "prefill_s and decode_s do not add up to e2e_s"
    if row.rounds is not None:
        accepted = sum(one.accepted for one in row.rounds)
        if any(not 0 <= one.accepted <= one.drafted for one in row.rounds):
            return "a round accepted more than was drafted"
        if not accepted <= row.timed_tokens <= accepted + len(row.rounds):
            return "the rounds do not add up to the committed tokens"
    if not unknown_prefill and (row.prefill_s is None or row.prefill_s < 0.0):
        return "prefill_s is missing or negative"
    if row.spans is not None:
        parts = astuple(row.spans)
        if not (min(parts) >= 0.0 and math.isclose(sum(parts), row.decode_s, rel_tol=SPANS_TOLERANCE)):
            return "the spans do not add up to decode_s"
    return contradiction(row)


def _is_time(seconds: float | None) -> bool:
    return seconds is not None and _SHORTEST_S <= seconds < _LONGEST_S


def last_tallies(rows: Iterable[Row]) -> list[Tally]:
    """Return the tally of the last attempt of each key, in the order the keys first came."""
    tallies = last_attempts(map(tally, rows))
    baseline = {_block(row): row.tokens for row in tallies if row.method == BASELINE and row.answered}
    return [
        replace(row, flaw=NOT_IDENTICAL)
        if row.verdict == "identical" and row.tokens != baseline.get(_block(row), row.tokens)
        else row
        for row in tallies
    ]


def _block(row: Tally) -> tuple[object, ...]:
    return row.pair, row.clock, row.seed, row.repeat, row.task, row.question_id, row.turn


def read_tallies(rows: Iterable[Row], origin: str) -> list[Tally]:
    """Return the tallies of a run's rows, every attempt given; errors name their `origin`."""
    try:
        tallies = last_tallies(rows)
    except UserError as error:
        raise error if str(error).startswith(origin) else UserError(f"{origin}: {error}") from error
    if not tallies:
        raise UserError(f"{origin}: no rows yet; let the run finish its first block")
    return tallies
