"""`treegraft study` on the toy pair: what replay and oracle say of the same policies, the same to the last digit."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from hardware_profiles.profile import write_profile
from harness.training.q_values import TREES

FIT = ["go on", "one two three one two three", "abcabcabc", "why?", "count to ten and back"]
OTHERS = ["la la la la", "a b c d a b c", "xyxyxyx"]
EAGER = {"clock": "profile:h100-roofline/qwen3-32b-0.6b", "machine": {"layer_overhead_ms": 1.5}}
METHODS = {"autoregressive", "all-small", "all-mid"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, profile):
    """Two finished runs of the toy pair, one on questions for fitting, with their traces; and a profile."""
    from treegraft.cli.main import invoke

    folder = tmp_path_factory.mktemp("study")
    write_profile(profile, folder / "plain.yaml")
    for split, name, texts in (("fit", "fit.jsonl", FIT), ("eval", "question.jsonl", OTHERS)):
        file = folder / "data" / "gsm8k" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"question_id": number, "turns": [text]}) for number, text in enumerate(texts)]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        methods = "autoregressive" if split == "fit" else ",".join(sorted(METHODS))
        flags = ["--tasks", "gsm8k", "--methods", methods, "--max-new-tokens", "10", "--threads", "1", "--steps", "3"]
        flags += ["--budget", "9"]  # of which T_tgt is told
        data = ["--data", str(folder / "data"), "--split", split, "--out", str(folder / split)]
        assert invoke(["run", "--pair", "toy", *flags, *data]) == 0
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Fit less: what is tested is what becomes of a fit."""
    monkeypatch.setattr("harness.training.q_values.ITERATIONS", 1)
    monkeypatch.setitem(TREES, "n_estimators", 3)
    monkeypatch.setattr("harness.training.distillation._EPOCHS", 5)
    monkeypatch.setattr("harness.training.bootstrap.RESAMPLES", 99)


@pytest.fixture
def study(treegraft, runs):
    """Run a study with the given keys; return what it printed."""

    def call(*flags, fit=runs / "fit", on=runs / "eval", **values):
        Path("study.yaml").write_text(yaml.safe_dump({"about": "One under another.", **values}, sort_keys=False))
        return treegraft("study", "study.yaml", "--fit", fit, "--on", on, *flags)

    return call


@pytest.fixture
def plain(runs):
    return {"plain": {"clock": f"profile:{runs / 'plain.yaml'}"}}


def found(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


def by_policy(findings, condition):
    (lines,) = (one["lines"] for one in findings["conditions"] if one["condition"] == condition)
    return {line["policy"]: line for line in lines}


def test_endpoints_and_baseline_take_what_replay_charges_them(treegraft, study, runs, plain, rows_of):
    lines = by_policy(found(study("--format", "json", conditions=plain)), "plain")

    clock = plain["plain"]["clock"]
    assert treegraft("replay", runs / "eval", "--clock", clock, "--out", "replayed").code == 0
    rows = rows_of("replayed")
    assert {row.finish for row in rows} == {"length"}  # behind an end of sequence methods draft what traces do not
    took = {method: sum(row.decode_s for row in rows if row.method == method) for method in METHODS}
    speedups = {method: took["autoregressive"] / took[method] for method in METHODS}
    assert lines["never (all-small)"]["speedup"] == pytest.approx(speedups["all-small"])
    # In traces the middle drafter catches up on what it had evaluated already in decoding.
    assert 0.98 * speedups["all-mid"] < lines["always (all-mid)"]["speedup"] <= speedups["all-mid"]
    tokens = sum(row.committed for row in rows if row.method == "all-small")
    assert lines["never (all-small)"]["tokens_per_s"] == pytest.approx(tokens / took["all-small"])


def test_the_refitted_scheduler_is_the_one_that_fit_makes(treegraft, study, runs, plain):
    lines = by_policy(found(study("--format", "json", conditions=plain)), "plain")

    clock = plain["plain"]["clock"]
    fitted = treegraft("fit", runs / "fit", "--clock", clock, "--out", "fitted", "--traces", runs / "fit" / "traces")
    assert fitted.code == 0, fitted.err
    judged = treegraft("oracle", runs / "eval", "--clock", clock, "--artifact", "fitted", "--format", "json")
    overall = {line["policy"]: line for line in json.loads(judged.out)["lines"] if line["task"] == "overall"}
    for key in ("tokens_per_s", "calls"):
        assert lines["learned"][key] == pytest.approx(overall["learned scheduler"][key], rel=1e-12)


def test_the_whole_matrix_is_there_and_the_same_again_to_the_last_digit(study, plain):
    conditions = {**plain, "eager": EAGER}

    first, second = (
        study("--format", "json", conditions=conditions, fitted="each", schedules=["101"]) for _ in range(2)
    )

    assert first.out == second.out
    findings = found(first)
    assert [*by_policy(findings, "plain")] == [
        "never (all-small)",
        "always (all-mid)",
        "fixed 101",
        "learned",
        "learned, fitted on eager",
    ]
    assert by_policy(findings, "eager")["learned, fitted on plain"]["fitted"] == "plain"
    assert (findings["fit_prompts"], findings["prompts"]) == (len(FIT), len(OTHERS))
    assert [one["most_calls"] for one in findings["conditions"]] == [
        int(one["target_ms"] / one["middle_ms"]) for one in findings["conditions"]
    ]


def test_a_dearer_decision_slows_the_learned_scheduler_alone(study, plain):
    cheap, dear = (
        by_policy(found(study("--format", "json", conditions=plain, decision_ms=price)), "plain") for price in (0, 5)
    )

    assert dear["learned"]["speedup"] < 0.9 * cheap["learned"]["speedup"]
    for policy in ("never (all-small)", "always (all-mid)"):
        assert dear[policy] == cheap[policy]


@pytest.mark.parametrize("kind", ["table", "markdown"])
def test_every_table_says_whose_acceptance_and_whose_latencies_it_shows(study, plain, kind):
    result = study("--format", kind, conditions={**plain, "eager": EAGER}, fitted="first")

    assert result.code == 0, result.err
    own = (
        "Modelled: acceptance of pair toy, latencies of pair toy in float32 on a sheet of paper "
        "(profile:plain, published)"
    )
    other = (
        "Modelled: acceptance of pair toy, latencies of pair qwen3-32b-0.6b in bfloat16 on NVIDIA H100 SXM 80 GB "
        "(profile:eager/qwen3-32b-0.6b, roofline)"
    )
    assert own in result.out
    assert other in result.out
    assert "unknown and charged nothing: middle_call_ms, verify_ms" in result.out
    assert "measured" not in result.out


def test_a_figure_says_so_too_and_has_the_same_bytes_each_time(study):
    conditions = {f"eager-{ms}": {**EAGER, "machine": {"layer_overhead_ms": ms}} for ms in (0, 2)}
    axis = {"key": "layer_overhead_ms", "label": "ms to launch a layer"}
    for file in ("one.svg", "two.svg"):
        result = study("--figure", file, conditions=conditions, fitted="first", axis=axis)
        assert result.code == 0, result.err

    text = Path("one.svg").read_text(encoding="utf-8")
    assert text == Path("two.svg").read_text(encoding="utf-8")
    for part in (
        "Modelled: acceptance of pair toy",
        "latencies of pair qwen3-32b-0.6b on NVIDIA H100 SXM 80 GB",
        "unknown, charged nothing: middle_call_ms, verify_ms",
        "ms to launch a layer",
        "learned, fitted on eager-0",
    ):
        assert part in text
    assert "dc:date" not in text


def test_trees_of_another_width_have_traces_of_their_own_in_the_same_folder(study, plain, runs):
    conditions = {"wide": plain["plain"], "narrow": {**plain["plain"], "settings": {"width": 2}}}
    folders = ["--fit-traces", "fit-traces", "--traces", "traces"]

    findings = found(study("--format", "json", *folders, conditions=conditions, fitted="each", limit=5))

    assert len([*Path("fit-traces").iterdir()]) == 2 * 5
    assert len([*Path("traces").iterdir()]) == 2 * len(OTHERS)
    wide, narrow = (by_policy(findings, name) for name in conditions)
    assert wide["always (all-mid)"]["speedup"] != narrow["always (all-mid)"]["speedup"]
    wide_ms, narrow_ms = (one["middle_ms"] for one in findings["conditions"])
    assert narrow_ms < wide_ms


def test_runs_that_no_study_can_be_made_of_are_refused(refused, runs, plain, tmp_path):
    Path("study.yaml").write_text(yaml.safe_dump({"about": "x", "conditions": plain}))

    def message(fit, on, *flags):
        return refused("study", "study.yaml", "--fit", fit, "--on", on, *flags)

    assert "eval: on questions to be measured on; run with --split fit" in message(runs / "eval", runs / "fit")
    assert "is fitted to in" in message(runs / "fit", runs / "fit")
    assert "nowhere" in message("nowhere", runs / "eval")
    manifest = shutil.copytree(runs / "eval", tmp_path / "other") / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace(json.loads(text)["weights"]["target"]["sha256"], "0" * 64))
    assert "other: of other models than" in message(runs / "fit", "other")
    assert "axis: missing" in message(runs / "fit", runs / "eval", "--figure", "a.svg")
    manifest = shutil.copytree(runs / "eval", tmp_path / "wider") / "manifest.json"
    values = json.loads(manifest.read_text())
    values["config"]["budget"] = 12
    manifest.write_text(json.dumps(values))
    assert "wider: drafts with budget 12, not 9 as " in message(runs / "fit", "wider")


def test_what_cannot_be_drawn_or_judged_is_told_before_the_work(refused, runs, plain, monkeypatch):
    monkeypatch.setattr("harness.training.trace_collection.Collector.collect", lambda *_: pytest.fail("work began"))

    def message(*flags, **values):
        Path("study.yaml").write_text(yaml.safe_dump({"about": "x", **values}))
        return refused("study", "study.yaml", "--fit", runs / "fit", "--on", runs / "eval", *flags)

    assert "'10' has 2 bits for 3 steps (plain)" in message(conditions=plain, schedules=["10"])
    assert "answers to 2 questions at least" in message(conditions=plain, limit=1)
    eager = {"conditions": {"eager": EAGER}, "axis": {"key": "layer_overhead_ms", "label": "ms"}}
    assert "--figure nowhere/a.svg: cannot be written" in message("--figure", "nowhere/a.svg", **eager)


def test_studies_that_do_not_fit_the_runs_are_refused(refused, runs, plain):
    def message(**values):
        Path("study.yaml").write_text(yaml.safe_dump({"about": "x", "conditions": plain, **values}))
        return refused("study", "study.yaml", "--fit", runs / "fit", "--on", runs / "eval")

    assert "study.yaml: schedules: '10101' has 5 bits for 3 steps" in message(schedules=["10101"])
    assert "answers to 5 questions at least are needed; raise limit" in message(limit=4)
    never = {"settings": {"max_calls": 0}}
    assert "conditions.plain: B0 is 0, so that there is nothing to learn" in message(
        conditions={"plain": {**plain["plain"], **never}}
    )
    assert "unknown key 'condition'; did you mean conditions" in message(condition={})
    assert "--fit: missing; Folder of a greedy run" in refused("study", "study.yaml", "--on", runs / "eval")
