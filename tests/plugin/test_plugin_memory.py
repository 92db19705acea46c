"""A plug-in that keeps what it learnt for the whole run: what a run, a report and a replay make of it."""

import json

import pytest
import yaml

from hardware_profiles.profile import write_profile
from harness.records.manifest import read_manifest
from harness.records.rows import ROWS_FILE, last_attempts, read_rows
from methods.facts import MethodFacts
from treegraft.cli.main import invoke

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("installed")]

LABEL = "keeps what it learnt from earlier questions (memory: run); its figures depend on the order of questions"


@pytest.fixture
def run(tmp_path):
    def run(methods="remembering,backwards", code=0, repeats=1):
        small = ["--pair", "toy", "--data", "embedded", "--threads", "1", "--max-new-tokens", "8"]
        flags = ["--tasks", "nq", "--limit", "2", "--methods", methods, "--repeats", str(repeats), "--out", "out"]
        assert invoke(["run", *small, *flags]) == code
        return tmp_path / "out"

    return run


@pytest.fixture
def clock(profile, tmp_path):
    write_profile(profile, tmp_path / "plain.yaml")
    return f"profile:{tmp_path / 'plain.yaml'}"


def rows_of(folder, method):
    return [row for row in last_attempts(read_rows(folder)) if row.method == method]


@pytest.fixture
def weighing(monkeypatch):
    """Let the method's schedules hang on latencies."""
    monkeypatch.setattr(MethodFacts, "weighs_times", lambda self, settings: self.memory == "run")


def test_it_has_learnt_nothing_before_its_first_question(run):
    first, *_ = rows_of(run(), "remembering")
    assert first.rounds[0].drafted == 0


def test_it_drafts_from_what_it_learnt_in_the_question_before(run):
    assert [row.rounds[0].drafted for row in rows_of(run(), "remembering")] == [0, 1]


def test_a_repeat_is_as_cold_as_the_first(run):
    rows = rows_of(run(repeats=3), "remembering")
    drafted = {repeat: [row.rounds[0].drafted for row in rows if row.repeat == repeat] for repeat in range(3)}
    assert drafted == {0: [0, 1], 1: [0, 1], 2: [0, 1]}


def test_the_manifest_keeps_how_long_it_remembers(run):
    traits = read_manifest(run()).traits
    assert {name: own.memory for name, own in traits.items()} == {
        "autoregressive": "question",
        "remembering": "run",
        "backwards": "question",
    }


def test_a_run_that_goes_on_warns_that_it_starts_cold_and_notes_it(run, caplog):
    rows = run() / ROWS_FILE
    assert not caplog.messages
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:3]))
    run()

    (warning,) = (message for message in caplog.messages if "cold" in message)
    assert "remembering (memory: run) start cold" in warning
    starts = read_manifest(rows.parent).starts
    assert [len(start.notes) for start in starts] == [0, 1]
    assert starts[1].notes[0] in warning
    run()
    assert len(caplog.messages) == 1  # nothing was left to decode
    assert read_manifest(rows.parent).starts[2].notes == []


@pytest.mark.parametrize("kind", ["table", "markdown", "latex", "csv", "json"])
def test_reports_label_it_and_no_other(run, capsys, kind):
    folder = run()
    capsys.readouterr()
    assert invoke(["report", str(folder), "--format", kind]) == 0
    told = " ".join(capsys.readouterr().out.split())
    if kind == "json":
        labelled = [line["method"] for line in json.loads(told)["lines"] if LABEL in line["notes"]]
        assert labelled == ["remembering"]
    else:
        assert told.count(LABEL) == 1
    if kind == "table":
        assert f"{LABEL} (remembering)" in told


def test_its_recorded_rounds_are_timed_again(run, clock, capsys):
    folder = run()
    assert invoke(["replay", str(folder), "--clock", clock, "--out", "again"]) == 0
    assert [row.rounds for row in rows_of(folder.with_name("again"), "remembering")] == [
        row.rounds for row in rows_of(folder, "remembering")
    ]
    assert invoke(["report", "again"]) == 0
    assert LABEL in " ".join(capsys.readouterr().out.split())


def test_a_replay_does_not_draft_it_anew(run, clock, tmp_path, capsys):
    folder = run("backwards")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"methods": [{"name": "mine", "base": "remembering"}]}))
    for flags, name in ((["--methods", "remembering"], "remembering"), (["--config", "mine.yaml"], "mine")):
        capsys.readouterr()
        assert invoke(["replay", str(folder), "--clock", clock, *flags]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"treegraft: --methods {name}: it keeps what it learnt from earlier questions")


def test_a_replay_leaves_it_out_where_another_clock_would_change_it(weighing, run, clock, capsys):
    folder = run()
    capsys.readouterr()
    assert invoke(["replay", str(folder), "--clock", clock, "--out", "again"]) == 0
    assert "without remembering: it keeps what it learnt" in capsys.readouterr().err
    assert {row.method for row in last_attempts(read_rows(folder.with_name("again")))} == {
        "autoregressive",
        "backwards",
    }


def test_its_trees_are_not_drawn(run, capsys):
    folder = run()
    assert invoke(["show", str(folder), "nq/1", "--method", "remembering"]) == 2
    assert "--method remembering: it keeps what it learnt" in capsys.readouterr().err
