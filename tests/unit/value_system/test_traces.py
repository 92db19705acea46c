"""Traces survive their file; a broken one is refused."""

import pytest

from harness.errors import UserError
from methods.core.generation import Forward, Round
from methods.value_system.enumeration import Outcome, TracedRound
from methods.value_system.traces import read_traces, recorded_round, write_traces

RECORD = Round([1, 0], 3, 1, [Forward("middle", 1, 2, 9), Forward("small", 2, 3, 10), Forward("target", None, 4, 9)], 1)
ROUND = TracedRound(10, [Outcome("10", 2, RECORD)], {"": [0.5, -1.0], "1": [1.0, 2.0]})


def test_what_is_written_is_read(tmp_path):
    file = tmp_path / "one.parquet"
    assert write_traces(file, {"task": "gsm8k"}, [ROUND, ROUND]) == 2
    answer = read_traces(file)
    assert answer.facts == {"task": "gsm8k"}
    assert len(answer.rounds) == 2
    assert answer.rounds[0]["signals"] == ROUND.signals
    assert answer.rounds[0]["context"] == 10
    (outcome,) = answer.rounds[0]["outcomes"]
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
