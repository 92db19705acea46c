"""Whether scores mean what they say, in a report."""

import json

import pytest
from pydantic import ValidationError

from methods.core.reliability import BINS
from reports.tables import FORMATS, render_report

TITLE = "Whether scores mean what they say"


def tally(*filled):
    """Ten bins, those given as (place, edges, believed, accepted) filled."""
    bins = [[0, 0.0, 0] for _ in range(BINS)]
    for place, *content in filled:
        bins[place] = content
    return bins


@pytest.fixture
def scored(row):
    """Two tasks; `tree` believes what comes where small knows, and twice that where the middle drafter does."""
    return [
        row(method, q, task=task, edges=edges if method == "tree" else None)
        for task, q, edges in (
            ("mini", 1, {"small": tally((9, 100, 95.0, 95)), "middle": tally((6, 50, 30.0, 15))}),
            ("mini", 2, {"small": tally((9, 100, 95.0, 95), (0, 10, 0.5, 5))}),
            ("other", 1, {"middle": tally((6, 50, 30.0, 15))}),
        )
        for method in ("autoregressive", "tree")
    ]


def lines(folder):
    found = json.loads(render_report(folder, "json"))["reliability"]
    return {(line["method"], line["group"]): line for line in found}


def test_errors_are_by_who_knew_and_by_task(run_folder, scored):
    found = lines(run_folder(scored))
    assert {key: line["edges"] for key, line in found.items()} == {
        ("tree", "all"): 310,
        ("tree", "small"): 210,
        ("tree", "middle"): 100,
        ("tree", "mini"): 260,
        ("tree", "other"): 50,
    }
    assert found["tree", "small"]["error"] == pytest.approx(4.5 / 210)
    assert found["tree", "middle"]["error"] == pytest.approx(30 / 100)
    assert found["tree", "all"]["error"] == pytest.approx((4.5 + 30) / 310)
    assert found["tree", "other"]["error"] == pytest.approx(0.3)
    assert found["tree", "small"]["bins"][9] == [200, 190.0, 190]


@pytest.mark.parametrize("kind", ["table", "markdown", "latex"])
def test_the_diagram_stands_in_every_report_for_people(run_folder, scored, kind):
    text = render_report(run_folder(scored), kind)
    assert TITLE in text
    (line,) = [line for line in text.split("\n") if "small" in line and "tree" in line and "0.021" in line]
    assert "0.021" in line
    assert "0.95" in line
    assert line.count("–") + line.count("--") == 9  # ten edges are too few to show a share
    assert "Error of scores by task" in text


def test_where_nobody_scores_there_is_no_table(run_folder, row):
    rows = [row(method) for method in ("autoregressive", "tree")]
    for kind in FORMATS:
        assert TITLE not in render_report(run_folder(rows), kind)


@pytest.mark.parametrize(
    "edges",
    [
        {"small": tally((3, 5, 1.5, 6))},
        {"small": tally((3, 5, 7.5, 1))},
        {"small": tally((3, 5, float("nan"), 1))},
        {"small": tally((3, -1, 0.0, -1))},
        {"small": tally((3, 5, 1.5, 1))[:-1]},
        {"small": tally()},
    ],
)
def test_tallies_that_no_run_writes_are_refused(row, edges):
    with pytest.raises(ValidationError, match="edges"):
        row("tree", edges=edges)


def test_failed_rows_and_earlier_attempts_do_not_count(run_folder, row, failed):
    first = row("tree", 1, edges={"middle": tally((6, 50, 30.0, 15))})
    again = row("tree", 1, edges={"middle": tally((6, 40, 24.0, 24))}).model_copy(update={"attempt": 2})
    rows = [row("autoregressive", 1), row("autoregressive", 2), first, again, failed("tree", 2)]
    assert lines(run_folder(rows))["tree", "all"]["edges"] == 40
