"""A distilled drafter's card in Markdown, for people."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from tabulate import tabulate

from foundation.plain_text import markdown_text
from harness.models.distilled import Card


def model_card(card: Card) -> str:
    """Return the card as Markdown: what the drafter is, how to use it, its measurements, how it was made."""
    template = files("harness.distil").joinpath("model_card.md").read_text(encoding="utf-8")
    return template.format(
        target=card.target.model_dump(),
        depth=len(card.layers),
        tokens=card.vocabulary or "all",
        sha256=card.sha256,
        licence=card.licence,
        questions=_listed(card.figures["questions"]),
        agreement=_agreement(card.figures["agreement"]),
        latency=_latency(card.figures["latency"]),
        text=_listed(card.text),
        recipe=_listed(card.recipe),
        floor=card.floor,
        versions=_listed(card.versions),
    )


def _listed(facts: dict[str, Any]) -> str:
    return ", ".join(markdown_text(f"{key} {value}") for key, value in facts.items())


def _agreement(figures: dict[str, dict[str, float]]) -> str:
    rows = [[markdown_text(name), *(f"{value:.1%}" for value in tops.values())] for name, tops in figures.items()]
    return tabulate(rows, ["task", "top 1", "top 3", "top 10"], tablefmt="github", disable_numparse=True)


def _latency(figures: dict[str, dict[str, float]]) -> str:
    rows = [[size, *values.values()] for size, values in figures.items()]
    return tabulate(rows, ["tokens", "target ms", "drafter ms", "ratio"], tablefmt="github")
