"""Rows reduced to what reports count: a run's rounds and tokens need not stay in memory."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from itertools import zip_longest
from pathlib import Path

from harness.errors import UserError
from harness.results import Row, Spans, Verdict, last_attempts, read_rows
from methods.core.reliability import EdgeTally
from reports.contradictions import BASELINE, NOT_IDENTICAL, contradiction
from reports.gpu_use import GpuUse, gpu_use

Retime = Callable[[Row], Row]
"""Gives a row the times and the clock of another source; a report's label derives from that clock."""

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
    seed: int
    repeat: int
    clock: str
    answered: bool
    """Whether the status is ok."""
    verdict: Verdict
    """A missing one counts as unverified."""
    marked: bool
    """Whether it was timed under a disturbance."""
    committed: int
    timed_tokens: int
    decode_s: float
    """0 where there is none."""
    e2e_s: float | None
    """Null where there is none, as under a profile that knows no prefill."""
    rounds: int | None
    """Number of rounds; null for outside peers."""
    tokens: int
    """Hash of the committed tokens."""
    accepted: int
    """Draft tokens that became committed tokens."""
    by_middle: int | None
    """Those of them that the middle drafter was the first to propose; null where a round does not tell."""
    calls: int
    """Times the middle drafter was called."""
    calls_by_step: tuple[int, ...]
    """For each drafting step, rounds in which it was called there; empty where nobody schedules."""
    called_tokens: int
    """Tokens that the middle drafter evaluated."""
    decode_forwards: int | None
    spans: Spans | None
    flaw: str | None
    """Why an answered row gives no rate: it has none, or contradicts itself."""
    edges: EdgeTally | None
    gpu: GpuUse | None
    """What the GPUs did meanwhile; null where none was watched."""

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
        seed=row.seed,
        repeat=row.repeat,
        clock=row.clock,
        answered=row.status == "ok",
        verdict=row.verdict or "unverified",
        marked=bool(row.marks),
        committed=row.committed,
        timed_tokens=row.timed_tokens,
        decode_s=row.decode_s or 0.0,
        e2e_s=row.e2e_s,
        rounds=None if row.rounds is None else len(rounds),
        tokens=hash(tuple(row.token_ids)),
        accepted=sum(one.accepted for one in rounds),
        by_middle=_sum([one.by_middle for one in rounds]),
        calls=sum(one.calls for one in rounds),
        calls_by_step=tuple(map(sum, zip_longest(*(one.schedule for one in rounds if one.schedule), fillvalue=0))),
        called_tokens=sum(forward.tokens for one in rounds for forward in one.forwards if forward.role == "middle"),
        decode_forwards=row.decode_forwards,
        spans=row.spans,
        flaw=_flaw(row) if row.status == "ok" else None,
        edges=row.edges,
        gpu=gpu_use(row),
    )


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _flaw(row: Row) -> str | None:
    """Return why a row gives no rate. A run writes no row that contradicts itself; an edited file may hold one."""
    unknown_prefill = row.clock != "wall" and row.prefill_s is None and row.e2e_s is None  # a profile may not tell
    if not (row.timed_tokens > 0 and _is_time(row.decode_s) and (unknown_prefill or _is_time(row.e2e_s))):
        return NO_RATE
    assert row.decode_s is not None
    if row.committed != len(row.token_ids):
        return "committed is not the number of token_ids"
    if (
        row.prefill_s is not None
        and row.e2e_s is not None
        and not math.isclose(row.prefill_s + row.decode_s, row.e2e_s, rel_tol=1e-6)
    ):
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
    """Return the tally of the last attempt of each key, in the order the keys first came.

    Raises:
        UserError: an attempt stands twice, which no run writes: files were joined or edited.
    """
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


def read_tallies(run: Path, retime: Retime | None = None) -> list[Tally]:
    """Return the tallies of a run folder or a `rows.jsonl` file, the last attempt of each key.

    Args:
        run: where the rows are.
        retime: gives each row other times, for example a hardware profile's; null keeps the row's own.

    Raises:
        UserError: no rows, a line that is not one, or an attempt that stands twice; the line names the file.
    """
    rows = read_rows(run)
    try:
        tallies = last_tallies(rows if retime is None else map(retime, rows))
    except UserError as error:
        raise error if str(error).startswith(str(run)) else UserError(f"{run}: {error}") from error
    if not tallies:
        raise UserError(f"{run}: no rows yet; let the run finish its first block")
    return tallies


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Spare the search for cycles: rows hold none, and it takes two thirds of the time of reading many."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
