"""The gate's outcome as text: terminal, Markdown for a pull request, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from textwrap import fill

from foundation.errors import UserError
from foundation.plain_text import json_text, markdown_text, visible
from reports.columns import EMPTY, Column, Table, compared, table, value, with_interval
from reports.compare import Comparison
from reports.gate import GateLine
from reports.repetition import CRITERION
from reports.tables import github_grid, terminal_grid

SCHEMA_VERSION = 1
VERDICT_WIDTH = 28
TEXT_WIDTH = 120
COLUMNS: tuple[Column[GateLine], ...] = (
    Column("method", lambda line: line.method),
    value("BASE", "speedup_base", ".2f"),
    value("HEAD", "speedup_head", ".2f"),
    Column("ratio [bounds]", lambda line: with_interval(line.ratio, line.low, line.high, ".3f")),
    value("τ BASE", "tokens_per_round_base", ".2f"),
    value("τ HEAD", "tokens_per_round_head", ".2f"),
    value("raw", "raw_ratio", ".3f"),
    Column("mark", lambda line: str(line.marked) if line.timing == "measured" else EMPTY),
    Column("n", lambda line: compared(line.n, line.dropped)),
    Column("verdict", lambda line: f"{line.verdict}: {line.reason}" if line.reason else line.verdict),
)
PASS = "PASS: every method is inside the margin."
INCONCLUSIVE = "INCONCLUSIVE: too few prompts to tell whether every method is inside the margin."
FAIL = "FAIL: not every method is inside the margin."
NOTHING = "NOTHING COMPARABLE."
LEGEND = (
    "BASE, HEAD: speedup over the baseline of the same run, geometric mean over the prompts compared.",
    "ratio: of the two, HEAD ÷ BASE, paired by prompt; below 1 HEAD is slower. bounds: one-sided 95% each, stratified "
    "bootstrap; replayed times have no noise and need none.",
    "verdict: ok where the lower bound (replayed: the ratio, and that of τ) is inside the margin, regression where the "
    "upper one is not either, else inconclusive.",
    "τ: committed tokens per round. raw: time per token, BASE ÷ HEAD: context alone, the machines' drift is in it.",
    "mark: rows timed under a disturbance, the baseline's included. n: prompts compared (/ asked, where some are left "
    "out).",
)


def render_comparison(comparison: Comparison, format: str) -> str:
    """Return a comparison as `table`, `markdown` or `json`, without a final newline.

    Raises:
        UserError: an unknown format.
    """
    if format not in FORMATS:
        raise UserError(f"--format {format}: unknown; choose one of {', '.join(FORMATS)}")
    return FORMATS[format](comparison)


def _table(comparison: Comparison) -> str:
    parts = [_conclusion(comparison)]
    parts += ["\n".join(f"- {visible(reason)}" for reason in comparison.obstacles)]
    for one in _tables(comparison):
        body = [[*cells, fill(visible(verdict), VERDICT_WIDTH)] for *cells, verdict in one.body]
        parts.append(f"{visible(one.title)}\n{terminal_grid(body, one.headers)}")
    parts += [fill(visible(text), TEXT_WIDTH) for text in _context(comparison)]
    if comparison.lines:
        parts.append("\n".join(fill(text, TEXT_WIDTH) for text in LEGEND))
    return "\n\n".join(part for part in parts if part)


def _markdown(comparison: Comparison) -> str:
    parts = [f"### treegraft compare: {_conclusion(comparison)}"]
    parts += ["\n".join(f"- {markdown_text(reason)}" for reason in comparison.obstacles)]
    parts += [
        f"Times {markdown_text(one.title)}.\n\n{github_grid(one.body, one.headers)}" for one in _tables(comparison)
    ]
    parts += map(markdown_text, _context(comparison))
    if comparison.lines:
        legend = "\n".join(f"- {text}" for text in LEGEND)
        parts.append(f"<details><summary>What the columns mean</summary>\n\n{legend}\n\n</details>")
    return "\n\n".join(part for part in parts if part)


_JSON_KEYS = {"not_compared": "unjudged"}
"""Names of JSON that are older than those of the code."""


def _json(comparison: Comparison) -> str:
    content = {
        "schema_version": SCHEMA_VERSION,
        "exit_code": comparison.exit_code,
        "conclusion": _conclusion(comparison),
        **{_JSON_KEYS.get(key, key): value for key, value in asdict(comparison).items()},
        "legend": list(LEGEND),
    }
    return json_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


FORMATS: dict[str, Callable[[Comparison], str]] = {"table": _table, "markdown": _markdown, "json": _json}


def _conclusion(comparison: Comparison) -> str:
    margin = f"(mode {comparison.mode}, margin {100 * comparison.margin:g}%)"
    if comparison.exit_code == 1:
        untold = all(line.verdict != "regression" for line in comparison.lines) and not comparison.not_compared
        return f"{INCONCLUSIVE if untold else FAIL} {margin}"
    return f"{NOTHING if comparison.obstacles else PASS} {margin}"


def _tables(comparison: Comparison) -> list[Table]:
    """Return a table for each origin of times, its title."""
    groups: dict[str, list[GateLine]] = {}
    for line in comparison.lines:
        groups.setdefault(line.timing, []).append(line)
    return [table(timing, COLUMNS, lines) for timing, lines in groups.items()]


def _context(comparison: Comparison) -> list[str]:
    loops = [f"{line.method} {line.repetition}" for line in comparison.lines if line.repetition]
    parts = {
        "Not compared, for want of a prompt that both runs answered": comparison.not_compared,
        "Left out": comparison.left_out,
        "Also differs": comparison.changes,
        "Embedded questions": comparison.embedded,
        f"Answers of both runs that {CRITERION} (mark repetition)": loops,
        "Times": comparison.modelled,
    }
    return [f"{title}: {'; '.join(texts)}." for title, texts in parts.items() if texts]
