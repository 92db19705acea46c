"""Rates pooled over rows: acceptance, tokens and calls per round, shares of the decode time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from reports.row_summary import Tally, total_if_known

SPANS = ("small", "middle", "scheduler", "verify", "other")


def pooled_rates(rows: Sequence[Tally]) -> dict[str, Any]:
    """Return rates and shares of time, summed over the rows first, by the names of `SummaryLine`."""
    rounds = total_if_known([row.rounds for row in rows])
    accepted, by_middle = sum(row.accepted for row in rows), total_if_known([row.by_middle for row in rows])
    by_step = [sum(calls) for calls in zip_longest(*(row.calls_by_step for row in rows), fillvalue=0)]
    calls = sum(row.calls for row in rows)
    return {
        "accepted_per_round": accepted / rounds if rounds else None,
        "tokens_per_round": tokens_per_round(rows),
        "calls_per_round": calls / rounds if rounds else None,
        "tokens_per_call": sum(row.called_tokens for row in rows) / calls if calls else None,
        "call_rates": tuple(count / rounds for count in by_step) if rounds and by_step else None,
        "by_middle_pct": 100.0 * by_middle / accepted if accepted and by_middle is not None else None,
        **_shares(rows),
    }


def tokens_per_round(rows: Sequence[Tally]) -> float | None:
    """Return timed tokens per round, of external baselines per decode forward, summed over the rows first."""
    rounds = total_if_known([row.rounds for row in rows])
    steps = total_if_known([row.decode_forwards for row in rows]) if rounds is None else rounds
    return sum(row.timed_tokens for row in rows) / steps if steps else None


def _shares(rows: Sequence[Tally]) -> dict[str, float | None]:
    spans = [row.spans for row in rows if row.spans is not None]
    if not rows or len(spans) < len(rows):
        return {f"{part}_pct": None for part in SPANS}
    whole = sum(row.decode_s for row in rows)
    return {f"{part}_pct": 100.0 * sum(getattr(span, f"{part}_s") for span in spans) / whole for part in SPANS}
