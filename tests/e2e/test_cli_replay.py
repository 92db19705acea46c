"""Replay: recorded runs under another clock, and methods that they did not run."""

import json
import shutil
from pathlib import Path

import pytest

from hardware_profiles.profile import write_profile
from methods.core.model import TreeModel

NEW = ["all-mid", "treegraft-fixed", "treegraft-no-nd", "csd"]


@pytest.fixture
def clock(profile, tmp_path):
    write_profile(profile, tmp_path / "plain.yaml")
    return f"profile:{tmp_path / 'plain.yaml'}"


@pytest.fixture
def replayed(treegraft, rows_of, finished, clock, tmp_path):
    """Replay the finished run; return its rows by method, task, question and turn."""

    def call(*flags, run=finished):
        out = tmp_path / f"replayed-{len([*tmp_path.iterdir()])}"
        result = treegraft("replay", run, "--clock", clock, "--out", out, *flags)
        assert result.code == 0, result.err
        return {(row.method, row.task, row.question_id, row.turn): row for row in rows_of(out)}

    return call


def test_every_table_says_that_times_are_modelled(treegraft, finished, clock):
    result = treegraft("replay", finished, "--clock", clock)

    assert result.code == 0
    assert "modelled (profile:plain)" in result.out
    assert "measured" not in result.out
    assert "without hf-generate: it has no per-round data" in result.err
    assert "without prompt-lookup: it has no per-round data" in result.err


def test_it_prints_the_same_to_the_last_digit(treegraft, finished, clock):
    first, second = (
        treegraft("replay", finished, "--clock", clock, "--methods", "all-mid", "--format", "json") for _ in range(2)
    )

    assert first.out == second.out
    assert len(json.loads(first.out)["lines"]) > 2


def test_methods_of_the_run_keep_their_rounds(replayed, rows_of, finished):
    before = {(row.method, row.task, row.question_id, row.turn): row for row in rows_of(finished)}

    rows = replayed()

    assert {method for method, *_ in rows} == {"autoregressive", "all-small"}
    assert all(
        row.rounds == before[place].rounds and row.verdict == before[place].verdict for place, row in rows.items()
    )


def test_a_method_drafted_along_the_text_takes_the_rounds_that_it_takes_when_it_is_run(
    replayed, run, rows_of, finished
):
    flags = ["--tasks", "nq,mt_bench", "--limit", "2", "--max-new-tokens", "12", "--methods", ",".join(NEW)]
    assert run(*flags, "--out", "real").code == 0
    real = {(row.method, row.task, row.question_id, row.turn): row for row in rows_of("real")}

    rows = replayed("--methods", ",".join(NEW))

    for place, row in rows.items():
        if row.method in NEW:
            assert (row.rounds, row.prefill, row.token_ids) == (
                real[place].rounds,
                real[place].prefill,
                real[place].token_ids,
            )
            assert row.verdict == "unverified"
    assert {method for method, *_ in rows} == {"autoregressive", *NEW}


def test_methods_of_a_configuration_are_drafted_as_they_would_be_run(replayed, run, rows_of, finished, tmp_path):
    own = [
        {"name": "bold", "base": "entropy-confidence", "threshold": 0.2},
        {"name": "flat", "base": "all-small", "budget": 3},
    ]
    Path("own.yaml").write_text(json.dumps({"methods": own, "budget": 9}))
    flags = ["--tasks", "nq", "--limit", "2", "--max-new-tokens", "12", "--latency", "40,10"]
    assert run("own.yaml", *flags, "--out", "real").code == 0
    real = {(row.method, row.question_id): row.rounds for row in rows_of("real") if row.method == "flat"}

    rows = replayed("--config", "own.yaml")

    assert {method for method, *_ in rows} == {"autoregressive", "bold", "flat"}
    told = {(method, number): row.rounds for (method, task, number, _), row in rows.items() if task == "nq"}
    assert {place: rounds for place, rounds in told.items() if place[0] == "flat"} == real
    assert {method for method, *_ in replayed("--config", "own.yaml", "--methods", "flat,all-mid")} == {
        "autoregressive",
        "flat",
        "all-mid",
    }


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ([{"name": "x", "base": "csd", "options": {"leniency": 0}}], "method 'x': options: leniency"),
        (["assisted"], "it drafts no trees of ours"),
        ([{"name": "x"}], "'x' names no base"),
    ],
)
def test_a_configuration_with_what_cannot_be_replayed_is_refused(refused, finished, clock, methods, message):
    Path("own.yaml").write_text(json.dumps({"methods": methods}))
    assert message in refused("replay", finished, "--clock", clock, "--config", "own.yaml")


def test_a_name_of_the_run_is_no_name_for_another_method(run, refused, clock):
    for budget in (3, 5):
        own = [{"name": "flat", "base": "all-small", "budget": budget}]
        Path(f"{budget}.yaml").write_text(json.dumps({"methods": own}))
    flags = ["--tasks", "nq", "--limit", "1", "--max-new-tokens", "8"]
    assert run("3.yaml", *flags, "--out", "real").code == 0
    message = refused("replay", "real", "--clock", clock, "--config", "5.yaml")
    assert "5.yaml: method 'flat' is another one in the run; give it a name of its own" in message


def test_edges_of_a_method_drafted_along_the_text_are_those_of_its_run(replayed, run, rows_of, finished):
    flags = ["--tasks", "nq,mt_bench", "--limit", "2", "--max-new-tokens", "12", "--methods", ",".join(NEW)]
    assert run(*flags, "--out", "real").code == 0
    real = {(row.method, row.task, row.question_id, row.turn): row.edges for row in rows_of("real")}
    rows = {place: row.edges for place, row in replayed("--methods", ",".join(NEW)).items() if place[0] in NEW}
    assert rows == {place: edges for place, edges in real.items() if place[0] in NEW}
    assert any(rows.values())


def test_no_target_forward_is_run_to_draft_along_a_text(replayed, monkeypatch):
    asked = []
    for name in ("evaluate", "prefill"):
        original = getattr(TreeModel, name)

        def watched(self, *arguments, original=original):
            asked.append(self.model.config.num_hidden_layers)
            return original(self, *arguments)

        monkeypatch.setattr(TreeModel, name, watched)

    replayed("--methods", "all-mid")

    assert set(asked) == {2}  # the middle's; the target has three layers


def test_a_run_by_a_profiles_clock_has_the_times_of_its_replay(run, replayed, rows_of, clock):
    flags = [
        "--tasks",
        "nq",
        "--limit",
        "2",
        "--max-new-tokens",
        "8",
        "--methods",
        "autoregressive,all-small,all-mid,csd",
    ]
    assert run(*flags, "--out", "wall").code == 0
    assert run(*flags, "--clock", clock, "--out", "charged").code == 0

    rows = replayed(run=Path("wall"))

    charged = rows_of("charged")
    assert {row.clock for row in charged} == {"profile:plain"}
    for row in charged:
        again = rows[row.method, row.task, row.question_id, row.turn]
        assert (row.decode_s, row.prefill_s, row.spans) == (again.decode_s, again.prefill_s, again.spans)


REFUSED = {
    "the wall": (["--clock", "wall"], "the run was measured so already"),
    "an unknown profile": (["--clock", "profile:nowhere"], "unknown profile 'nowhere'"),
    "no clock at all": (["--clock", "sundial"], "give wall or profile:NAME"),
    "an unknown method": (["--methods", "all-middle"], "did you mean all-mid"),
    "a method without rounds": (["--methods", "prompt-lookup"], "method prompt-lookup: has no per-round data"),
    "a peer that it did not run": (["--methods", "assisted"], "it drafts no trees of ours"),
}


@pytest.mark.parametrize(("flags", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_replayed_is_refused(refused, finished, clock, flags, message):
    given = flags if "--clock" in flags else ["--clock", clock, *flags]

    assert message in refused("replay", finished, *given)


def test_a_folder_with_rows_is_refused_and_left_as_it_was(treegraft, refused, finished, clock):
    assert treegraft("replay", finished, "--clock", clock, "--out", "again").code == 0
    for folder in (finished, Path("again")):
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        assert "holds rows already" in refused("replay", finished, "--clock", clock, "--out", folder)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_what_cannot_be_reported_is_told_of_the_run_and_not_of_a_scratch_folder(refused, finished, clock):
    file = finished / "manifest.json"
    content = json.loads(file.read_text())
    content["pair"]["performance"] = False
    file.write_text(json.dumps(content))

    assert refused("replay", finished, "--clock", clock).startswith(f"treegraft: {finished}: pair toy is for correct")


def test_a_folder_without_a_run_is_refused(refused, clock, tmp_path):
    assert "manifest.json: cannot be read" in refused("replay", tmp_path, "--clock", clock)


def test_sampled_text_cannot_be_drafted_along(run, refused, clock):
    assert (
        run("--tasks", "nq", "--limit", "1", "--temperature", "1", "--methods", "all-small", "--out", "warm").code == 0
    )

    assert "the run sampled" in refused("replay", "warm", "--clock", clock, "--methods", "all-mid")


def test_a_peer_cannot_be_run_by_a_profiles_clock(refused, clock):
    assert "prompt-lookup have no per-round data" in refused("run", "--pair", "toy", "--clock", clock)


def test_changed_questions_are_refused(questions, run, refused, clock):
    data = questions("nq", ["Who?"], ["When?"])
    assert run("--tasks", "nq", "--data", data, "--out", "changed").code == 0
    questions("nq", ["Who?"], ["Where?"])

    assert "have changed" in refused("replay", "changed", "--clock", clock, "--methods", "all-mid")


ROOFLINE = "profile:h100-roofline/qwen3-32b-0.6b"


def test_a_run_takes_the_latencies_of_a_machine_that_is_not_at_hand_and_every_label_says_so(
    run, treegraft, rows_of, replayed, tmp_path
):
    flags = ["--tasks", "nq", "--limit", "2", "--methods", "autoregressive,all-small,all-mid"]
    assert run(*flags, "--clock", ROOFLINE, "--out", "charged").code == 0
    text = treegraft("report", "charged").out

    rows = rows_of("charged")
    assert {(row.pair, row.clock) for row in rows} == {("toy", ROOFLINE)}
    assert f"pair toy · modelled ({ROOFLINE})" in text
    assert "latencies of pair qwen3-32b-0.6b, with the acceptance of pair toy; unknown, so charged nothing:" in text
    manifest = json.loads(Path("charged", "manifest.json").read_text())
    assert manifest["latency"]["source"] == "profile h100-roofline/qwen3-32b-0.6b"
    assert manifest["latency"]["target_ms"] == pytest.approx(19.1, rel=0.01)
    plain = next(row for row in rows if row.method == "autoregressive")
    assert plain.decode_s / plain.committed == pytest.approx(0.01914 + 0.25e-3, rel=0.01)


def test_published_latencies_leave_what_they_do_not_tell_empty(treegraft, finished):
    result = treegraft("replay", finished, "--clock", "profile:paper-online/llama-70b-1b", "--format", "json")

    report = json.loads(result.out)
    assert {line["e2e_ratio"] for line in report["lines"]} == {None}
    assert all(line["speedup"] > 0 for line in report["lines"])
    assert report["sources"][-1].endswith(
        "charged nothing: small_commit_ms, middle_call_ms, verify_ms, other_ms, prefill"
    )


def test_a_machine_that_does_not_know_the_runs_own_pair_is_refused(run, refused, finished):
    asked = "pair toy: target: its architecture is not known; name a pair, as in profile:h100-roofline/qwen3-32b-0.6b"
    assert asked in refused("replay", finished, "--clock", "profile:h100-roofline")
    assert asked in refused("run", "--pair", "toy", "--methods", "all-small", "--clock", "profile:h100-roofline")


def test_a_row_that_failed_before_it_began_carries_the_profiles_name_too(questions, run, rows_of, clock):
    data = questions("mt_bench", ["Who? " * 2000, "Why?"])

    assert (
        run("--tasks", "mt_bench", "--data", data, "--methods", "all-small", "--clock", clock, "--out", "x").code == 1
    )

    assert [(row.turn, row.status, row.clock) for row in rows_of("x")] == [
        (turn, "failed", "profile:plain") for turn in (0, 0, 1, 1)
    ]


def test_fitted_methods_are_replayed_as_what_they_were_fitted_to_be(
    treegraft, replayed, random_artifact, finished, clock
):
    missing = treegraft("replay", finished, "--clock", clock, "--methods", "treegraft")
    assert missing.code == 2
    assert "no fitted artifact" in missing.err
    assert "no fitted method" in treegraft("replay", finished, "--clock", clock, "--artifact", random_artifact()).err
    names = ("treegraft", "treegraft-plus", "treegraft-calibrated", "all-mid")
    rows = replayed("--methods", ",".join(names), "--artifact", random_artifact())
    assert {method for method, *_ in rows} == {"autoregressive", *names}
    called = {method: sum(one.calls for one in row.rounds) for (method, *_), row in rows.items() if method in names}
    assert 0 < called["treegraft"] < called["all-mid"]
    Path("own.yaml").write_text(json.dumps({"methods": [{"name": "flat", "base": "all-small", "budget": 3}]}))
    beside = replayed("--config", "own.yaml", "--methods", "flat,treegraft", "--artifact", random_artifact())
    fitted = [place for place in rows if place[0] == "treegraft"]
    assert [beside[place].rounds for place in fitted] == [rows[place].rounds for place in fitted]
    nobody = treegraft("replay", finished, "--clock", clock, "--config", "own.yaml", "--artifact", random_artifact())
    assert nobody.code == 2
    assert "no fitted method that neither the run nor --config holds" in nobody.err


def asked_in(folder):
    """A question of a run, as `treegraft show` takes it."""
    row = json.loads(Path(folder, "rows.jsonl").read_text().split("\n")[0])
    return f"{row['task']}/{row['question_id']}"


def test_what_was_fitted_anew_since_is_not_taken_for_what_ran(run, refused, random_artifact, clock, tmp_path):
    shutil.copytree(random_artifact(), "mine")
    Path("own.yaml").write_text(json.dumps({"methods": [{"name": "x", "base": "treegraft", "artifact": "mine"}]}))
    flags = ["--tasks", "nq", "--limit", "1", "--max-new-tokens", "8", "--latency", "40,10"]
    assert run("own.yaml", *flags, "--out", "ran").code == 0
    fitted = json.loads(Path("mine/scheduler.json").read_text())
    Path("mine/scheduler.json").write_text(json.dumps({**fitted, "rate": 2 * fitted["rate"]}))
    changed = "method 'x': its artifact mine has changed since the run; restore it"
    assert changed in refused("replay", "ran", "--clock", clock)
    assert changed in refused("show", "ran", asked_in("ran"), "--method", "x")
    Path("mine/scheduler.json").unlink()
    gone = "ran: method 'x': its artifact mine cannot be read; restore it"
    assert gone in refused("replay", "ran", "--clock", clock)
    shutil.rmtree("mine")
    assert gone in refused("show", "ran", asked_in("ran"), "--method", "x")


def test_a_replay_says_what_its_schedulers_were_told_and_which_code_drafted(treegraft, run, clock):
    flags = ["--tasks", "nq", "--limit", "1", "--max-new-tokens", "12", "--methods", "all-small,always-early"]
    assert run(*flags, "--latency", "40,39", "--out", "ran").code == 0
    assert treegraft("replay", "ran", "--clock", clock, "--out", "there").code == 0
    ran, there = (json.loads(Path(folder, "manifest.json").read_text()) for folder in ("ran", "there"))
    assert there["latency"]["source"] == "profile plain"
    assert [start["at"] for start in there["starts"]][:-1] == [start["at"] for start in ran["starts"]]
    assert treegraft("show", "there", asked_in("ran"), "--method", "always-early").code == 0
    assert treegraft("replay", "ran", "--clock", clock, "--methods", "all-small", "--out", "kept").code == 0
    kept = json.loads(Path("kept/manifest.json").read_text())
    assert (kept["latency"], kept["starts"]) == (ran["latency"], ran["starts"])


def test_a_larger_tree_is_a_dearer_verification_to_schedulers(run, clock):
    flags = ["--tasks", "nq", "--limit", "1", "--max-new-tokens", "8", "--methods", "always-early", "--clock", clock]
    told = {}
    for budget in (3, 30):
        assert run(*flags, "--budget", budget, "--out", f"of-{budget}").code == 0
        told[budget] = json.loads(Path(f"of-{budget}/manifest.json").read_text())["latency"]["target_ms"]
    assert told[30] - told[3] == pytest.approx(27)  # a millisecond a token


def test_verifications_and_calls_are_timed_on_trees_of_the_runs_own_size(run, monkeypatch):
    from harness.clocks import latency

    timed, load = [], latency.load_family

    def loading(family):
        return lambda models, settings: (
            timed.append((settings.budget, settings.width)) or load(family)(models, settings)
        )

    monkeypatch.setattr(latency, "load_family", loading)
    flags = ["--tasks", "nq", "--limit", "1", "--max-new-tokens", "8", "--methods", "always-early"]
    assert run(*flags, "--budget", "3", "--width", "4", "--out", "measured").code == 0
    assert timed == [(3, 4)]


def test_a_configuration_without_methods_is_refused(refused, finished, clock):
    Path("own.yaml").write_text("budget: 9\n")
    assert "own.yaml: defines no methods" in refused("replay", finished, "--clock", clock, "--config", "own.yaml")
    Path("own.yaml").write_text("pair: smollm2\nmethods: [all-small]\n")
    other = refused("replay", finished, "--clock", clock, "--config", "own.yaml")
    assert "own.yaml: pair: smollm2, but" in other


def test_a_configuration_of_the_baseline_alone_replays_it_alone(replayed):
    Path("own.yaml").write_text("methods: [autoregressive]\n")
    assert {method for method, *_ in replayed("--config", "own.yaml")} == {"autoregressive"}


def test_a_scheduler_that_weighs_times_decides_anew_by_those_of_the_profile(run, replayed, treegraft, rows_of, clock):
    flags = ["--tasks", "nq", "--limit", "2", "--max-new-tokens", "16", "--methods", "always-early"]
    assert run(*flags, "--latency", "40,30", "--out", "once").code == 0  # B0 is 1
    assert run(*flags, "--clock", clock, "--out", "there").code == 0
    there = {row.question_id: row for row in rows_of("there") if row.method == "always-early"}
    rows = {place[2]: row for place, row in replayed(run="once").items() if place[0] == "always-early"}
    assert {place: row.rounds for place, row in rows.items()} == {place: row.rounds for place, row in there.items()}
    assert {row.decode_s for row in rows.values()} == {row.decode_s for row in there.values()}
    once = [row.rounds for row in rows_of("once") if row.method == "always-early"]
    assert [row.rounds for row in rows.values()] != once
    assert run(*flags, "--temperature", 1, "--out", "sampled").code == 0
    refused = treegraft("replay", "sampled", "--clock", clock)
    assert refused.code == 2
    assert "--methods always-early: the run sampled" in refused.err
    assert treegraft("replay", "sampled", "--clock", clock, "--methods", "autoregressive").code == 0
