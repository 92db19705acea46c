"""The verdicts on losslessness, defined here alone: rows, the certificate, summaries and tables read them."""

from __future__ import annotations

from typing import Literal, NamedTuple

Verdict = Literal["reference", "identical", "tie", "numeric", "different", "unverified"]


class VerdictFacts(NamedTuple):
    """What people read of a verdict."""

    sign: str
    """What tables print for it."""
    meaning: str
    """The glossary's words."""


VERDICTS: dict[Verdict, VerdictFacts] = {
    "reference": VerdictFacts("ref", "the baseline"),
    "identical": VerdictFacts("=", "every token is the baseline's"),
    "tie": VerdictFacts("~", "they part where the two candidates score exactly the same"),
    "numeric": VerdictFacts("≈", "they part within rounding"),
    "different": VerdictFacts("≠", "a bug"),
    "unverified": VerdictFacts("?", "it cannot be checked"),
}
"""Each verdict, a worse one behind a better one; this order is that of columns and legends too."""

COUNTED: tuple[Verdict, ...] = tuple(name for name in VERDICTS if name != "reference")
"""Verdicts that reports count; a method is the baseline or is not."""


def worst(verdicts: set[Verdict]) -> Verdict:
    """Return the worst of some verdicts, `identical` where there is none."""
    return max(verdicts, key=[*VERDICTS].index, default="identical")
