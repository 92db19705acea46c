"""Every engine has a baseline of its own; two engines never meet in a speedup."""

import re

import pytest

from reports.contrasts import contrast_methods
from reports.row_summary import last_tallies
from reports.run_facts import RunFacts, run_facts_of
from reports.summary import comparisons, summarise
from reports.tables import render_report

OURS = {"autoregressive": 1.0, "all-small": 0.5, "treegraft": 0.4}
THEIRS = {"hf-generate": 4.0, "prompt-lookup": 2.0}


@pytest.fixture
def rows(row):
    """Our engine is four times as fast as theirs."""
    return [
        one
        for question in range(1, 9)
        for one in (
            *(row(name, question, decode_s=seconds, engine="lean") for name, seconds in OURS.items()),
            *(
                row(name, question, decode_s=seconds, engine="hf", baseline="hf-generate", peer=True)
                for name, seconds in THEIRS.items()
            ),
        )
    ]


def test_a_speedup_is_over_the_baseline_of_the_methods_own_engine(rows):
    lines = {line.method: line for line in summarise(last_tallies(rows))}

    assert lines["all-small"].speedup == pytest.approx(2.0)
    assert lines["prompt-lookup"].speedup == pytest.approx(4.0 / 2.0)
    assert [lines[name].speedup for name in ("autoregressive", "hf-generate")] == [1.0, 1.0]
    assert [lines[name].p for name in ("autoregressive", "hf-generate")] == [None, None]
    assert (lines["prompt-lookup"].engine, lines["prompt-lookup"].baseline) == ("hf", "hf-generate")
    assert lines["all-small"].tokens_per_s > lines["prompt-lookup"].tokens_per_s


def test_without_its_baseline_a_method_has_no_speedup_and_a_note_says_why(rows):
    left = [one for one in rows if one.method != "hf-generate"]
    (line,) = (line for line in summarise(last_tallies(left)) if line.method == "prompt-lookup")

    assert (line.n, line.speedup) == (0, None)
    assert "no answer of its baseline `hf-generate` to compare with; run with it among the methods" in line.notes


def test_methods_of_two_engines_are_not_set_against_each_other(rows):
    contrasts = contrast_methods(comparisons(last_tallies(rows)), RunFacts())

    assert [(one.method, one.against) for one in contrasts] == [("treegraft", "all-small")]


def test_a_table_names_engines_where_there_are_several_and_how_they_computed(rows, run_folder):
    starts = [{"engines": {"target": "lean (products: onednn)"}}, {"engines": {"target": "lean (products: torch)"}}]
    facts = run_facts_of({"starts": starts})

    assert facts.sources == (
        "target engine: lean (products: onednn), then lean (products: torch)",
        "2 starts that differ: target engine; each row names its start",
    )
    table, alone = (
        render_report(run_folder(some), "table") for some in (rows, [r for r in rows if r.engine == "lean"])
    )
    assert re.search(r"^method +engine ", table, re.MULTILINE)
    assert not re.search(r"^method +engine ", alone, re.MULTILINE)


def test_rows_of_older_runs_keep_their_only_baseline(row):
    old = [row(name, question, decode_s=1.0) for question in range(1, 4) for name in ("autoregressive", "hf-generate")]

    assert {one.engine for one in old} == {"hf"}
    assert {line.method: line.n for line in summarise(last_tallies(old))} == {"autoregressive": 3, "hf-generate": 3}
