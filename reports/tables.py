"""A run's report as text: terminal, Markdown, CSV or JSON, all views of the same lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from pathlib import Path
from textwrap import fill

from tabulate import SEPARATING_LINE, tabulate

from harness.errors import UserError
from harness.results import last_attempts, read_rows
from reports.lines import SPANS, Line, summarise
from reports.manifest import RunFacts, read_facts
from reports.pairing import BASELINE

SCHEMA_VERSION = 1
VERDICT_SIGNS = {"identical": "=", "tie": "~", "numeric": "≈", "different": "≠", "unverified": "?"}
METHOD_WIDTH = 20
EMPTY = "–"
HEADERS = (
    "method",
    "speedup [95% CI]",
    "total",
    "e2e",
    "A",
    "τ",
    "tok/s",
    "p (Holm)",
    "verdicts",
    "fail",
    "mark",
    "n",
)
SHARE_HEADERS = ("method", *(f"{part} %" for part in SPANS), "calls", "tokens a call")
LEGEND = (
    f"speedup: geometric mean over prompts of decode time per committed token, {BASELINE} ÷ method; "
    "95% paired bootstrap.",
    "total: the same of times and tokens summed first. e2e: the same as speedup, prefill included.",
    "A: accepted draft tokens per round. τ: committed tokens per round. "
    "tok/s: median over prompts, of the run's machine.",
    "p: paired sign-flip test; in brackets Holm-adjusted over all lines of the same clock.",
    "verdicts: " + ", ".join(f"{sign} {name}" for name, sign in VERDICT_SIGNS.items()) + "; ref: the baseline.",
    "fail: failed rows. mark: rows timed under a disturbance. n: prompts compared.",
    "small, middle: drafting. verify: target forward, draws, commit. Outside peers show no rounds: τ is per forward.",
    "calls: of the middle drafter, per round. tokens a call: what it evaluated each time.",
)


def render_report(run: Path, format: str) -> str:
    """Return the report of a run in a format; it ends without a newline of its own.

    Args:
        run: the folder of a run, or its `rows.jsonl`. A `manifest.json` beside it adds labels.
        format: `table`, `markdown`, `csv` or `json`.

    Raises:
        UserError: an unknown format, no rows, no answered row, or no baseline.
    """
    if format not in FORMATS:
        raise UserError(f"--format {format}: unknown; choose one of {', '.join(FORMATS)}")
    rows = last_attempts(read_rows(run))
    if not rows:
        raise UserError(f"{run}: no rows yet; let the run finish its first block")
    facts = read_facts(run)
    if facts.correctness_only is not None:
        raise UserError(
            f"{run}: pair {facts.correctness_only} is for correctness alone, its speed means nothing; run another pair"
        )
    try:
        lines = summarise(rows, facts)
    except UserError as error:
        raise UserError(f"{run}: {error}") from error
    return FORMATS[format](lines, facts)


def to_table(lines: Sequence[Line], facts: RunFacts) -> str:
    """Return plain tables for a terminal, at most about 120 columns wide."""
    return "\n\n".join(
        part
        for part in (
            "\n".join(facts.sources),
            *(f"{title}\n{_grid(body, headers, 'simple')}{notes}" for title, headers, body, notes in _blocks(lines)),
            "\n".join(LEGEND),
        )
        if part
    )


def to_markdown(lines: Sequence[Line], facts: RunFacts) -> str:
    """Return GitHub tables."""
    return "\n\n".join(
        part
        for part in (
            "\n".join(f"- {source}" for source in facts.sources),
            *(
                f"### {title}\n\n{_grid(body, headers, 'github')}{notes.replace(chr(10), chr(10) * 2)}"
                for title, headers, body, notes in _blocks(lines)
            ),
            "\n".join(f"- {text}" for text in LEGEND),
        )
        if part
    )


def to_csv(lines: Sequence[Line], facts: RunFacts) -> str:
    """Return one flat table, one line a clock, pair, task and method; missing values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Line)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**asdict(line), "notes": "; ".join(line.notes)} for line in lines)
    return text.getvalue().rstrip("\n")


def to_json(lines: Sequence[Line], facts: RunFacts) -> str:
    """Return the lines as strict JSON; missing values are null."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "clocks": {line.clock: line.timing for line in lines},
        "lines": [asdict(line) for line in lines],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


FORMATS: dict[str, Callable[[Sequence[Line], RunFacts], str]] = {
    "table": to_table,
    "markdown": to_markdown,
    "csv": to_csv,
    "json": to_json,
}


Block = tuple[str, Sequence[str], list[list[str]], str]
"""Title, headers, cells and notes of one table."""


def _blocks(lines: Sequence[Line]) -> Iterable[Block]:
    for (timing, pair), of_pair in groupby(lines, key=lambda line: (line.timing, line.pair)):
        scopes = [list(block) for _, block in groupby(of_pair, key=lambda line: line.task)]
        titles = [f"{block[0].task} · pair {pair} · {timing}" for block in scopes]
        for title, block in zip(titles, scopes, strict=True):
            yield title, HEADERS, [_cells(line) for line in block], _notes(block)
        shares = [_share_cells(line) for line in scopes[-1]]
        yield f"Where decode time went: {titles[-1]}", SHARE_HEADERS, shares, ""


def _grid(body: list[list[str]], headers: Sequence[str], style: str) -> str:
    align = ("left", *["right"] * (len(headers) - 1))
    if style == "github":
        return tabulate(body, headers, tablefmt=style, colalign=align, disable_numparse=True)
    # Headers as a row of their own: as headers, tabulate would pad each by two columns, past the screen's edge.
    rows = [list(headers), SEPARATING_LINE, *([fill(name, METHOD_WIDTH), *cells] for name, *cells in body)]
    return tabulate(rows, tablefmt=style, colalign=align, disable_numparse=True)


def _cells(line: Line) -> list[str]:
    return [
        line.method,
        _speedup(line),
        _number(line.total_ratio, ".2f"),
        _number(line.e2e_ratio, ".2f"),
        _number(line.accepted_per_round, ".2f"),
        _number(line.tokens_per_round, ".2f"),
        _number(line.tokens_per_s, ".1f"),
        EMPTY if line.p is None else f"{_p(line.p)} ({_p(line.p_holm)})",
        _verdicts(line),
        str(line.failed),
        str(line.marked),
        str(line.n),
    ]


def _share_cells(line: Line) -> list[str]:
    shares = (line.small_pct, line.middle_pct, line.scheduler_pct, line.verify_pct, line.other_pct)
    calls = (_number(line.calls_per_round, ".2f"), _number(line.tokens_per_call, ".1f"))
    return [line.method, *(_number(share, ".1f") for share in shares), *calls]


def _speedup(line: Line) -> str:
    value = _number(line.speedup, ".2f")
    return value if line.ci_low is None else f"{value} [{line.ci_low:.2f}, {line.ci_high:.2f}]"


def _number(value: float | None, spec: str) -> str:
    return EMPTY if value is None else format(value, spec)


def _p(value: float | None) -> str:
    if value is None:
        return EMPTY
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def _verdicts(line: Line) -> str:
    if line.method == BASELINE:
        return "ref"
    counts = ((getattr(line, name), sign) for name, sign in VERDICT_SIGNS.items())
    return " ".join(f"{count}{sign}" for count, sign in counts if count) or EMPTY


def _notes(block: Sequence[Line]) -> str:
    """One line a note, naming the methods it holds for."""
    methods: dict[str, list[str]] = {}
    for line in block:
        for note in line.notes:
            methods.setdefault(note, []).append(line.method)
    return "".join(f"\nNote: {note} ({', '.join(names)})" for note, names in methods.items())
