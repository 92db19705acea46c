"""Profiles measured on this machine, and schedulers' times."""

import json
from pathlib import Path

import pytest

from hardware_profiles.profile import get_profile, write_profile

FLAGS = ["profile", "--pair", "toy", "--repeats", "3", "--threads", "1"]


@pytest.fixture
def small_grid(monkeypatch):
    """Measure few points: what is done with them does not depend on how many there are."""
    monkeypatch.setattr("harness.profiling.profiler.SIZES", (1, 4, 16, 64))
    monkeypatch.setattr("harness.profiling.profiler.CONTEXTS", (64, 256))


@pytest.fixture
def measured(treegraft):
    result = treegraft(*FLAGS, "--out", "mine.yaml")
    assert result.code == 0, result.err
    return result


def test_a_measured_profile_times_a_replay(measured, treegraft, finished):
    profile = get_profile("mine.yaml")

    assert (profile.name, profile.kind, profile.pair, profile.dtype) == ("mine", "measured", "toy", "float32")
    assert set(profile.forwards) == set(profile.prefill) == set(profile.errors) == {"target", "middle"}
    assert all(error.points == 10 for error in profile.errors.values())
    assert profile.costs.small_node_ms + profile.costs.small_step_ms > 0
    assert profile.measured_with["machine"]["threads"] == 1
    assert "off by" in measured.out
    assert profile.weights == "own"
    assert "random" not in measured.out
    assert treegraft("replay", finished, "--clock", "profile:mine.yaml", "--methods", "all-mid").code == 0


def test_the_machine_is_compared_with_a_profile(small_grid, profile, treegraft):
    write_profile(profile.model_copy(update={"dtype": "float32"}), Path("slow.yaml"))

    result = treegraft(*FLAGS, "--out", "slow.yaml", "--check")

    assert result.code == 1
    assert "target: the profile says" in result.out
    assert get_profile("slow.yaml").forwards == profile.forwards


def test_a_profile_of_random_weights_says_so_wherever_it_is_shown(small_grid, treegraft, finished):
    result = treegraft(*FLAGS, "--random-weights", "--out", "mine.yaml")
    assert result.code == 0, result.err
    profile = get_profile("mine.yaml")

    assert (profile.weights, profile.kind, profile.pair, profile.engine) == ("random", "measured", "toy", "lean")
    assert profile.about == "shapes of toy with random weights"
    assert profile.sources["target"] == "random, its shape from toy {'seed': 0}"
    assert profile.sources["middle"] == "random, its shape from layers [0, 2] of the target"
    assert "acceptance was not measured" in profile.sources["costs"]
    assert "its weights were random" in result.out
    assert set(profile.forwards) == set(profile.prefill) == {"target", "middle"}
    assert profile.costs.small_node_ms + profile.costs.small_step_ms > 0
    replayed = treegraft("replay", finished, "--clock", "profile:mine.yaml", "--methods", "all-mid")
    assert "profile mine (measured with random weights; " in replayed.out


@pytest.mark.parametrize(("known", "now"), [("own", "random"), ("random", "own"), ("random", "random")])
def test_a_check_tells_whose_weights_were_measured(treegraft, profile, monkeypatch, known, now):
    write_profile(profile.model_copy(update={"weights": known, "dtype": "float32"}), Path("mine.yaml"))
    measured = profile.model_copy(update={"weights": now})
    monkeypatch.setattr("harness.profiling.profile_pair._measured", lambda *arguments: measured)
    result = treegraft(*FLAGS, "--out", "mine.yaml", "--check")

    assert result.code == 0
    line = f"weights: {known} in the profile, {now} now; times do not depend on them"
    assert result.out.splitlines()[0] == line


REFUSED = {
    "another ending": (["--out", "mine.json"], "give a file that ends in .yaml"),
    "no such folder": (["--out", "none/mine.yaml"], "no such folder"),
    "a name that no profile may have": (["--out", "Mine.yaml"], "a profile is called like its file"),
    "a folder in the file's place": (["--out", "folder.yaml"], "cannot be written"),
    "too few repeats": (["--repeats", "1"], "--repeats: Input should be"),
    "an unknown pair": (["--pair", "toi"], "unknown pair 'toi'"),
    "a shape that nobody knows": (
        ["--random-weights", "--pair", "owner/name"],
        "pair owner/name: target: the shape of owner/name is not known; put its config.json",
    ),
    "no such profile to compare with": (["--check", "--out", "none.yaml"], "cannot be read"),
}


@pytest.mark.parametrize(("flags", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_measured_is_refused_before_anything_is_measured(refused, monkeypatch, flags, message):
    Path("folder.yaml").mkdir()
    monkeypatch.delattr("harness.profiling.profile_pair.Profiler")
    assert message in refused(*FLAGS, *flags)


def test_a_file_that_is_no_profile_is_not_written_over(refused, monkeypatch):
    monkeypatch.delattr("harness.profiling.profile_pair.Profiler")
    Path("bench.yaml").write_text("pair: toy\nmethods: [all-small]\n")

    assert "bench.yaml: is there and no profile" in refused(*FLAGS, "--out", "bench.yaml")
    assert Path("bench.yaml").read_text().startswith("pair: toy")


def test_a_profile_of_another_pair_is_not_compared(refused, profile):
    write_profile(profile.model_copy(update={"pair": "smollm2"}), Path("other.yaml"))

    assert "a profile of pair smollm2" in refused(*FLAGS, "--check", "--out", "other.yaml")
    write_profile(profile.model_copy(update={"dtype": "bfloat16"}), Path("half.yaml"))
    assert "a profile of forwards in bfloat16" in refused(*FLAGS, "--check", "--out", "half.yaml")
    write_profile(profile.model_copy(update={"engine": "hf"}), Path("hf.yaml"))
    message = refused(*FLAGS, "--check", "--engine", "lean", "--out", "hf.yaml")
    assert "a profile of engine hf; give --engine hf, or auto" in message


def latency(folder):
    return json.loads((Path(folder) / "manifest.json").read_text())["latency"]


TASK = ["--tasks", "nq", "--limit", "1"]


def test_what_schedulers_are_told_is_measured_once_and_kept(run):
    flags = [*TASK, "--methods", "all-mid", "--out", "run"]
    assert run(*flags).code == 0
    first = latency("run")
    (Path("run") / "rows.jsonl").write_text("")
    assert run(*flags).code == 0

    assert first["source"].startswith("measured on a prompt of ")
    assert first["target_ms"] > 0
    assert first["middle_ms"] > 0
    assert latency("run") == first


def test_what_schedulers_are_told_can_be_given(run):
    assert run(*TASK, "--methods", "all-mid", "--latency", "69.4,44.2", "--out", "run").code == 0

    assert latency("run") == {"target_ms": 69.4, "middle_ms": 44.2, "source": "given by latency"}


def test_a_run_without_a_middle_measures_none(run):
    assert run(*TASK, "--methods", "all-small", "--out", "run").code == 0

    assert latency("run") is None


CRAMPED = """target: {{path: cramped}}
middle: {{target_layers: [0, 2]}}
template: {template}
dtype: fp32
"""


@pytest.fixture
def cramped(questions):
    """A pair whose context has room for 48 tokens; return its flags, with questions of a short and two long prompts."""
    from harness.models.toy import toy_model, toy_tokenizer

    model = toy_model(0)
    model.config.max_position_embeddings = 60
    model.save_pretrained("cramped")
    toy_tokenizer().save_pretrained("cramped")
    Path("cramped.yaml").write_text(CRAMPED.format(template="chat"))
    data = questions("nq", ["x" * 200], ["y" * 190], ["Who is it, and why is he there?"])
    return ["--pair", "cramped.yaml", "--tasks", "nq", "--data", data, "--methods", "all-mid", "--out", "run"]


def test_a_pair_without_room_for_a_profile_is_refused(refused, cramped):
    assert "holds 60 tokens" in refused("profile", "--pair", "cramped.yaml", "--out", "mine.yaml")


def test_a_prompt_that_does_not_fit_is_not_measured_on(treegraft, cramped, rows_of):
    result = treegraft("run", *cramped, "--max-new-tokens", "8")

    assert result.code == 1  # the long prompt's rows failed, and said so
    assert {row.status for row in rows_of("run") if row.question_id < 2} == {"failed"}
    (fitting,) = {row.prompt_tokens for row in rows_of("run") if row.question_id == 2}
    assert latency("run")["source"] == f"measured on a prompt of {fitting} tokens"


def test_schedulers_are_told_of_the_prompt_of_median_length(run, questions, rows_of):
    data = questions("nq", ["a" * 60], ["b" * 8], ["c" * 20], ["d" * 90], ["e" * 31])
    assert run("--tasks", "nq", "--data", data, "--methods", "all-mid", "--out", "run").code == 0

    (middle,) = {row.prompt_tokens for row in rows_of("run") if row.question_id == 4}
    assert latency("run")["source"] == f"measured on a prompt of {middle} tokens"


def test_where_no_prompt_fits_nothing_is_told(treegraft, cramped):
    file = Path("cramped/config.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "max_position_embeddings": 20}))

    assert treegraft("run", *cramped, "--max-new-tokens", "8").code == 1

    assert latency("run") is None


@pytest.mark.parametrize("value", ["5", "5,0", "a,b", "1,2,3", "5,inf"])
def test_an_unusable_latency_is_refused(refused, value):
    assert refused("run", "--pair", "toy", "--latency", value).startswith("treegraft: --latency: ")
