import json
from dataclasses import replace

import pytest

from foundation.errors import UserError
from harness.records.rows import read_rows
from methods.core.generation import Forward, Round, Spans
from methods.core.reliability import BINS, Bin
from reports.compare import compare
from reports.row_summary import NO_RATE, last_tallies, read_tallies, tally
from reports.row_validation import NOT_IDENTICAL
from reports.tables import render_report

REFERENCE = "verdict reference is the baseline's"
AGAINST = "a round's schedule and forwards contradict each other"
TOO_MANY = "a forward has more tokens than text and tree"
ROUND = Round([0, 1], 15, 4, [Forward("small", 1, 10, 5), Forward("middle", 2, 30, 5), Forward("target", None, 16, 5)])


def test_rounds_and_forwards_are_summed(row):
    forwards = [Forward("small", 1, 10, 5), Forward("middle", 2, 30, 5), Forward("target", None, 16, 5)]
    called = [Forward("middle", 1, 1, 5), *forwards[1:]]
    rounds = [
        Round([0, 1], 15, 4, forwards),
        Round([0, 0], 15, 2, [forwards[0], forwards[2]]),
        Round([1, 1], 15, 1, called),
    ]
    counted = tally(row("tree", rounds=rounds))
    assert (counted.rounds, counted.accepted, counted.calls, counted.called_tokens) == (3, 7, 3, 61)
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
        ({"decode_s": 1e-300, "e2e_s": 0.5, "spans": None}, NO_RATE),
        ({"decode_s": 1e300, "e2e_s": 1e300, "spans": None}, NO_RATE),
        ({"prefill_s": None}, "prefill_s is missing or negative"),
        ({"prefill_s": -0.5, "e2e_s": 0.5}, "prefill_s is missing or negative"),
        ({"verdict": "reference"}, REFERENCE),
        ({"method": "autoregressive"}, REFERENCE),
        ({"flips": 2}, "verdict identical, but draws of its own were others"),
        ({"prefill_tokens": 1, "prefill": [Forward("target", None, 4, 0)]}, "prefill yielded tokens without the whole"),
        ({"rounds": None}, "spans without rounds"),
        ({"decode_forwards": 3}, "decode_forwards beside rounds"),
        *(
            ({"rounds": None, "spans": None, "decode_forwards": count}, "more forwards than timed tokens, or none")
            for count in (-1, 0, 11, 10**30)
        ),
        ({"rounds": [ROUND, ROUND, replace(ROUND, accepted=2)]}, "the rounds do not add up to the committed tokens"),
        ({"rounds": [ROUND, replace(ROUND, schedule=None)]}, "rounds with and without a schedule or forwards"),
        ({"rounds": [ROUND, replace(ROUND, forwards=[])]}, "rounds with and without a schedule or forwards"),
        ({"rounds": [ROUND, replace(ROUND, schedule=[0, 2])]}, AGAINST),
        ({"rounds": [ROUND, replace(ROUND, schedule=[0, 10**400])]}, AGAINST),
        ({"rounds": [ROUND, replace(ROUND, schedule=[1, 1])]}, AGAINST),
        ({"rounds": [ROUND, replace(ROUND, schedule=[0])]}, AGAINST),
        ({"rounds": [ROUND, replace(ROUND, drafted=14)]}, AGAINST),
        ({"rounds": [ROUND, replace(ROUND, forwards=ROUND.forwards[:2])]}, AGAINST),
        ({"rounds": [ROUND, replace(ROUND, forwards=[Forward("small", 1, -1, 5), *ROUND.forwards[1:]])]}, TOO_MANY),
        (
            {"rounds": [ROUND, replace(ROUND, forwards=[Forward("small", 1, 10**400, 5), *ROUND.forwards[1:]])]},
            TOO_MANY,
        ),
        ({"rounds": [ROUND, replace(ROUND, forwards=[Forward("small", 1, 10**9, 5), *ROUND.forwards[1:]])]}, TOO_MANY),
        ({"rounds": [ROUND, replace(ROUND, forwards=[Forward("small", 1, 1, 10**9), *ROUND.forwards[1:]])]}, TOO_MANY),
        ({"rounds": [ROUND, replace(ROUND, by_middle=10**20)]}, "a round counts more nodes of a drafter"),
        ({"rounds": [ROUND, replace(ROUND, by_middle=-3)]}, "a round counts more nodes of a drafter"),
        ({"rounds": [replace(ROUND, drafted=10**6, forwards=[])] * 2}, "a round counts more nodes of a drafter"),
        ({"edges": {"middle": [Bin(10**30)] * BINS}}, "more edges than the rounds can have drafted"),
        ({"edges": {"invented": [Bin(1)] * BINS}}, "edges of a drafter other than both, middle, small"),
    ],
)
def test_an_edited_row_that_contradicts_itself_gives_no_number_and_says_why(row, changes, flaw):
    good = row("tree", 1)
    assert tally(good).flaw is None
    edited = tally(good.model_copy(update=changes))
    assert edited.flaw is not None
    assert edited.flaw.startswith(flaw)
    assert not edited.is_rated


def test_rounds_as_a_run_writes_them_contradict_nothing(row):
    cut = replace(ROUND, accepted=5)  # an answer that ends inside a block lacks the last round's own token
    assert tally(row("tree", rounds=[ROUND, ROUND])).flaw is None
    assert tally(row("tree", rounds=[ROUND, cut])).flaw is None


def test_a_verdict_that_was_edited_to_identical_is_seen_and_fails_the_gate(row, run_folder, written, manifest):
    rows = [row(method, q) for q in range(1, 9) for method in ("autoregressive", "tree")]
    mini = manifest(tasks=["mini"])
    good = written("good", rows, mini)
    edited = rows[3].model_copy(update={"token_ids": [7] * 10})
    folder = run_folder([*rows[:3], edited, *rows[4:]])
    line = json.loads(render_report(folder, "json"))["lines"][1]
    assert (line["n"], line["unrated"]) == (7, 1)
    assert line["notes"][-1] == f"rows without a rate, left out: 1 ({NOT_IDENTICAL}: 1)"
    (judged,) = compare(good, written("bad", [*rows[:3], edited, *rows[4:]], mini)).lines
    assert (judged.verdict, judged.reason) == ("regression", "1 answers of HEAD are not the baseline's")


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
    for cut in range(len(data) // 3, len(data), 397):
        (folder / "rows.jsonl").write_bytes(data[:cut])
        line = json.loads(render_report(folder, "json"))["lines"][1]
        assert line["speedup"] == pytest.approx(2.0)
        assert line["n"] + line["dropped"] + line["missing"] == 4
        assert line["n"] < 4 or cut >= len(data) - 1


def test_rows_can_be_given_the_times_of_another_clock(row, run_folder):
    folder = run_folder([row("autoregressive"), row("tree")])
    again = (one.model_copy(update={"clock": "profile:x", "decode_s": 7.0}) for one in read_rows(folder))
    slower = read_tallies(again, str(folder))
    assert {(one.clock, one.decode_s) for one in slower} == {("profile:x", 7.0)}
