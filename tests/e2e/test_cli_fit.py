"""`treegraft fit` and `oracle` on the toy pair: resumable, repeatable, never on questions to be measured on."""

import json
import shutil
from pathlib import Path

import pytest

from hardware_profiles.profile import write_profile
from methods.schedulers.signals import signal_groups

TEXTS = [
    "tell me a story",
    "one two three one two three",
    "abcabcabc",
    "why?",
    "count to ten and back",
    "to be or not to be",
]
FITTED = (
    "treegraft",
    "treegraft-plus",
    "treegraft-no-context",
    "treegraft-no-history",
    "treegraft-no-tree",
    "value-planner",
)


@pytest.fixture(autouse=True)
def quick_fits(monkeypatch):
    """Fit in fewer iterations and epochs: what is written, refused and repeated does not depend on how many."""
    monkeypatch.setattr("harness.training.q_values.ITERATIONS", 2)
    monkeypatch.setattr("harness.training.distillation._EPOCHS", 10)


@pytest.fixture
def clock(profile, tmp_path):
    write_profile(profile, tmp_path / "plain.yaml")
    return f"profile:{tmp_path / 'plain.yaml'}"


@pytest.fixture(scope="module")
def kept_runs(tmp_path_factory):
    """Runs of this module by what was asked: the same question is decoded once."""
    return tmp_path_factory.mktemp("runs"), {}


@pytest.fixture
def fit_run(run, tmp_path, kept_runs):
    """Run the baseline on questions of one's own for fitting; return the run's folder."""
    kept, known = kept_runs

    def call(*texts, out="base", **flags):
        folder = tmp_path / "data" / "gsm8k"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"question_id": number, "turns": [text]}) for number, text in enumerate(texts)]
        (folder / "fit.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        wanted = (texts, *sorted(flags.items()))
        if "pair" in flags or wanted not in known:  # a pair's file may be another one under the same name
            typed = [part for key, value in flags.items() for part in (f"--{key}", value)]
            fit = ["--data", "data", "--split", "fit", "--tasks", "gsm8k", "--methods", "autoregressive"]
            result = run(*fit, "--max-new-tokens", 16, "--out", out, *typed)
            assert result.code == 0, result.err
            known[wanted] = shutil.copytree(out, kept / str(len(known)))
        else:
            shutil.copytree(known[wanted], out)
        return out

    return call


@pytest.fixture
def traced_run(fit_run, treegraft, clock, kept_runs):
    """Return the folder of such a run whose schedules are traced already."""
    base, (_, known) = fit_run(*TEXTS), kept_runs
    if "traces" not in known:
        assert treegraft("oracle", base, "--clock", clock).code == 0
        known["traces"] = shutil.copytree(Path(base, "traces"), kept_runs[0] / "traces")
    elif not Path(base, "traces").exists():
        shutil.copytree(known["traces"], Path(base, "traces"))
    return base


def test_a_fitted_scheduler_decodes_is_judged_and_comes_out_the_same_again(
    treegraft, run, fit_run, clock, rows_of, caplog
):
    base = fit_run(*TEXTS)
    result = treegraft("fit", base, "--clock", clock, "--out", "fitted")
    assert result.code == 0, result.err
    assert "hindsight:" in result.out
    assert "call_gain" in result.out
    card = json.loads(Path("fitted/scheduler.json").read_text())["card"]
    assert card["questions"] == len(TEXTS)
    assert card["rounds"] == sum(row.committed for row in rows_of(base))
    assert card["figures"]["hindsight"]["rate"] >= card["figures"]["value models"]["rate"]
    assert card["figures"]["hindsight"]["gap"] == 0
    assert {"threshold, plus", "classification, plus"} < set(card["figures"])
    variants = json.loads(Path("fitted/scheduler.json").read_text())["variants"]
    groups = signal_groups(5)
    for name, network in variants.items():
        left_out = () if name == "plus" else {*groups["lookup"], *groups.get(name.removeprefix("no-"), ())}
        assert not {*left_out} & {*network["signals"]}

    shutil.copytree(Path(base, "traces"), "again-traces")
    lost, *kept = sorted(Path("again-traces").iterdir())
    lost.unlink()
    times = {file: file.stat().st_mtime_ns for file in kept}
    assert treegraft("fit", base, "--clock", clock, "--out", "again", "--traces", "again-traces").code == 0
    assert {file: file.stat().st_mtime_ns for file in kept} == times  # the same fit goes on where it was stopped
    for file in ("scheduler.json", "planner.json"):
        assert Path("again", file).read_bytes() == Path("fitted", file).read_bytes()

    Path("mine.yaml").write_text(
        "pair: toy\nmethods: ["
        + ", ".join(f"{{name: my-{name}, base: {name}, artifact: fitted}}" for name in FITTED)
        + "]\n"
    )
    decoded = treegraft(
        "run",
        "mine.yaml",
        "--data",
        "embedded",
        "--tasks",
        "nq",
        "--limit",
        1,
        "--max-new-tokens",
        8,
        "--threads",
        1,
        "--latency",
        "40,10",
        "--out",
        "decoded",
    )
    assert decoded.code == 0, decoded.err
    assert {row.method for row in rows_of("decoded")} == {"autoregressive", *(f"my-{name}" for name in FITTED)}
    assert all(row.verdict in ("reference", "identical") for row in rows_of("decoded"))
    manifest = json.loads(Path("decoded/manifest.json").read_text())
    assert len({spec["artifact_sha256"] for spec in manifest["methods"]} - {None}) == 1

    judged = treegraft("oracle", base, "--clock", clock, "--artifact", "fitted", "--format", "json")
    assert judged.code == 0, judged.err
    lines = {line["policy"]: line for line in json.loads(judged.out)["lines"] if line["task"] == "overall"}
    assert {"never", "always", "value-planner", "learned scheduler"} < set(lines)
    best = lines["best of each round, in hindsight"]
    assert all(line["tokens_per_s"] <= best["tokens_per_s"] + 1e-9 and line["gap"] >= 0 for line in lines.values())
    table = treegraft("oracle", base, "--clock", clock).out
    assert table.count("\n") > 10
    of_what = "Modelled: acceptance of pair toy, latencies of pair toy in "
    assert all(of_what in text for text in (table, result.out, json.loads(judged.out)["caption"]))
    charged = treegraft(
        "oracle", base, "--clock", clock, "--artifact", "fitted", "--decision-ms", 9, "--format", "json"
    )
    assert "decision 9 ms" in json.loads(charged.out)["caption"]
    assert "artifact fitted was fitted to 6 of these 6 questions" in caplog.text
    for line in lines.values():
        for over in ("over_endpoint", "over_single"):
            value, low, high = line[over]
            assert low <= high
            assert value <= 0 or line["policy"] not in ("never", "always")
    assert lines["best schedule, in hindsight"]["over_single"][0] == 0
    slower = {line["policy"]: line for line in json.loads(charged.out)["lines"] if line["task"] == "overall"}
    for policy, line in lines.items():
        decides = policy.startswith(("learned", "value"))
        assert (slower[policy]["tokens_per_s"] < line["tokens_per_s"]) == decides
    assert "--decision-ms: " in treegraft("fit", base, "--clock", clock, "--out", "x", "--decision-ms", "inf").err
    assert (
        "leave it out"
        in treegraft(
            "fit", base, "--clock", clock, "--out", "x", "--method", "treegraft-calibrated", "--decision-ms", 1
        ).err
    )


def test_questions_to_be_measured_on_are_refused_whatever_their_file_is_called(treegraft, refused, fit_run, clock, run):
    from tasks.registry import get_task
    from tasks.sources import load_questions

    secret = load_questions(get_task("alpaca"), data="embedded").questions[0].turns[0]
    base = fit_run(*TEXTS, f"  {secret}\n")
    message = refused("fit", base, "--clock", clock, "--out", "fitted")
    assert "gsm8k/6 is a question to be measured on; take it out of the fit questions" in message
    assert not Path(base, "traces").exists()

    assert run("--tasks", "nq", "--limit", 1, "--methods", "autoregressive", "--out", "eval").code == 0
    assert "run with --split fit" in refused("fit", "eval", "--clock", clock, "--out", "fitted")


def test_a_pair_that_is_held_out_is_not_fitted_to(refused, fit_run, clock, tmp_path):
    pair = {"about": "held out", "target": {"toy": {"seed": 0}}, "middle": {"toy": {"seed": 1}}, "held_out": True}
    (tmp_path / "own.yaml").write_text(json.dumps(pair))
    base = fit_run(*TEXTS, pair="own.yaml")
    for method in ("treegraft", "treegraft-calibrated"):
        message = refused("fit", base, "--method", method, "--clock", clock, "--out", "fitted")
        assert "pair own is held out of fitting" in message


def test_questions_that_the_same_folder_measures_on_are_refused(refused, fit_run, clock, tmp_path):
    base = fit_run(*TEXTS)
    (tmp_path / "data" / "gsm8k" / "question.jsonl").write_text(
        json.dumps({"question_id": 1, "turns": [TEXTS[3]]}) + "\n"
    )
    assert "gsm8k/3 is a question to be measured on" in refused("fit", base, "--clock", clock, "--out", "fitted")
    (tmp_path / "data" / "gsm8k" / "question.jsonl").unlink()
    other = tmp_path / "data" / "nq" / "question.jsonl"
    other.parent.mkdir()
    other.write_text(json.dumps({"question_id": 1, "turns": [TEXTS[2]]}) + "\n")
    assert "gsm8k/2 is a question to be measured on" in refused("fit", base, "--clock", clock, "--out", "fitted")
    other.write_text("{")
    assert "question.jsonl" in refused("fit", base, "--clock", clock, "--out", "fitted")


def test_what_cannot_be_fitted_is_refused(refused, fit_run, clock):
    base = fit_run(*TEXTS[:3])
    assert "answers to 5 questions at least are needed" in _last(refused, base, clock)
    assert "costs come from a profile" in refused("fit", base, "--clock", "wall", "--out", "fitted")
    assert "--out: missing" in refused("fit", base, "--clock", clock)
    assert "nowhere" in refused("fit", "nowhere", "--clock", clock, "--out", "fitted")
    sampled = fit_run(*TEXTS, out="sampled", temperature=1)
    assert "only greedy text can be traced" in refused("fit", sampled, "--clock", clock, "--out", "fitted")
    bare = fit_run(*TEXTS, out="other", pair="toy")
    Path("taken").write_text("")
    assert "--out taken: cannot be made" in refused("fit", bare, "--clock", clock, "--out", "taken")


def _last(refused, base, clock):
    return refused("fit", base, "--clock", clock, "--out", "fitted")


def test_traces_that_are_broken_are_named(treegraft, refused, fit_run, clock):
    base = fit_run(*TEXTS)
    assert treegraft("oracle", base, "--clock", clock).code == 0
    file = sorted(Path(base, "traces").iterdir())[2]
    file.write_bytes(file.read_bytes()[:50])
    assert f"{file}: no traces can be read" in refused("oracle", base, "--clock", clock)


def test_traces_of_another_answer_are_not_believed(treegraft, refused, fit_run, clock):
    base = fit_run(*TEXTS)
    assert treegraft("oracle", base, "--clock", clock).code == 0
    one, other, *_ = sorted(Path(base, "traces").iterdir())
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    message = refused("oracle", base, "--clock", clock)
    assert f"{one}: " in message
    assert "not that of the run's answer; remove it" in message
    one.write_bytes(kept)
    _edit(one, lambda rounds: rounds[0]["outcomes"][0].update(committed=0))
    assert f"{one}: round 0: 0 tokens committed" in refused("oracle", base, "--clock", clock)
    one.unlink()
    assert treegraft("oracle", base, "--clock", clock).code == 0


def test_traces_of_another_text_are_not_taken_whatever_the_row_is_called(treegraft, fit_run, clock):
    base = fit_run(*TEXTS[:2])
    assert treegraft("oracle", base, "--clock", clock).code == 0
    before = {*Path(base, "traces").iterdir()}
    rows = [json.loads(line) for line in Path(base, "rows.jsonl").read_text().splitlines()]
    longest = max((row for row in rows if row["method"] == "autoregressive"), key=lambda row: row["committed"])
    longest["token_ids"][0] ^= 1  # as another machine's rounding may have it
    Path(base, "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert treegraft("oracle", base, "--clock", clock).code == 0
    assert len({*Path(base, "traces").iterdir()} - before) == 1


def test_repeats_of_an_answer_are_traced_once(treegraft, fit_run, clock):
    base = fit_run(*TEXTS[:2], repeats=3)
    assert treegraft("oracle", base, "--clock", clock).code == 0
    assert len([*Path(base, "traces").iterdir()]) == 2


def test_a_pair_s_scheduler_for_other_steps_is_left_out_and_one_that_was_asked_for_is_refused(
    treegraft, refused, random_artifact, fit_run, clock, caplog, tmp_path
):
    pair = {"about": "with a scheduler", "target": {"toy": {"seed": 0}}, "middle": {"toy": {"seed": 1}}}
    pair["defaults"] = {"artifact": random_artifact()}
    (tmp_path / "own.yaml").write_text(json.dumps(pair))
    base = fit_run(*TEXTS[:2], pair="own.yaml", steps=3)
    result = treegraft("oracle", base, "--clock", clock)
    assert result.code == 0, result.err
    assert "fitted for 5 steps, not 3; fit another; going on without the pair's scheduler" in caplog.text
    message = refused("oracle", base, "--clock", clock, "--artifact", random_artifact())
    assert "fitted for 5 steps, not 3" in message


def _edit(file, change):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    rounds = table.to_pylist()
    change(rounds)
    pq.write_table(pa.Table.from_pylist(rounds, schema=table.schema), file)


def test_endpoints_take_the_time_that_replay_gives_them(treegraft, traced_run, clock, rows_of):
    base = traced_run
    assert any(row.finish == "eos" for row in rows_of(base))  # where an answer ends early, its last round drafts too
    assert treegraft("replay", base, "--clock", clock, "--methods", "all-small,all-mid", "--out", "again").code == 0
    result = treegraft("oracle", base, "--clock", clock, "--format", "json")
    lines = {line["policy"]: line for line in json.loads(result.out)["lines"] if line["task"] == "overall"}
    # Where every round calls, traces know no more than nearly how far the middle drafter was behind.
    for policy, method, off in (("never", "all-small", 1e-9), ("always", "all-mid", 0.01)):
        rows = [row for row in rows_of("again") if row.method == method]
        tokens_per_s = sum(row.committed for row in rows) / sum(row.decode_s for row in rows)
        assert lines[policy]["tokens_per_s"] == pytest.approx(tokens_per_s, rel=off)
        assert lines[policy]["rounds"] == sum(len(row.rounds) for row in rows)
        assert lines[policy]["calls"] == pytest.approx(
            sum(record.calls for row in rows for record in row.rounds) / lines[policy]["rounds"]
        )


@pytest.mark.parametrize(
    ("method", "policy"), [("treegraft", "learned scheduler"), ("treegraft-plus", "learned scheduler, plus")]
)
def test_a_scheduler_that_calls_now_and_then_decides_and_takes_the_time_as_in_replay(
    treegraft, random_artifact, traced_run, clock, rows_of, method, policy
):
    base = traced_run
    own = ("--artifact", random_artifact())
    assert treegraft("replay", base, "--clock", clock, "--methods", method, *own, "--out", "again").code == 0
    lines = json.loads(treegraft("oracle", base, "--clock", clock, *own, "--format", "json").out)["lines"]
    (line,) = (one for one in lines if (one["task"], one["policy"]) == ("overall", policy))
    rows = [row for row in rows_of("again") if row.method == method]
    records = [record for row in rows for record in row.rounds]
    calling = [record.calls > 0 for record in records]
    assert 0 < sum(calling) < len(calling)
    assert line["rounds"] == len(records)
    assert line["calls"] == pytest.approx(sum(record.calls for record in records) / len(records))
    tokens_per_s = sum(row.committed for row in rows) / sum(row.decode_s for row in rows)
    assert line["tokens_per_s"] == pytest.approx(tokens_per_s, rel=0.005)


def test_answers_of_one_token_are_judged_and_nothing_is_fitted_to_them(treegraft, refused, fit_run, clock):
    base = fit_run(*TEXTS, **{"max-new-tokens": 1})
    result = treegraft("oracle", base, "--clock", clock)
    assert result.code == 0, result.err
    assert "The pair has no fitted scheduler; give one with --artifact." in result.out
    message = refused("fit", base, "--clock", clock, "--out", "fitted")
    assert "no answer is long enough to draft anything; raise --max-new-tokens" in message
    message = refused("fit", base, "--method", "treegraft-calibrated", "--clock", clock, "--out", "fitted")
    assert "no answer is long enough to draft anything; raise --max-new-tokens" in message


def test_where_no_call_can_pay_nothing_is_fitted(refused, fit_run, profile, tmp_path):
    dear = profile.model_copy(update={"costs": profile.costs.model_copy(update={"middle_call_ms": 1e4})})
    write_profile(dear, tmp_path / "dear.yaml")
    message = refused("fit", fit_run(*TEXTS), "--clock", f"profile:{tmp_path / 'dear.yaml'}", "--out", "fitted")
    assert "B0 is 0, so that there is nothing to learn; give another clock, or max_calls" in message


def test_rounds_of_too_many_schedules_are_not_traced(refused, fit_run, clock):
    base = fit_run(*TEXTS[:1], steps=9)
    assert "9 steps have 512 schedules, too many to trace; give steps 8 at most" in refused(
        "oracle", base, "--clock", clock
    )


def test_rounds_of_a_small_neural_model_are_not_traced(refused, fit_run, clock, tmp_path):
    parts = ["target: {toy: {seed: 0}}", "middle: {toy: {seed: 1}}", "small: {toy: {seed: 2}}"]
    (tmp_path / "three.yaml").write_text("\n".join([*parts, "defaults: {small: neural}"]))
    base = fit_run(*TEXTS[:1], pair="three.yaml")
    assert "pair three: rounds of small neural cannot be traced; leave its small out" in refused(
        "oracle", base, "--clock", clock
    )


def test_what_cannot_be_written_is_told_before_the_work(refused, fit_run, clock):
    base = fit_run(*TEXTS)
    for method, file in (("treegraft", "planner.json"), ("treegraft-calibrated", "edges.json")):
        Path("taken", file).mkdir(parents=True)
        message = refused("fit", base, "--method", method, "--clock", clock, "--out", "taken")
        assert f"--out taken: {file} is a folder there" in message
    assert not Path(base, "traces").exists()


def test_an_artifact_that_was_fitted_to_something_else_is_told_and_used(
    treegraft, random_artifact, fit_run, clock, caplog
):
    shutil.copytree(random_artifact(), "own")
    fitted = json.loads(Path("own/scheduler.json").read_text())
    fitted["drafting"]["budget"] = 31
    Path("own/scheduler.json").write_text(json.dumps(fitted))

    def told(pair, artifact, base="treegraft"):
        method = {"name": "mine", "base": base, "artifact": artifact}
        Path("mine.yaml").write_text(json.dumps({"pair": pair, "data": "embedded", "methods": [method]}))
        caplog.clear()
        assert treegraft("validate", "mine.yaml").code == 0
        return caplog.text

    assert "was fitted" not in told("toy", random_artifact())
    assert "artifact own was fitted with budget 31, not 15" in told("toy", "own")
    assert "method mine: its artifact own was fitted to pair toy, not smollm2" in told("smollm2", "own")
    edges = json.loads(Path("own/edges.json").read_text())
    Path("own/edges.json").write_text(json.dumps({**edges, "drafting": {"steps": 5, "width": 3}}))
    assert "artifact own was fitted with width 3, not 10" in told("toy", "own", "treegraft-calibrated")
    caplog.clear()
    assert treegraft("oracle", fit_run(*TEXTS[:1]), "--clock", clock, "--artifact", "own").code == 0
    assert "artifact own was fitted with budget 31, not 15" in caplog.text
    caplog.clear()
    assert treegraft("oracle", "base", "--clock", clock, "--artifact", random_artifact()).code == 0
    assert f"was fitted under profile:none, not {clock}" in caplog.text


def test_learned_schedulers_of_a_pair_without_one_say_how_to_make_one(refused):
    message = refused("run", "--pair", "toy", "--methods", "treegraft", "--data", "embedded")
    assert (
        "method 'treegraft': scheduler learned: this pair has no fitted artifact; make one with treegraft fit"
        in message
    )


def test_replay_gives_schedulers_the_times_of_the_profile(treegraft, run, fit_run, clock, rows_of):
    base = fit_run(*TEXTS[:2])
    for out in ("one", "two"):
        result = treegraft(
            "replay", base, "--clock", clock, "--methods", "entropy-confidence,always-early", "--out", out
        )
        assert result.code == 0, result.err
    one, two = (
        [row.model_dump() for row in rows_of(folder) if row.method != "autoregressive"] for folder in ("one", "two")
    )
    assert one == two
    assert any(sum(record["schedule"]) for row in one for record in row["rounds"])


def test_a_fitted_edge_model_decodes_and_comes_out_the_same_again(treegraft, run, fit_run, clock, rows_of):
    base = fit_run(*TEXTS)
    for out in ("edges", "again"):
        result = treegraft("fit", base, "--method", "treegraft-calibrated", "--clock", clock, "--out", out)
        assert result.code == 0, result.err
        assert "a found token counts 1.0:" in result.out
    text = Path("edges/edges.json").read_text()
    assert text == Path("again/edges.json").read_text()
    assert json.loads(text)["drafting"] == {"steps": 5, "width": 10}
    card = json.loads(text)["card"]
    assert {"scikit-learn", "lightgbm"} < card["versions"].keys()
    assert card["visits"] > 0
    assert card["calibration"]["all"]["edges"] > 0
    assert card["rates"][card["chosen"]] == max(card["rates"].values())
    assert "copied 6" in card["unfitted"]  # texts this short tell nothing of such long matches
    names = ("treegraft-calibrated", "calibrated-none", "calibrated-gate", "calibrated-fusion", "calibrated-size")
    own = [{"name": f"my-{name}", "base": name, "artifact": "edges"} for name in names]
    Path("own.yaml").write_text(json.dumps({"methods": own}))
    result = run("own.yaml", "--tasks", "gsm8k", "--limit", 2, "--max-new-tokens", 12, "--out", "decoded")
    assert result.code == 0, result.err
    assert {row.verdict for row in rows_of("decoded")} == {"reference", "identical"}


def test_edges_are_not_fitted_to_questions_to_be_measured_on_and_broken_ones_are_refused(treegraft, run, clock):
    assert run("--tasks", "gsm8k", "--limit", 6, "--methods", "autoregressive", "--out", "eval").code == 0
    refused = treegraft("fit", "eval", "--method", "treegraft-calibrated", "--clock", clock, "--out", "x")
    assert refused.code == 2
    assert "measured on" in refused.err
    Path("broken").mkdir()
    Path("broken/edges.json").write_text("{}")
    Path("own.yaml").write_text("methods: [{name: my, base: treegraft-calibrated, artifact: broken}]\n")
    result = run("own.yaml", "--tasks", "gsm8k", "--out", "decoded")
    assert result.code == 2
    assert "edges.json" in result.err
    Path("own.yaml").write_text("methods: [{name: my, base: treegraft-calibrated, options: {fusoin: true}}]\n")
    result = run("own.yaml", "--tasks", "gsm8k", "--out", "decoded")
    assert result.code == 2
    assert "did you mean fusion" in result.err


EDGES = {
    "no file": (None, "edges.json cannot be read; write it with treegraft fit --method treegraft-calibrated"),
    "a rate of nothing": ({"rate": 0.0}, "edges.json: rate"),
    "a switch for a rate": ({"rate": True}, "edges.json: rate"),
    "a worth below nothing": ({"worth": -1.0}, "edges.json: worth"),
    "too few weights": ({"edges": {"missed": [0.0]}}, "edges.json: edges"),
    "a weight without bounds": ({"edges": {"missed": [1e308] * 6}}, "edges.json: edges.missed.0"),
    "no costs": ({"costs": []}, "edges.json: costs"),
}


@pytest.mark.parametrize("name", EDGES)
def test_a_broken_edge_model_is_named_by_its_key(refused, random_artifact, name):
    changes, words = EDGES[name]
    shutil.copytree(random_artifact(), "own")
    file = Path("own/edges.json")
    if changes is None:
        file.unlink()
    else:
        known = json.loads(file.read_text())
        edges = {**known["edges"], **changes.get("edges", {})}
        file.write_text(json.dumps({**known, **changes, "edges": edges}))
    method = {"name": "mine", "base": "treegraft-calibrated", "artifact": "own"}
    Path("mine.yaml").write_text(json.dumps({"pair": "toy", "data": "embedded", "methods": [method]}))
    assert words in refused("validate", "mine.yaml")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"when": "foo"}, "options: when"),
        ({"most": 0}, "options: most"),
        ({"most": True}, "options: most"),
        ({"most": 9, "size": "budget"}, "options: most: is not read with size budget"),
    ],
)
def test_unusable_options_of_calibrated_grafting_are_refused(refused, random_artifact, options, words):
    method = {"name": "mine", "base": "treegraft-calibrated", "artifact": random_artifact(), "options": options}
    Path("mine.yaml").write_text(json.dumps({"pair": "toy", "data": "embedded", "methods": [method]}))
    assert words in refused("validate", "mine.yaml")
