"""A run's report as text: terminal, Markdown, LaTeX, CSV or JSON, all views of the same lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from textwrap import fill

from tabulate import SEPARATING_LINE, tabulate

from harness.errors import UserError
from reports.cells import LEGEND, WIDE_LEGEND, Block, blocks, ranking_text
from reports.contrasts import Contrast, contrast_methods
from reports.gpu import GPU_LEGEND, GpuLine, gpu_blocks, gpu_lines
from reports.latex import latex_paragraph, latex_table
from reports.lines import Line, comparisons, summarise
from reports.manifest import RunFacts, read_facts
from reports.ranks import rank_methods
from reports.reliability import RELIABILITY_LEGEND, ReliabilityLine, reliability_blocks, reliability_lines
from reports.tally import no_garbage_collection, read_tallies

SCHEMA_VERSION = 1
METHOD_WIDTH = 20
TEXT_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Report:
    """All that a report holds, whatever its format."""

    lines: Sequence[Line]
    contrasts: Sequence[Contrast]
    gpus: Sequence[GpuLine]
    reliability: Sequence[ReliabilityLine]
    facts: RunFacts

    def blocks(self, *, wide: bool = False) -> Iterator[Block]:
        """Yield its tables."""
        yield from blocks(self.lines, self.contrasts, wide=wide)
        yield from reliability_blocks(self.reliability)
        yield from gpu_blocks(self.gpus)


def render_report(run: Path, format: str) -> str:
    """Return the report of a run in a format; it ends without a newline of its own.

    Args:
        run: the folder of a run, or its `rows.jsonl`. A `manifest.json` beside it adds labels.
        format: `table`, `markdown`, `latex`, `csv` or `json`.

    Raises:
        UserError: an unknown format, no rows, no answered row, or no baseline.
    """
    if format not in FORMATS:
        raise UserError(f"--format {format}: unknown; choose one of {', '.join(FORMATS)}")
    facts = read_facts(run)
    if facts.correctness_only is not None:
        raise UserError(
            f"{run}: pair {facts.correctness_only} is for correctness alone, its speed means nothing; run another pair"
        )
    with no_garbage_collection():
        tallies = read_tallies(run)
        if facts.modelled is not None and any(row.clock == "wall" for row in tallies):
            raise UserError(
                f"{run}: rows say that their times were measured, but the manifest is of clock {facts.modelled}; "
                "restore the files of one run"
            )
        try:
            compared = comparisons(tallies)
            lines = summarise(tallies, facts, compared)
        except UserError as error:
            raise UserError(f"{run}: {error}") from error
        contrasts = contrast_methods(compared, facts)
        gpus = gpu_lines(tallies, compared, facts)
        reliability = reliability_lines(tallies, facts)
    return FORMATS[format](Report(lines, contrasts, gpus, reliability, facts))


def to_table(found: Report) -> str:
    """Return plain tables for a terminal, at most about 120 columns wide."""
    return _sections(
        "\n".join(found.facts.sources),
        *(
            "\n".join(
                [
                    block.title,
                    terminal_grid(block.body, block.headers),
                    *(fill(note, TEXT_WIDTH) for note in block.notes),
                ]
            )
            for block in found.blocks()
        ),
        *(fill(ranking_text(ranking), TEXT_WIDTH) for ranking in rank_methods(found.lines)),
        "\n".join(LEGEND),
    )


def to_markdown(found: Report) -> str:
    """Return GitHub tables."""
    return _sections(
        "\n".join(f"- {source}" for source in found.facts.sources),
        *(
            _sections(f"### {block.title}", github_grid(block.body, block.headers), *block.notes)
            for block in found.blocks()
        ),
        *(ranking_text(ranking) for ranking in rank_methods(found.lines)),
        "\n".join(f"- {text}" for text in LEGEND),
    )


def to_latex(found: Report) -> str:
    """Return LaTeX tables for the package booktabs; the legend stands in comments."""
    return _sections(
        "\n".join(f"% {text}" for text in (*found.facts.sources, *LEGEND, *WIDE_LEGEND)),
        *(latex_table(block) for block in found.blocks(wide=True)),
        *(latex_paragraph(ranking_text(ranking)) for ranking in rank_methods(found.lines)),
    )


def to_csv(found: Report) -> str:
    """Return one flat table, one line a clock, pair, task and method, without factors or further tables."""
    text = io.StringIO()
    columns = [field.name for field in fields(Line) if field.name != "factors"]
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({**asdict(line), **_flat(line)} for line in found.lines)
    return text.getvalue().rstrip("\n")


def _flat(line: Line) -> dict[str, str]:
    """Return the fields of a line that hold several values, each as one cell."""
    rates = "" if line.call_rates is None else " ".join(f"{rate:.4f}" for rate in line.call_rates)
    return {"notes": "; ".join(line.notes), "call_rates": rates}


def to_json(found: Report) -> str:
    """Return the lines as strict JSON; missing values are null."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "clocks": {line.clock: line.timing for line in found.lines},
        "sources": found.facts.sources,
        "lines": [asdict(line) for line in found.lines],
        "contrasts": [asdict(contrast) for contrast in found.contrasts],
        "reliability": [asdict(line) for line in found.reliability],
        "gpus": [asdict(line) for line in found.gpus],
        "rankings": [asdict(ranking) for ranking in rank_methods(found.lines)],
        "legend": [
            *(*LEGEND, *WIDE_LEGEND),
            *([RELIABILITY_LEGEND] if found.reliability else []),
            *([GPU_LEGEND] if found.gpus else []),
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


FORMATS: dict[str, Callable[[Report], str]] = {
    "table": to_table,
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}


def _sections(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def github_grid(body: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    """Return a GitHub table, whatever stands in its cells."""
    cells = [[" ".join(cell.split()).replace("|", r"\|") for cell in line] for line in body]
    return tabulate(cells, headers, "github", colalign=alignment(headers), disable_numparse=True)


def terminal_grid(body: list[list[str]], headers: Sequence[str]) -> str:
    """Return a plain table whose first column, the method, is folded."""
    # Headers as a row of their own: as headers, tabulate would pad each by two columns, past the screen's edge.
    rows = [list(headers), SEPARATING_LINE, *([fill(name, METHOD_WIDTH), *cells] for name, *cells in body)]
    return tabulate(rows, tablefmt="simple", colalign=alignment(headers), disable_numparse=True)


def alignment(headers: Sequence[str]) -> tuple[str, ...]:
    """Return the columns' sides: names to the left, numbers to the right."""
    return ("left", *["right"] * (len(headers) - 1))
