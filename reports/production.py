"""Production engines beside the baseline: what the same weights reach in one that people serve with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from reports.pairing import BASELINE
from reports.row_summary import Tally
from reports.summary import SummaryLine

PRODUCTION = ("llama.cpp",)
"""Engines of rows that are production engines'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionLine:
    """A production engine's plain decoding beside the baseline, in the widest scope of a clock and pair."""

    clock: str
    """The rows' clock."""
    pair: str
    """Name of the model pair."""
    task: str
    """Label of the scope."""
    engine: str
    """Name of the engine."""
    method: str
    """Its plain decoding."""
    tokens_per_s: float
    """Its tokens a second, as in the tables."""
    baseline_pct: float
    """The baseline's tokens a second in percent of it."""
    equal_pct: float | None
    """Leading tokens that are the baseline's, in percent of all that it decoded; null where rows do not tell."""

    @property
    def text(self) -> str:
        """The line under the tables."""
        text = (
            f"Tokens a second of a production engine on the same weights ({self.pair}, {self.task}): {self.method} "
            f"{self.tokens_per_s:.1f}; the baseline reaches {self.baseline_pct:.0f}% of it."
        )
        if self.equal_pct is None:
            return text
        return f"{text} {self.equal_pct:.0f}% of its tokens come before the first that is not the baseline's."


def production_lines(lines: Sequence[SummaryLine], tallies: Iterable[Tally]) -> list[ProductionLine]:
    """Return a line for each production engine of each clock and pair.

    Args:
        lines: the report's summary.
        tallies: the rows that it sums up.
    """
    rows = list(tallies)
    found = []
    for (clock, pair), group in groupby(lines, key=lambda line: (line.clock, line.pair)):
        of_pair = list(group)
        widest = {line.method: line for line in of_pair if line.task == of_pair[-1].task}
        ours = widest[BASELINE].tokens_per_s if BASELINE in widest else None
        for line in widest.values():
            if line.engine not in PRODUCTION or not line.is_baseline or not line.tokens_per_s or not ours:
                continue
            own = [row for row in rows if (row.clock, row.pair, row.method) == (clock, pair, line.method)]
            found.append(
                ProductionLine(
                    clock=clock,
                    pair=pair,
                    task=line.task,
                    engine=line.engine,
                    method=line.method,
                    tokens_per_s=line.tokens_per_s,
                    baseline_pct=100.0 * ours / line.tokens_per_s,
                    equal_pct=_equal_pct([row for row in own if row.answered]),
                )
            )
    return found


def _equal_pct(rows: Sequence[Tally]) -> float | None:
    equal = [row.equal_tokens for row in rows if row.equal_tokens is not None]
    decoded = sum(row.committed for row in rows)
    return 100.0 * sum(equal) / decoded if decoded and len(equal) == len(rows) else None
