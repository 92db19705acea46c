"""Answers that end in a loop are counted in every report, and speedups are given without them."""

import csv
import io
import json

import pytest

from reports import repetition
from reports.compare import compare
from reports.gate_text import FORMATS as GATE_FORMATS, render_comparison
from reports.repetition import ends_in_cycle
from reports.row_summary import last_tallies
from reports.summary import OVERALL, summarise
from reports.tables import FORMATS, render_report

LOOP = [7] * 20
SIXTEEN = [*range(16)]


def check_criterion():
    assert ends_in_cycle([5] * 4)
    assert ends_in_cycle([1, 2, 3, 8, 9, 8, 9, 8, 9, 8, 9])
    assert ends_in_cycle([9, 8, 9, 8, 9, 8, 9, 8, 9])  # four times, and a part of it in front
    assert ends_in_cycle([99, *SIXTEEN * 4])
    assert ends_in_cycle(SIXTEEN * 9)
    for others in ([], [5], [5] * 3, [1, 2, 8, 9, 8, 9, 8, 9], [*LOOP, 1], [*range(64)], [*range(17)] * 9):
        assert not ends_in_cycle(others)


def test_a_cycle_has_at_most_16_tokens_four_times_or_more_up_to_the_last():
    check_criterion()


@pytest.mark.parametrize(("name", "value"), [("LONGEST_CYCLE", 15), ("LONGEST_CYCLE", 17), ("TIMES", 3), ("TIMES", 5)])
def test_the_criterions_check_fails_on_other_numbers(monkeypatch, name, value):
    monkeypatch.setattr(repetition, name, value)
    with pytest.raises(AssertionError):
        check_criterion()


@pytest.fixture
def loops(row):
    """Rows of prompts on which `tree` is twice as fast, and of two loops on which it is eight times as fast."""

    def build(plain=8, looping=2, **changes):
        rows = []
        for question in range(plain + looping):
            tokens = LOOP if question >= plain else list(range(20))
            gain = 8.0 if question >= plain else 2.0
            for method, seconds in (("autoregressive", 1.0), ("tree", 1.0 / gain)):
                rows.append(row(method, question, seconds, 20, token_ids=tokens, **changes))
        return rows

    return build


def tree_of(rows):
    return {line.method: line for line in summarise(last_tallies(rows))}["tree"]


def test_a_line_has_its_speedup_with_and_without_loops(loops):
    line = tree_of(loops())
    assert (line.repetition, line.n, line.n_without_repetition) == (2, 10, 8)
    assert line.speedup == pytest.approx((2.0**8 * 8.0**2) ** 0.1)
    assert line.speedup_without_repetition == pytest.approx(2.0)
    assert line.marked == 0


def test_without_loops_both_numbers_are_one_and_nothing_is_noted(loops):
    line = tree_of(loops(looping=0))
    assert (line.repetition, line.speedup_without_repetition) == (0, line.speedup)
    assert line.notes == ()


def test_where_every_answer_loops_there_is_no_other_number_and_a_note_says_so(loops):
    line = tree_of(loops(plain=0, looping=6))
    assert (line.repetition, line.n_without_repetition, line.speedup_without_repetition) == (6, 0, None)
    assert any("speedup 8.00, and no prompt without them" in note for note in line.notes)


def test_a_prompt_is_left_out_where_only_the_baseline_loops(loops):
    rows = [
        one.model_copy(update={"token_ids": list(range(20)), "verdict": "numeric"}) if one.method == "tree" else one
        for one in loops()
    ]
    line = tree_of(rows)
    assert (line.repetition, line.n_without_repetition, line.speedup_without_repetition) == (0, 8, pytest.approx(2.0))
    assert any("(mark repetition): 0; speedup 2.64, 2.00 without their prompts (n 8)" in note for note in line.notes)


def test_a_conversation_loops_where_one_of_its_turns_does(row):
    rows = []
    for turn, tokens in enumerate((list(range(20)), LOOP)):
        rows += [row(name, 1, 1.0, 20, turn=turn, token_ids=tokens) for name in ("autoregressive", "tree")]
    line = tree_of(rows)
    assert (line.repetition, line.n, line.n_without_repetition) == (1, 1, 0)


def test_failed_answers_are_not_counted(loops, failed):
    rows = [
        failed("tree", one.question_id).model_copy(update={"token_ids": LOOP}) if one.method == "tree" else one
        for one in loops()[-2:]
    ]
    lines = summarise(last_tallies([*loops(looping=0), *rows]))
    assert {line.method: line.repetition for line in lines} == {"autoregressive": 1, "tree": 0}


def test_the_line_over_all_tasks_counts_those_of_each(loops):
    lines = summarise(last_tallies([*loops(task="a"), *loops(task="b", looping=1)]))
    (line,) = (line for line in lines if (line.task, line.method) == (OVERALL, "tree"))
    assert (line.repetition, line.n_without_repetition) == (3, 16)


NOTE = "answers that end in a cycle of at most 16 tokens, repeated 4 times or more (mark repetition): 2"


def test_every_format_of_a_report_counts_them(loops, run_folder):
    folder = run_folder(loops())
    for format in FORMATS:
        text = " ".join(render_report(folder, format).split())
        assert f"{NOTE}; speedup 2.64, 2.00 without their prompts (n 8)" in text, format
    lines = [
        json.loads(render_report(folder, "json"))["lines"][1],
        list(csv.DictReader(io.StringIO(render_report(folder, "csv"))))[1],
    ]
    for line in lines:
        assert (line["method"], int(line["repetition"]), int(line["n_without_repetition"])) == ("tree", 2, 8)
        assert float(line["speedup"]) == pytest.approx(2.639, abs=1e-3)
        assert float(line["speedup_without_repetition"]) == pytest.approx(2.0)


def test_every_format_of_the_gate_counts_them(loops, written, manifest):
    base = written("base", loops(task="a"), manifest(tasks="a"))
    comparison = compare(base, base)
    assert [line.repetition for line in comparison.lines] == [4]
    for format in GATE_FORMATS:
        text = " ".join(render_comparison(comparison, format).split())
        assert ('"repetition": 4' if format == "json" else "(mark repetition): tree 4.") in text
    plain = written("plain", loops(task="a", looping=0), manifest(tasks="a"))
    assert "mark repetition" not in render_comparison(compare(plain, plain), "table")
