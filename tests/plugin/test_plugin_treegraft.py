"""A plug-in that subclasses the public TreeGraft is all that its built-in twin is."""

import json

import pytest
import yaml

from hardware_profiles.profile import write_profile
from harness.records.manifest import read_manifest
from harness.records.rows import last_attempts, read_rows
from methods.schedulers.scheduler import BoundedScheduler
from treegraft.cli.main import invoke

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("installed")]

WEIGHING = {"scheduler": "latency-normalized", "threshold": 1.0, "call_gain": 0.5}
GRAFTED = {"name": "mine", "base": "grafted", **WEIGHING}
TWIN = {"name": "twin", "base": "latency-normalized", "threshold": 1.0, "call_gain": 0.5}


@pytest.fixture
def pair(tmp_path):
    """Write a pair of two random models; return its file, and that of the same pair without a middle drafter."""
    (tmp_path / "two.yaml").write_text("target: {toy: {seed: 0}}\nmiddle: {toy: {seed: 1}}\n")
    (tmp_path / "one.yaml").write_text("target: {toy: {seed: 0}}\n")
    return "two.yaml", "one.yaml"


@pytest.fixture
def run(pair, tmp_path):
    """Run methods of a configuration on the pair; return the folder."""

    def run(*flags, methods=(GRAFTED,), out="out"):
        small = ["--pair", pair[0], "--data", "embedded", "--threads", "1", "--max-new-tokens", "12"]
        (tmp_path / "methods.yaml").write_text(yaml.safe_dump({"methods": list(methods)}))
        given = ["--tasks", "nq,mt_bench", "--limit", "2", "--out", out, *flags]
        assert invoke(["run", "methods.yaml", *small, *given]) == 0
        return tmp_path / out

    return run


@pytest.fixture
def clock(profile, tmp_path):
    write_profile(profile, tmp_path / "plain.yaml")
    return f"profile:{tmp_path / 'plain.yaml'}"


def rows_of(folder, method):
    rows = last_attempts(read_rows(folder))
    return {(row.task, row.question_id, row.turn): row for row in rows if row.method == method}


@pytest.fixture
def given(monkeypatch):
    """The latencies that schedulers are given, prompt by prompt."""
    latencies, begin = [], BoundedScheduler.begin

    def record(self, prompt_tokens, latency):
        latencies.append(latency)
        begin(self, prompt_tokens, latency)

    monkeypatch.setattr(BoundedScheduler, "begin", record)
    return latencies


def test_alone_in_a_run_it_is_given_measured_latencies_and_no_row_fails(run, given):
    folder = run()

    rows = rows_of(folder, "mine")
    assert len(rows) == 6
    assert {(row.status, row.verdict) for row in rows.values()} == {("ok", "identical")}
    latency = read_manifest(folder).latency
    assert min(latency.target_ms, latency.middle_ms) > 0
    assert latency.source.startswith("measured")
    assert {*given} == {latency}


def test_given_latencies_are_in_the_manifest_and_with_its_scheduler(run, given):
    latency = read_manifest(run("--latency", "40,10")).latency

    assert (latency.target_ms, latency.middle_ms) == (40.0, 10.0)
    assert {*given} == {latency}


def test_it_is_refused_on_a_pair_without_a_middle_drafter(pair, tmp_path, capsys):
    for file, code in zip(pair, (0, 2), strict=True):
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"pair": file, "data": "embedded", "methods": [GRAFTED]}))
        assert invoke(["validate", "config.yaml"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("treegraft: method 'mine': pair one: ")
    assert "no middle drafter" in line


def test_under_a_profiles_clock_its_rows_are_those_of_its_built_in_twin(run, clock):
    folder = run("--clock", clock, methods=(GRAFTED, TWIN))

    ours, twins = rows_of(folder, "mine"), rows_of(folder, "twin")
    assert ours.keys() == twins.keys()
    for place, row in ours.items():
        assert (row.rounds, row.prefill, row.spans) == (twins[place].rounds, twins[place].prefill, twins[place].spans)
        assert row.spans.scheduler_s > 0
        assert (row.prefill_s, row.decode_s) == (twins[place].prefill_s, twins[place].decode_s)
    assert sum(one.calls for row in ours.values() for one in row.rounds) > 0


def test_a_comparison_under_another_clock_leaves_it_out_like_its_twin(run, clock, capsys):
    fixed = {"name": "fixed", "base": "grafted", "scheduler": "fixed"}
    for out, latency in (("base", "40,10"), ("head", "40,30")):
        run("--latency", latency, methods=(GRAFTED, TWIN, fixed), out=out)
    capsys.readouterr()
    assert invoke(["compare", "base", "head", "--mode", "replay", "--clock", clock, "--format", "json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert {line["method"] for line in told["lines"]} == {"fixed"}
    reason = "decides by its machine's times; replay both runs first, with --out"
    assert told["left_out"] == [f"method mine: {reason}", f"method twin: {reason}"]


def test_a_replay_drafts_it_anew_with_the_profiles_latencies_like_its_twin(run, clock, tmp_path):
    folder = run("--latency", "40,1000", methods=(GRAFTED, TWIN))
    assert invoke(["replay", str(folder), "--clock", clock, "--out", "again"]) == 0

    again = tmp_path / "again"
    ours, twins = rows_of(again, "mine"), rows_of(again, "twin")
    assert read_manifest(again).latency.source == "profile plain"
    assert {row.verdict for row in ours.values()} == {"unverified"}
    assert {place: row.rounds for place, row in ours.items()} == {place: row.rounds for place, row in twins.items()}
    calls = [sum(one.calls for row in rows_of(run, "mine").values() for one in row.rounds) for run in (folder, again)]
    assert calls[0] == 0 < calls[1]
