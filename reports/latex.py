"""Tables as LaTeX, for the package booktabs."""

from __future__ import annotations

from tabulate import tabulate

from foundation.plain_text import visible
from reports.columns import Table, alignment

_TEXT = {
    "\\": r"\textbackslash{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "~": r"$\sim$",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "τ": r"$\tau$",
    "χ": r"$\chi$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "÷": r"$\div$",
    "·": r"$\cdot$",
    "°": r"$^\circ$",
    "–": "--",
    "[": "{[}",  # at the start of a line it would be an argument of the line break before it
}


def latex_text(text: str) -> str:
    """Return a text escaped for LaTeX."""
    return "".join(_TEXT.get(sign, sign) for sign in visible(text))


def latex_table(block: Table) -> str:
    """Return a table environment with caption, numbers to the right, notes below."""
    grid = tabulate(
        [[latex_text(cell) for cell in cells] for cells in block.body],
        [latex_text(header) for header in block.headers],
        "latex_raw",
        disable_numparse=True,
        colalign=alignment(block.headers),
    )
    rules = iter((r"\toprule", r"\midrule", r"\bottomrule"))
    lines = [next(rules) if line == r"\hline" else line for line in grid.split("\n")]
    notes = [rf"\par\footnotesize {latex_text(note)}" for note in block.notes]
    caption = rf"\caption{{{latex_text(block.title)}}}"
    return "\n".join([r"\begin{table}", r"\centering\small", caption, *lines, *notes, r"\end{table}"])


def latex_paragraph(text: str) -> str:
    """Return a paragraph of text."""
    return rf"\noindent {latex_text(text)}\par"
