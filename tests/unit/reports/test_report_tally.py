import json

import pytest

from harness.errors import UserError
from methods.core.generation import Forward, Round, Spans
from reports.tables import render_report
from reports.tally import NO_RATE, last_tallies, read_tallies, tally


def test_rounds_and_forwards_are_summed(row):
    forwards = [Forward("small", 1, 10, 5), Forward("middle", 2, 30, 5), Forward("target", None, 16, 5)]
    rounds = [Round([0, 1], 15, 4, forwards), Round([0, 0], 15, 2, forwards[:1]), Round([1, 1], 15, 1, forwards)]
    counted = tally(row("tree", rounds=rounds))
    assert (counted.rounds, counted.accepted, counted.calls, counted.called_tokens) == (3, 7, 3, 60)
    assert counted.is_rated


def test_a_middle_that_nobody_schedules_is_called_as_often_as_it_runs(row):
    forwards = [
        Forward("small", 1, 1, 5),
        Forward("middle", 2, 11, 5),
        Forward("middle", 3, 3, 16),
        Forward("target", None, 9, 5),
    ]
    counted = tally(row("csd", rounds=[Round(None, 8, 4, forwards), Round(None, 0, 0, forwards[3:])]))
    assert (counted.calls, counted.called_tokens) == (2, 14)
    assert tally(row("autoregressive")).calls == 0


@pytest.mark.parametrize(
    ("changes", "flaw"),
    [
        ({"committed": 11}, "committed is not the number of token_ids"),
        ({"decode_s": 0.5}, "prefill_s and decode_s do not add up to e2e_s"),
        ({"e2e_s": 0.5}, "prefill_s and decode_s do not add up to e2e_s"),
        ({"decode_s": 0.5, "e2e_s": 1.0}, "the spans do not add up to decode_s"),
        ({"spans": Spans(0.5, 0.7, 0.0, -0.3, 0.1)}, "the spans do not add up to decode_s"),
        ({"spans": Spans(float("nan"), 0.0, 0.0, 1.0, 0.0)}, "the spans do not add up to decode_s"),
        ({"rounds": [Round(None, 4, 5, []), Round(None, 4, 3, [])]}, "a round accepted more than was drafted"),
        ({"rounds": [Round(None, 20, -1, []), Round(None, 20, 10, [])]}, "a round accepted more than was drafted"),
        ({"rounds": [Round(None, 20, 3, [])]}, "the rounds do not add up to the committed tokens"),
        ({"rounds": [Round(None, 20, 12, [])]}, "the rounds do not add up to the committed tokens"),
        ({"decode_s": float("nan")}, NO_RATE),
        ({"decode_s": float("inf"), "e2e_s": float("inf")}, NO_RATE),
        ({"prefill_tokens": 10}, NO_RATE),
    ],
)
def test_an_edited_row_that_contradicts_itself_gives_no_number_and_says_why(row, changes, flaw):
    good = row("tree", 1)
    assert tally(good).flaw is None
    edited = tally(good.model_copy(update=changes))
    assert (edited.flaw, edited.is_rated) == (flaw, False)


def test_an_edited_time_is_left_out_of_the_report_in_plain_sight(row, run_folder):
    rows = [row(method, q, s) for q in range(1, 9) for method, s in (("autoregressive", 1.0), ("tree", 0.5))]
    folder = run_folder(rows)
    file = folder / "rows.jsonl"
    edited = [json.loads(line) for line in file.read_text().splitlines()]
    edited[3]["decode_s"] = 0.05
    file.write_text("".join(f"{json.dumps(one)}\n" for one in edited))
    lines = json.loads(render_report(folder, "json"))["lines"]
    assert lines[1]["speedup"] == pytest.approx(2.0)
    assert (lines[1]["n"], lines[1]["dropped"], lines[1]["unrated"]) == (7, 1, 1)
    assert "prefill_s and decode_s do not add up to e2e_s: 1" in render_report(folder, "table")


def test_an_attempt_that_stands_twice_is_refused(row, run_folder):
    rows = [row("autoregressive"), row("tree")]
    with pytest.raises(UserError, match=r"attempt 1 of tree on mini/1/0 stands twice; .* restore it"):
        last_tallies([*rows, rows[1]])
    folder = run_folder([*rows, row("tree", decode_s=0.1)])
    with pytest.raises(UserError, match=str(folder)):
        render_report(folder, "table")


def test_the_last_attempt_of_a_key_counts_wherever_it_stands(row):
    first, again = row("tree", attempt=1), row("tree", decode_s=0.5, attempt=2)
    assert [one.decode_s for one in last_tallies([first, again])] == [0.5]
    assert [one.decode_s for one in last_tallies([again, first])] == [0.5]


@pytest.mark.parametrize("edit", [{"schema_version": 2}, {"speed": 3}, {"question_id": "one"}, {"status": "fine"}])
def test_rows_of_another_schema_are_an_error_that_names_the_line(row, run_folder, edit):
    other = json.dumps({**row("tree", 2).model_dump(mode="json"), **edit})
    folder = run_folder([row("autoregressive"), row("tree")], tail=f"{other}\n")
    with pytest.raises(UserError, match=rf"rows\.jsonl:3: not a row of schema 1 \({next(iter(edit))}"):
        render_report(folder, "csv")


def test_a_file_cut_anywhere_gives_the_numbers_of_its_whole_blocks_or_says_what_is_left_out(row, run_folder):
    rows = [row(method, q, s * q) for q in range(1, 5) for method, s in (("autoregressive", 1.0), ("tree", 0.5))]
    folder = run_folder(rows, {"tasks": {"mini": {"n": 4}}})
    data = (folder / "rows.jsonl").read_bytes()
    for cut in range(len(data) // 3, len(data), 97):
        (folder / "rows.jsonl").write_bytes(data[:cut])
        line = json.loads(render_report(folder, "json"))["lines"][1]
        assert line["speedup"] == pytest.approx(2.0)
        assert line["n"] + line["dropped"] + line["missing"] == 4
        assert line["n"] < 4 or cut >= len(data) - 1


def test_rows_can_be_given_the_times_of_another_clock(row, run_folder):
    folder = run_folder([row("autoregressive"), row("tree")])
    slower = read_tallies(folder, lambda one: one.model_copy(update={"clock": "profile:x", "decode_s": 7.0}))
    assert {(one.clock, one.decode_s) for one in slower} == {("profile:x", 7.0)}
