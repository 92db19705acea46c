"""Openings of user turns, which the target completes and then answers."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

_WORD = re.compile(r"{(\w+)}")


@dataclass(frozen=True, slots=True)
class Opening:
    """How a sequence begins.

    Attributes:
        kind: one of the steering file's.
        text: the first words of the user's turn, which the target completes; all of it for articles.
        whole: whether the turn is complete.
        turns: user turns in all; the target writes the later ones.
    """

    kind: str
    text: str
    whole: bool = False
    turns: int = 1


class Steering:
    """Draws openings from the packaged steering file."""

    def __init__(self, seed: int) -> None:
        text = files("harness.distil").joinpath("steering.yaml").read_text(encoding="utf-8")
        data: dict[str, Any] = yaml.safe_load(text)
        self._kinds: dict[str, dict[str, Any]] = data["kinds"]
        self._words: dict[str, list[str]] = data["words"]
        self._random = random.Random(seed)

    def kind(self, batch: int) -> str:
        """Return the kind of a batch, so that each kind keeps its share over any number of batches."""
        counts = dict.fromkeys(self._kinds, 0)
        for number in range(batch + 1):
            shares = {kind: self._kinds[kind]["share"] / 100 for kind in counts}
            due = max(counts, key=lambda kind: shares[kind] * (number + 1) - counts[kind])
            counts[due] += 1
        return due

    def openings(self, kind: str, articles: Sequence[str] | None, count: int) -> list[Opening]:
        """Draw openings of a kind, with one of the `articles` in each that quotes one."""
        openings = []
        for index in range(count):
            template = self._random.choice(self._kinds[kind]["openings"])
            text = self._filled(template, {"article": articles[index]} if articles else {})
            openings.append(Opening(kind, text, bool(articles), self._kinds[kind].get("turns", 1)))
        return openings

    def article_requests(self, kind: str, count: int) -> list[str]:
        """Draw requests for the articles that openings of this kind quote; none where they quote nothing."""
        requests = self._kinds[kind].get("articles", [])
        return [self._filled(self._random.choice(requests), {}) for _ in range(count)] if requests else []

    def _filled(self, template: str, known: dict[str, str]) -> str:
        def drawn(match: re.Match[str]) -> str:
            return known[match[1]] if match[1] in known else self._random.choice(self._words[match[1]])

        return _WORD.sub(drawn, template)
