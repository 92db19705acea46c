"""A verdict is defined once: every place that names verdicts has all of them."""

from pathlib import Path
from typing import get_args

import pytest

from harness.records.verdicts import VERDICTS, Verdict, worst
from reports.latex import latex_text

ROOT = Path(__file__).parents[4]


def test_every_verdict_of_rows_has_a_sign_of_its_own_and_a_meaning():
    assert tuple(VERDICTS) == get_args(Verdict)
    assert len({facts.sign for facts in VERDICTS.values()}) == len(VERDICTS)
    assert all(facts.sign and facts.meaning for facts in VERDICTS.values())


def test_the_sign_of_every_verdict_can_be_set_in_latex():
    assert [name for name, facts in VERDICTS.items() if not latex_text(facts.sign).isascii()] == []


def test_the_glossary_explains_every_verdict_in_the_same_words():
    glossary = " ".join((ROOT / "docs/glossary.md").read_text(encoding="utf-8").split())

    assert [name for name, facts in VERDICTS.items() if f"`{name}` ({facts.meaning})" not in glossary] == []


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (set(), "identical"),
        ({"tie"}, "tie"),
        ({"tie", "numeric"}, "numeric"),
        ({"numeric", "different", "tie"}, "different"),
    ],
)
def test_the_worst_verdict_is_the_gravest_and_without_any_it_is_identical(verdicts, expected):
    assert worst(verdicts) == expected
