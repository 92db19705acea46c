"""A run's report as text: terminal, Markdown, LaTeX, CSV or JSON, all views of the same lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from tabulate import SEPARATING_LINE, tabulate

from foundation.errors import UserError
from foundation.gc_control import paused_collection
from foundation.plain_text import csv_text, json_text, markdown_text, visible
from harness.records.rows import read_rows
from harness.records.schema import Row
from reports.columns import Table, alignment
from reports.contrasts import Contrast, contrast_methods
from reports.gpu import GPU_LEGEND, GpuLine, gpu_blocks, gpu_lines
from reports.latex import latex_paragraph, latex_table
from reports.production import ProductionLine, production_lines
from reports.ranks import rank_methods
from reports.reliability import RELIABILITY_LEGEND, ReliabilityLine, reliability_blocks, reliability_lines
from reports.row_summary import read_tallies
from reports.run_facts import RunFacts, read_facts
from reports.summary import SummaryLine, comparisons, summarise
from reports.table_blocks import LEGEND, WIDE_LEGEND, blocks, ranking_text

SCHEMA_VERSION = 1
METHOD_WIDTH = 20
TEXT_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report, for every format."""

    lines: Sequence[SummaryLine]
    contrasts: Sequence[Contrast]
    gpus: Sequence[GpuLine]
    reliability: Sequence[ReliabilityLine]
    production: Sequence[ProductionLine]
    facts: RunFacts

    def blocks(self, *, wide: bool = False) -> Iterator[Table]:
        """Yield its tables."""
        yield from blocks(self.lines, self.contrasts, wide=wide)
        yield from reliability_blocks(self.reliability)
        yield from gpu_blocks(self.gpus)

    def remarks(self) -> Iterator[str]:
        """Yield the lines under its tables."""
        yield from (line.text for line in self.production)
        yield from map(ranking_text, rank_methods(self.lines))


def render_report(run: Path, format: str) -> str:
    """Return the report of a run in a format; see `render`.

    Args:
        run: the folder of a run, or its `rows.jsonl`. A `manifest.json` beside it adds labels.
        format: `table`, `markdown`, `latex`, `csv` or `json`.

    Raises:
        UserError: an unknown format, no rows, no answered row, or no baseline.
    """
    _check_format(format)
    return render(build_report(read_rows(run), read_facts(run), str(run)), format)


def build_report(rows: Iterable[Row], facts: RunFacts, origin: str) -> Report:
    """Return the content of a report.

    Args:
        rows: of one run, every attempt.
        facts: what its manifest adds.
        origin: what an error names.

    Raises:
        UserError: no rows, no answered row, or no baseline.
    """
    if facts.correctness_only is not None:
        raise UserError(
            f"{origin}: pair {facts.correctness_only} is for correctness alone, its speed means nothing; "
            "run another pair"
        )
    with paused_collection():
        tallies = read_tallies(rows, origin)
        if facts.modelled is not None and any(row.clock == "wall" for row in tallies):
            raise UserError(
                f"{origin}: rows say that their times were measured, but the manifest is of clock {facts.modelled}; "
                "restore the files of one run"
            )
        try:
            compared = comparisons(tallies)
            lines = summarise(tallies, facts, compared)
        except UserError as error:
            raise UserError(f"{origin}: {error}") from error
        contrasts = contrast_methods(compared, facts)
        gpus = gpu_lines(tallies, compared, facts)
        reliability = reliability_lines(tallies, facts)
        production = production_lines(lines, tallies)
    return Report(lines, contrasts, gpus, reliability, production, facts)


def render(report: Report, format: str) -> str:
    """Return a report in a format, without a final newline.

    Raises:
        UserError: an unknown format.
    """
    _check_format(format)
    return FORMATS[format](report)


def _check_format(format: str) -> None:
    if format not in FORMATS:
        raise UserError(f"--format {format}: unknown; choose one of {', '.join(FORMATS)}")


def to_table(report: Report) -> str:
    """Return plain tables for a terminal, at most about 120 columns wide."""
    tables = report.blocks()
    return _sections(
        "\n".join(map(visible, report.facts.sources)),
        *("\n".join([visible(one.title), terminal_grid(one.body, one.headers), *_folded(one.notes)]) for one in tables),
        *_folded(report.remarks()),
        "\n".join(LEGEND),
    )


def _folded(texts: Iterable[str]) -> list[str]:
    return [fill(visible(text), TEXT_WIDTH) for text in texts]


def to_markdown(report: Report) -> str:
    """Return GitHub tables."""
    return _sections(
        "\n".join(f"- {markdown_text(source)}" for source in report.facts.sources),
        *(
            _sections(
                f"### {markdown_text(one.title)}", github_grid(one.body, one.headers), *map(markdown_text, one.notes)
            )
            for one in report.blocks()
        ),
        *map(markdown_text, report.remarks()),
        "\n".join(f"- {text}" for text in LEGEND),
    )


def to_latex(report: Report) -> str:
    """Return LaTeX tables for the package booktabs; the legend stands in comments."""
    return _sections(
        "\n".join(f"% {visible(text)}" for text in (*report.facts.sources, *LEGEND, *WIDE_LEGEND)),
        *(latex_table(block) for block in report.blocks(wide=True)),
        *map(latex_paragraph, report.remarks()),
    )


def to_csv(report: Report) -> str:
    """Return one flat table, one line a clock, pair, task and method, without factors or further tables."""
    text = io.StringIO()
    lines = [_harmless({**line.flat(), **_cells(line)}) for line in report.lines]
    columns = [name for name in lines[0] if name != "factors"]
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")


def _harmless(line: dict[str, Any]) -> dict[str, Any]:
    return {name: csv_text(value) if isinstance(value, str) else value for name, value in line.items()}


def _cells(line: SummaryLine) -> dict[str, str]:
    """Return the fields of a line that hold several values, each as one cell."""
    rates = "" if line.call_rates is None else " ".join(f"{rate:.4f}" for rate in line.call_rates)
    return {"notes": "; ".join(line.notes), "call_rates": rates}


def to_json(report: Report) -> str:
    """Return the lines as strict JSON; missing values are null."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "clocks": {line.clock: line.timing for line in report.lines},
        "sources": report.facts.sources,
        "lines": [line.flat() for line in report.lines],
        "contrasts": [asdict(contrast) for contrast in report.contrasts],
        "reliability": [asdict(line) for line in report.reliability],
        "gpus": [asdict(line) for line in report.gpus],
        "production": [asdict(line) for line in report.production],
        "rankings": [asdict(ranking) for ranking in rank_methods(report.lines)],
        "legend": [
            *(*LEGEND, *WIDE_LEGEND),
            *([RELIABILITY_LEGEND] if report.reliability else []),
            *([GPU_LEGEND] if report.gpus else []),
        ],
    }
    return json_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


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
    """Return a GitHub table whose cells are text."""
    cells = [[markdown_text(" ".join(cell.split())) for cell in line] for line in body]
    return tabulate(cells, headers, "github", colalign=alignment(headers), disable_numparse=True)


def terminal_grid(body: list[list[str]], headers: Sequence[str]) -> str:
    """Return a plain table whose first column, the method, is folded."""
    # Headers as a row of their own: as headers, tabulate would pad each by two columns, past the screen's edge.
    rows = [list(headers), SEPARATING_LINE, *([fill(visible(name), METHOD_WIDTH), *cells] for name, *cells in body)]
    return tabulate(rows, tablefmt="simple", colalign=alignment(headers), disable_numparse=True)
