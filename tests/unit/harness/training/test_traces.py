"""Traces survive their file; a broken one is refused."""

from dataclasses import replace

import pytest

from foundation.errors import UserError
from harness.training.traces import (
    ScheduleOutcome,
    TracedAnswer,
    TracedRound,
    fault_in,
    read_traces,
    recorded_round,
    write_traces,
)
from methods.core.generation import Forward, Round
from methods.schedulers.signals import LOOKUP_SIGNALS, TREE_SIGNALS

RECORD = Round([1, 0], 3, 1, [Forward("middle", 1, 2, 9), Forward("small", 2, 3, 10), Forward("target", None, 4, 9)], 1)
TREE, LOOKUP = [float(number) for number in range(len(TREE_SIGNALS))], [0.0] * len(LOOKUP_SIGNALS)
BARE = Round([], 0, 0, [Forward("target", None, 1, 9)], 0)  # the step that was asked for ended drafting
BOTH = replace(RECORD, schedule=[1, 1])
OUTCOMES = [ScheduleOutcome("0", 1, BARE), ScheduleOutcome("10", 2, RECORD), ScheduleOutcome("11", 1, BOTH)]
ROUND = TracedRound(10, OUTCOMES, {"": TREE, "1": TREE}, LOOKUP)


def test_what_is_written_is_read(tmp_path):
    file = tmp_path / "one.parquet"
    write_traces(file, {"task": "gsm8k"}, [ROUND, ROUND])
    answer = read_traces(file)
    assert answer.facts == {"task": "gsm8k"}
    assert len(answer.rounds) == 2
    assert answer.rounds[0]["signals"] == ROUND.signals
    assert answer.rounds[0]["context"] == 10
    assert answer.rounds[0]["lookup"] == LOOKUP
    outcome = answer.rounds[0]["outcomes"][1]
    assert (outcome["asked"], outcome["committed"]) == ("10", 2)
    assert recorded_round(outcome["record"]) == RECORD


def test_an_answer_without_rounds_has_a_file_too(tmp_path):
    write_traces(tmp_path / "one.parquet", {}, [])
    assert read_traces(tmp_path / "one.parquet").rounds == []


def test_a_write_that_breaks_off_leaves_no_file(tmp_path):
    def rounds():
        yield ROUND
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_traces(tmp_path / "one.parquet", {}, rounds())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [0, 4, 100])
def test_a_torn_file_is_refused(tmp_path, kept):
    file = tmp_path / "one.parquet"
    write_traces(file, {}, [ROUND])
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"one.parquet: no traces can be read .*; remove it"):
        read_traces(file)


def test_another_table_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UserError, match=r"other.parquet: holds no traces of this version; remove it"):
        read_traces(tmp_path / "other.parquet")


@pytest.fixture
def answer(tmp_path):
    """An answer of three tokens and two steps that was traced at its first two places."""
    write_traces(tmp_path / "whole.parquet", {"tokens": "3"}, [ROUND, ROUND])
    return read_traces(tmp_path / "whole.parquet")


def test_what_was_traced_has_no_fault(answer):
    assert fault_in(answer, 2, 2) is None
    assert fault_in(answer, 2, 3) == "2 rounds for 3 places"
    assert "none" in fault_in(answer, 1, 2)


def outcome(part, value):
    return lambda one: one["outcomes"][1].update({part: value})


def record(part, value):
    return lambda one: one["outcomes"][1]["record"].update({part: value})


def forward(part, value, place=0):
    return lambda one: one["outcomes"][1]["record"]["forwards"][place].update({part: value})


EDITS = {
    "no token committed, which would never end": (outcome("committed", 0), "0 tokens committed"),
    "more committed than are left": (outcome("committed", 3), "3 tokens committed where 2 are left"),
    "nothing known of what was committed": (outcome("committed", None), "None tokens committed"),
    "no record": (outcome("record", None), "without a whole record"),
    "a schedule of letters": (outcome("asked", "x"), "a schedule that is none"),
    "a schedule too long": (outcome("asked", "000"), "a schedule that is none"),
    "no schedule": (outcome("asked", None), "a schedule that is none"),
    "a schedule twice": (lambda one: one["outcomes"].append(one["outcomes"][0]), "not each there once"),
    "a schedule missing": (lambda one: one["outcomes"].pop(), "not each there once"),
    "an outcome that is nothing": (lambda one: one["outcomes"].append(None), "an outcome that is none"),
    "no outcomes": (lambda one: one.update(outcomes=None), "not each there once"),
    "a state's signals missing": (lambda one: one["signals"].pop("1"), "of other states"),
    "a state too many": (lambda one: one["signals"].update({"0": TREE}), "of other states"),
    "signals too few": (lambda one: one["signals"]["1"].pop(), "signals that are not 9 numbers"),
    "a signal that is no number": (
        lambda one: one["signals"].update({"1": [float("nan"), *TREE[1:]]}),
        "not 9 numbers",
    ),
    "signals of look-up missing": (lambda one: one.update(lookup=None), "signals of look-up"),
    "no steps taken": (record("schedule", None), "without a whole record"),
    "a step that is nothing": (record("schedule", [None]), "without a whole record"),
    "no forwards": (record("forwards", None), "without a whole record"),
    "no target forward": (record("forwards", []), "without a whole record"),
    "a forward of nothing": (forward("tokens", 0), "without a whole record"),
    "a forward before the text": (forward("context", -1), "without a whole record"),
    "a forward of nobody": (forward("role", "uncle"), "without a whole record"),
    "steps of another schedule": (record("schedule", [1, 1]), "a record of another round"),
    "steps that are no bits": (record("schedule", [1, 7]), "a record of another round"),
    "fewer steps than were asked for": (record("schedule", []), "a record of another round"),
    "a verification of another tree": (forward("tokens", 9, 2), "a record of another round"),
    "a verification elsewhere": (forward("context", 3, 2), "a record of another round"),
    "a round elsewhere": (lambda one: one.update(context=3), "a record of another round"),
    "a round nowhere": (lambda one: one.update(context=None), "a record of another round"),
    "more committed than accepted": (record("accepted", 0), "a record of another round"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_cannot_have_been_traced_is_told(answer, name):
    edit, message = EDITS[name]
    edit(answer.rounds[1])
    found = fault_in(TracedAnswer(answer.facts, answer.rounds), 2, 2)
    assert found is not None
    assert found.startswith("round 1: ")
    assert message in found


def test_a_file_without_signals_is_told_too(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "one.parquet"
    write_traces(file, {"tokens": "3"}, [ROUND, ROUND])
    table = pq.read_table(file)
    rounds = table.to_pylist()
    rounds[0]["signals"] = None
    pq.write_table(pa.Table.from_pylist(rounds, schema=table.schema), file)
    assert "of other states" in fault_in(read_traces(file), 2, 2)
