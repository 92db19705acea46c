"""The regression gate: what it flags, what it passes, what it refuses."""

import json
import math

import pytest

from foundation.errors import UserError
from harness.records.rows import read_rows
from reports.compare import Retiming, compare, parse_margin
from reports.gate_text import FORMATS, render_comparison


def line_of(comparison, method="tree"):
    (line,) = [line for line in comparison.lines if line.method == method]
    return line


@pytest.fixture
def flat(profile):
    """A manifest's profile of that name."""
    return {**profile.model_dump(mode="json"), "name": "flat"}


# The Must-hold of the gate, on simulated runs of 6 tasks × 20 prompts: see `simulated_times` for their noise.


def test_a_delay_of_a_tenth_in_one_method_is_flagged_in_20_of_20_tries(session):
    verdicts = []
    for seed in range(20):
        comparison = compare(session("base", (1, seed)), session("head", (2, seed), slower=0.1), methods=["tree"])
        assert (comparison.exit_code, line_of(comparison).n) == (1, 120)
        verdicts.append(line_of(comparison).verdict)
    assert verdicts.count("regression") >= 18


def test_two_runs_of_the_same_are_passed_in_at_least_19_of_20_tries(session):
    passed = 0
    for seed in range(20):
        comparison = compare(session("base", (1, seed)), session("head", (3, seed)))
        assert [line.method for line in comparison.lines] == ["chain", "tree"]
        passed += comparison.exit_code == 0
    assert passed >= 19


def test_too_few_prompts_are_inconclusive_and_it_says_how_many_would_tell(session):
    comparison = compare(session("base", 1, prompts=2), session("head", 2, prompts=2, slower=0.06), methods=["tree"])
    line = line_of(comparison)
    assert (comparison.exit_code, line.verdict, line.n) == (1, "inconclusive", 12)
    assert "needs about" in line.reason or "needs over" in line.reason
    few = compare(session("base", 1, tasks="a", prompts=5), session("head", 2, tasks="a", prompts=5), methods=["tree"])
    assert (few.exit_code, line_of(few).reason) == (1, "needs about 6 prompts at least")


def test_the_number_of_prompts_is_what_an_unchanged_head_needs_to_pass(session):
    few = compare(session("base", 1, prompts=4), session("head", 2, prompts=4, slower=0.04), methods=["tree"])
    assert line_of(few).verdict == "inconclusive"
    needed = int(line_of(few).reason.split()[2])
    assert 24 < needed < 100
    passed = 0
    for seed in range(10):
        base, head = (session(name, (place, seed), prompts=needed // 6 + 1) for place, name in enumerate(("b", "h")))
        passed += compare(base, head, methods=["tree"]).exit_code == 0
    assert passed >= 5  # eight are expected


def test_a_loss_close_to_the_margin_takes_more_prompts_than_there_are(session):
    line = line_of(compare(session("base", 1), session("head", 2, slower=0.05), methods=["tree"]))
    assert (line.verdict, line.n) == ("inconclusive", 120)
    assert "over 10,000" in line.reason or int(line.reason.split()[2]) > 120


def test_a_run_against_itself_is_exactly_one(session):
    base = session("base", 1)
    line = line_of(compare(base, base, margin=0.0))
    assert (line.ratio, line.low, line.high, line.raw_ratio, line.verdict) == (1.0, 1.0, 1.0, 1.0, "ok")


def test_a_machine_that_is_slower_as_a_whole_is_no_regression(session, written, manifest):
    base = session("base", 1)
    slow = [
        one.model_copy(
            update={name: getattr(one, name) * 3 for name in ("prefill_s", "decode_s", "e2e_s")} | {"spans": None}
        )
        for one in read_rows(base)
    ]
    line = line_of(compare(base, written("head", slow)))
    assert line.ratio == pytest.approx(1.0)
    assert line.raw_ratio == pytest.approx(1 / 3)
    assert line.verdict == "ok"


def test_the_ratio_is_of_speedups_paired_by_prompt(row, written):
    def run(name, speedups):
        times = [("autoregressive", q, 1.0) for q in range(len(speedups))]
        times += [("tree", q, 1.0 / speedup) for q, speedup in enumerate(speedups)]
        return written(name, [row(method, q, s, task="a") for method, q, s in times])

    line = line_of(compare(run("base", [1, 2, 3, 4, 5, 6, 7]), run("head", [2, 4, 6, 8, 10, 12, 14])))
    assert (line.ratio, line.low, line.high) == pytest.approx((2.0, 2.0, 2.0))
    assert line.speedup_base == pytest.approx(math.prod(range(1, 8)) ** (1 / 7))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": "f" * 64}, "weights of the target differs: eeeeeeeeeeee in BASE, ffffffffffff in HEAD"),
        ({"data": {"sha256": "c" * 64}}, "data of a differs"),
        ({"data": {"split": "fit"}}, "split of a differs: eval in BASE, fit in HEAD"),
        ({"config": {"max_new_tokens": 64}}, "max_new_tokens differs: 10 in BASE, 64 in HEAD"),
        ({"config": {"temperature": 1.0}}, "temperature differs"),
        ({"config": {"stop": ["x"]}}, "stop differs"),
        ({"config": {"dtype": "bf16"}}, "dtype differs: fp32 in BASE, bf16 in HEAD"),
        ({"engines": {"target": "lean"}}, "engine of the target differs: hf in BASE, lean in HEAD"),
        ({"config": {"follow": "reference"}}, "follow differs: own in BASE, reference in HEAD"),
        ({"machine": {"cpu": "another"}}, "machine differs (cpu): a processor and another"),
        ({"machine": {"threads": 4}}, "machine differs (threads)"),
        ({"machine": {"gpus": ["H200"]}}, "machine differs (gpus)"),
        ({"pair": {"dtype": "bf16"}}, "dtype differs"),
        ({"pair": {"template": "plain"}}, "template differs"),
    ],
)
def test_what_is_not_comparable_is_refused_with_3_and_says_why(session, changes, words):
    comparison = compare(session("base", 1, prompts=2), session("head", 1, prompts=2, **changes))
    assert comparison.exit_code == 3
    assert comparison.lines == []
    for format in FORMATS:
        text = render_comparison(comparison, format)
        assert words in text
        assert "NOTHING COMPARABLE" in text


def test_seeds_matter_where_runs_sample_and_only_there(session):
    base, head = session("base", 1, prompts=6), session("head", 2, prompts=6, config={"seed": 1})
    assert compare(base, head).obstacles == []
    sampled = {"temperature": 1.0}
    base, head = (session(str(seed), 1, prompts=2, config={"seed": seed, **sampled}) for seed in (0, 1))
    assert compare(base, head).obstacles == ["seed differs: 0 in BASE, 1 in HEAD"]


def test_a_pair_for_correctness_alone_is_refused(session):
    base = session("base", 1, prompts=2, pair={"performance": False})
    assert "for correctness alone" in compare(base, base).obstacles[0]


def test_a_run_that_went_on_on_another_machine_is_refused(session):
    base = session("base", 1, prompts=2)
    content = json.loads((base / "manifest.json").read_text())
    content["starts"].append({**content["starts"][0], "machine": {"cpu": "another"}})
    (base / "manifest.json").write_text(json.dumps(content))
    assert any("machine differs (cpu)" in reason for reason in compare(base, base).obstacles)


def put(value, *path):
    def change(content):
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put([], "starts"), "machine unknown: the manifest of HEAD names none"),
        (put({}, "starts", 0, "machine"), "machine unknown: the manifest of HEAD names none"),
        (put({}, "weights"), "weights of the target unknown: the manifest of HEAD names none"),
        (put({"origin": "x"}, "weights", "target"), "weights of the target unknown: the manifest of HEAD names none"),
    ],
)
def test_a_manifest_that_does_not_say_what_must_agree_is_refused(session, change, words):
    base, head = session("base", 1, prompts=2), session("head", 1, prompts=2)
    content = json.loads((head / "manifest.json").read_text())
    change(content)
    (head / "manifest.json").write_text(json.dumps(content))
    assert words in compare(base, head).obstacles


@pytest.mark.parametrize(
    ("changes", "mode", "words"),
    [
        ({"task": "z"}, "wall", "rows of task z, but the manifest is of a, b, c, d, e, f"),
        ({"method": "stranger"}, "wall", "rows of method stranger, but the manifest is of autoregressive, chain, tree"),
        ({"clock": "profile:x"}, "replay", "rows of clock profile:x, but the manifest is of wall"),
    ],
)
def test_rows_that_the_manifest_does_not_know_are_an_error(session, written, manifest, changes, mode, words):
    rows = list(read_rows(session("base", 1, prompts=2)))
    rows = [one.model_copy(update=changes) if one.method == "tree" or mode == "replay" else one for one in rows]
    edited = written("edited", rows, manifest(config={"clock": "wall"}))
    with pytest.raises(UserError, match=words):
        compare(edited, edited, mode=mode)


def test_modelled_rows_that_were_edited_into_measured_ones_are_an_error(session, written, manifest, flat):
    edited = written(
        "edited",
        list(read_rows(session("base", 1, prompts=2))),
        manifest(config={"clock": "profile:x.yaml"}, profile={**flat, "name": "x"}),
    )
    with pytest.raises(UserError, match="rows of clock wall, but the manifest is of profile:x"):
        compare(edited, edited)


def test_runs_without_a_task_in_common_have_nothing_comparable(session):
    comparison = compare(session("base", 1, tasks="ab", prompts=2), session("head", 1, tasks="cd", prompts=2))
    assert comparison.obstacles == ["no task in common: a, b and c, d"]


def without(content, *names):
    return {**content, "methods": [one for one in content["methods"] if one["name"] not in names]}


def test_what_one_run_has_alone_is_left_out_in_sight(session, written, manifest):
    base = session("base", 1, tasks="abc")
    rows = [one for one in read_rows(session("whole", 2, tasks="bcd")) if one.method != "chain"]
    head = written("head", rows, without(manifest(), "chain"))
    comparison = compare(base, head)
    assert [line.method for line in comparison.lines] == ["tree"]
    assert comparison.left_out == ["method chain: in BASE alone", "task a: in BASE alone", "task d: in HEAD alone"]
    assert line_of(comparison).n == 40
    assert "task a: in BASE alone" in render_comparison(comparison, "table")


def test_prompts_lost_in_one_run_are_counted(session, written, manifest):
    base = session("base", 1)
    rows = [one for one in read_rows(session("whole", 2)) if (one.task, one.question_id) not in {("a", 0), ("b", 3)}]
    line = line_of(compare(base, written("head", rows)))
    assert (line.n, line.dropped) == (118, 2)
    assert "118/120" in render_comparison(compare(base, written("head", rows)), "table")


def test_marked_rows_are_counted_with_the_baselines(session, written):
    base = session("base", 1)
    rows = list(read_rows(base))
    rows[0] = rows[0].model_copy(update={"marks": ["cpu-contention"]})  # the baseline's
    rows[2] = rows[2].model_copy(update={"marks": ["cpu-contention"]})
    comparison = compare(base, written("head", rows))
    assert [line.marked for line in comparison.lines] == [1, 2]


def test_a_method_cannot_pass_by_failing_or_by_answering_otherwise(session, written, failed):
    base = session("base", 1)
    rows = list(read_rows(base))
    broken = [
        failed("tree", 0, task="a") if (one.task, one.question_id, one.method) == ("a", 0, "tree") else one
        for one in rows
    ]
    line = line_of(compare(base, written("head", broken)))
    assert (line.verdict, line.reason, line.n) == ("regression", "1 answers of BASE failed in HEAD", 119)
    other = [one.model_copy(update={"verdict": "different"}) if one.method == "tree" else one for one in rows]
    comparison = compare(base, written("head", other))
    assert line_of(comparison).reason == "120 answers of HEAD are not the baseline's"
    assert (comparison.exit_code, line_of(comparison, "chain").verdict) == (1, "ok")


def test_a_method_cannot_pass_by_rows_that_were_removed(session, written):
    base = session("base", 1)
    rows = [one for one in read_rows(base) if (one.task, one.question_id, one.method) != ("a", 0, "tree")]
    comparison = compare(base, written("head", rows))
    assert line_of(comparison).reason == "1 answers of BASE are missing in HEAD, beside its baseline's"
    assert (comparison.exit_code, line_of(comparison, "chain").verdict) == (1, "ok")


def of_tree(row, change):
    """A tree method's row as `change` makes it, None where there is to be none; other rows as they are."""
    return change(row) if row.method == "tree" else row


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        ("failed", "12 answers of BASE failed in HEAD"),
        ("missing", "12 answers of BASE are missing in HEAD, beside its baseline's"),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_a_method_whose_every_answer_was_lost_is_a_regression(session, written, failed, loss, reason, alone):
    base = session("base", 1, prompts=2)
    change = (lambda one: failed("tree", one.question_id, task=one.task)) if loss == "failed" else lambda one: None
    rows = [of_tree(one, change) for one in read_rows(base)]
    head = written("head", [one for one in rows if one is not None])
    comparison = compare(base, head, methods=["tree"] if alone else None)
    line = line_of(comparison)
    assert (comparison.exit_code, line.verdict, line.reason) == (1, "regression", reason)
    assert (line.n, line.dropped, line.ratio, line.speedup_base, line.raw_ratio) == (0, 12, None, None, None)
    assert (comparison.not_compared, comparison.left_out) == ([], [])
    for format in FORMATS:
        text = render_comparison(comparison, format)
        assert "FAIL" in text
        assert "regression" in text
    assert reason in text  # JSON, the last, folds no line


def test_a_method_that_neither_run_answered_keeps_the_gate_from_passing(session, written, failed):
    rows = list(read_rows(session("whole", 1)))
    rows = [of_tree(one, lambda one: failed("tree", one.question_id, task=one.task)) for one in rows]
    head = written("head", rows)
    comparison = compare(head, head)
    assert (comparison.exit_code, comparison.not_compared) == (1, ["tree"])
    assert "FAIL" in render_comparison(comparison, "table")
    assert line_of(comparison, "chain").verdict == "ok"
    assert compare(head, head, methods=["tree"]).exit_code == 1


def test_methods_that_head_was_not_asked_for_are_no_regression(session, written, manifest):
    base = session("base", 1, prompts=2)
    baseline = [one for one in read_rows(base) if one.method == "autoregressive"]
    head = written("head", baseline, without(manifest(), "tree", "chain"))
    comparison = compare(base, head)
    assert (comparison.exit_code, comparison.lines) == (3, [])
    assert comparison.obstacles == ["no method beside baselines is in both runs and can be timed"]
    assert comparison.left_out == ["method chain: in BASE alone", "method tree: in BASE alone"]
    with pytest.raises(UserError, match="--methods: HEAD: unknown method 'tree'"):
        compare(base, head, methods=["tree"])


def test_runs_of_other_questions_have_nothing_comparable_and_say_so(session, written):
    rows = list(read_rows(session("whole", 1, tasks="a", prompts=4)))
    halves = [written(name, [r for r in rows if r.question_id // 2 == half]) for half, name in enumerate(("b", "h"))]
    comparison = compare(*halves)
    assert comparison.exit_code == 3
    assert comparison.obstacles == ["no prompt in common: no question has rows in both runs"]
    for format in FORMATS:
        assert "no prompt in common" in render_comparison(comparison, format)


def test_runs_of_other_clocks_have_nothing_comparable_and_say_so(rounds_run, written, manifest, flat):
    base = rounds_run("base", 3, clock="profile:flat")
    rows = [one.model_copy(update={"clock": "profile:steep"}) for one in read_rows(base)]
    head = written("head", rows, manifest(profile={**flat, "name": "steep"}))
    clocks = compare(base, head, mode="replay", retime=(Retiming(lambda one: one, ""),) * 2)
    assert (clocks.exit_code, clocks.obstacles) == (3, ["no clock in common: profile:flat and profile:steep"])


def test_equal_runs_of_too_few_prompts_are_called_inconclusive_and_do_not_pass(session, written):
    base = session("base", 1, tasks="a", prompts=2)
    comparison = compare(base, base)
    assert comparison.exit_code == 1
    for format in FORMATS:
        text = render_comparison(comparison, format)
        assert "INCONCLUSIVE: too few prompts to tell whether every method is inside the margin." in text
        assert "FAIL" not in text
    rows = list(read_rows(base))
    other = [of_tree(one, lambda one: one.model_copy(update={"verdict": "different"})) for one in rows]
    assert "FAIL" in render_comparison(compare(base, written("head", other)), "table")


def test_settings_code_and_versions_that_changed_are_told(session):
    base, head = session("base", 1, prompts=6), session("head", 1, prompts=6, settings={"budget": 12})
    assert compare(base, head).changes == ["budget 15 → 12 (tree, chain)"]
    head = session("head", 1, prompts=6, pair={"attention": "eager"})
    assert compare(base, head).changes == ["attention sdpa → eager"]


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (["three"], r"--methods: BASE: unknown method 'three'; did you mean tree\?"),
        (["autoregressive"], "the baseline has nothing to be compared with"),
    ],
)
def test_methods_that_cannot_be_compared_are_an_error(session, methods, words):
    base = session("base", 1, prompts=1)
    with pytest.raises(UserError, match=words):
        compare(base, base, methods=methods)


def test_files_put_together_from_two_runs_are_an_error(session, written, row):
    base = session("base", 1, prompts=1)
    rows = [row(method, pair="other", task="a") for method in ("autoregressive", "tree")]
    with pytest.raises(UserError, match="rows of pair other, but the manifest is of toy"):
        compare(base, written("head", rows))


@pytest.mark.parametrize("content", ["", "{", "{}", '{"schema_version": 2}'])
def test_a_broken_manifest_is_an_error_that_names_it(session, content):
    base, head = session("base", 1, prompts=1), session("head", 1, prompts=1)
    (head / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=r"head/manifest\.json: "):
        compare(base, head)
    (head / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"head/manifest\.json: cannot be read"):
        compare(base, head)


def test_broken_rows_are_an_error_that_names_the_line(session):
    base, head = session("base", 1, prompts=1), session("head", 1, prompts=1)
    text = (head / "rows.jsonl").read_text()
    (head / "rows.jsonl").write_text(text.replace('"decode_s":', '"decode_s":"fast","x":', 1))
    with pytest.raises(UserError, match=r"head/rows\.jsonl:1: not a row of schema 1"):
        compare(base, head)


def test_an_edited_time_does_not_enter_the_ratio(session):
    base, head = session("base", 1), session("head", 1)
    lines = (head / "rows.jsonl").read_text().splitlines()
    edited = [json.loads(line) for line in lines]
    for one in edited[:60]:
        one["decode_s"] *= 0.2
    (head / "rows.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in edited))
    line = line_of(compare(base, head))
    assert (line.n, line.dropped, line.ratio) == (100, 20, 1.0)


# Replay: modelled times have no noise.


def retimer(ms_a_round):
    """Charge every round the same; see `harness.clocks.cost_model` for the real thing."""

    def retime(one):
        seconds = len(one.rounds or []) * ms_a_round / 1e3
        changes = {"clock": "profile:flat", "decode_s": seconds, "e2e_s": one.prefill_s + seconds, "spans": None}
        return one.model_copy(update=changes)

    return Retiming(retime, "acceptance of one, latencies of another")


@pytest.fixture
def rounds_run(row, written, manifest, flat):
    """Write a run whose tree method takes this many rounds for 10 tokens."""

    def run(name, rounds, **changes):
        own = manifest(profile=flat) if "clock" in changes else None
        rows = [row("autoregressive", q, task="a", **changes) for q in range(3)]
        accepted = [10 // rounds - 1] * (rounds - 1) + [10 - 10 // rounds * (rounds - 1) - 1]
        return written(name, [*rows, *(row("tree", q, task="a", accepted=accepted, **changes) for q in range(3))], own)

    return run


def test_replay_of_a_run_against_itself_is_exactly_one_and_has_no_bounds(rounds_run):
    base = rounds_run("base", 3)
    comparison = compare(base, base, mode="replay", retime=(retimer(7.3),) * 2)
    line = line_of(comparison)
    assert (line.ratio, line.low, line.high, line.verdict, line.timing) == (
        1.0,
        None,
        None,
        "ok",
        "modelled (profile:flat)",
    )
    assert (comparison.exit_code, comparison.margin) == (0, 0.0)


def test_replay_flags_the_smallest_loss_of_acceptance(rounds_run):
    line = line_of(compare(rounds_run("base", 3), rounds_run("head", 4), mode="replay", retime=(retimer(7.3),) * 2))
    assert line.ratio == pytest.approx(3 / 4)
    assert line.verdict == "regression"
    assert line.reason == "speedup 0.7500 of BASE's, tokens per round 0.7500 of BASE's"
    gain = compare(rounds_run("base", 4), rounds_run("head", 3), mode="replay", retime=(retimer(7.3),) * 2)
    assert gain.exit_code == 0


def test_replay_flags_a_loss_of_acceptance_that_the_profile_makes_up_for(rounds_run):
    fast, slow = retimer(1.0), retimer(9.0)

    def cheaper_rounds(one):
        return (fast if one.method == "tree" and len(one.rounds) == 4 else slow).timed(one)

    again = (Retiming(cheaper_rounds, ""),) * 2
    line = line_of(compare(rounds_run("base", 3), rounds_run("head", 4), mode="replay", retime=again))
    assert line.ratio > 6
    assert (line.verdict, line.reason) == ("regression", "tokens per round 0.7500 of BASE's")


def test_a_margin_in_replay_allows_a_loss(rounds_run):
    runs = rounds_run("base", 3), rounds_run("head", 4)
    assert compare(*runs, mode="replay", margin=0.25, retime=(retimer(7.3),) * 2).exit_code == 0
    assert compare(*runs, mode="replay", margin=0.24, retime=(retimer(7.3),) * 2).exit_code == 1


def test_replayed_runs_are_compared_as_they_are_whatever_the_machine(rounds_run, written, manifest, flat):
    base = rounds_run("base", 3, clock="profile:flat")
    head = written("head", list(read_rows(base)), manifest(machine={"cpu": "another"}, profile=flat))
    comparison = compare(base, head, mode="replay")
    assert (comparison.exit_code, line_of(comparison).timing) == (0, "modelled (profile:flat)")


def test_runs_replayed_with_different_profiles_are_refused(rounds_run, written, manifest, flat):
    base = rounds_run("base", 3, clock="profile:flat")
    head = written("head", list(read_rows(base)), manifest(profile={**flat, "device": "other"}))
    comparison = compare(base, head, mode="replay")
    assert comparison.obstacles == ["hardware profile differs: replay both runs with the same one"]
    assert compare(base, head, mode="replay", retime=(retimer(1.0),) * 2).exit_code == 0


def test_each_mode_refuses_the_others_times_and_says_what_to_do(rounds_run):
    measured, modelled = rounds_run("measured", 3), rounds_run("modelled", 3, clock="profile:flat")
    with pytest.raises(UserError, match=r"were measured; replay the run first, or give --clock profile:NAME"):
        compare(measured, measured, mode="replay")
    with pytest.raises(UserError, match=r"modelled \(clock profile:flat\); compare with --mode replay"):
        compare(modelled, modelled)


def test_methods_that_no_profile_can_time_are_left_out_in_sight(rounds_run, written, row):
    base = rounds_run("base", 3)
    both = written("both", [*read_rows(base), *(row("peer", q, task="a", peer=True) for q in range(3))])
    comparison = compare(both, both, mode="replay", retime=(retimer(1.0),) * 2)
    assert [line.method for line in comparison.lines] == ["tree"]
    assert comparison.left_out == ["method peer: has no per-round data, so no profile can time it"]


def test_methods_that_would_have_decided_otherwise_are_left_out_in_sight(rounds_run, written, row):
    base = rounds_run("base", 3)
    both = written("both", [*read_rows(base), *(row("learned", q, task="a") for q in range(3))])
    flat = retimer(1.0)
    choosy = Retiming(lambda one: None if one.method == "learned" else flat.timed(one), flat.caption)
    comparison = compare(both, both, mode="replay", retime=(choosy, choosy))
    assert [line.method for line in comparison.lines] == ["tree"]
    assert comparison.left_out == ["method learned: decides by its machine's times; replay both runs first, with --out"]


def test_modelled_comparisons_say_of_whose_acceptance_and_latencies(rounds_run):
    comparison = compare(rounds_run("a", 3), rounds_run("b", 3), mode="replay", retime=(retimer(1.0),) * 2)
    for format in FORMATS:
        assert "acceptance of one, latencies of another" in render_comparison(comparison, format)


# Text.


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("0%", 0.0), ("2.5%", 0.025)])
def test_a_margin_is_a_share(text, share):
    assert parse_margin(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "-1%", "100%", "five", "", "nan", "1"])
def test_a_margin_that_is_no_share_is_refused(text):
    with pytest.raises(UserError, match=r"--margin .*; write for example 5%"):
        parse_margin(text)


def test_every_format_says_the_verdict_and_that_times_are_measured_or_modelled(session, rounds_run):
    wall = compare(session("base", 1), session("head", 2, slower=0.3))
    replayed = compare(rounds_run("a", 3), rounds_run("b", 3), mode="replay", retime=(retimer(1.0),) * 2)
    for format in FORMATS:
        text = render_comparison(wall, format)
        assert "FAIL" in text
        assert "measured" in text
        assert "regression" in text
        text = render_comparison(replayed, format)
        assert "PASS" in text
        assert "modelled (profile:flat)" in text
        assert "measured" not in text


def test_the_terminal_table_fits_the_screen(session):
    text = render_comparison(compare(session("base", 1), session("head", 2, slower=0.3)), "table")
    assert max(map(len, text.split("\n"))) <= 120


def test_json_is_strict_and_carries_its_legend(session):
    content = json.loads(render_comparison(compare(session("base", 1), session("head", 2)), "json"))
    assert content["exit_code"] == 0
    assert content["lines"][1]["method"] == "tree"
    assert any(text.startswith("ratio:") for text in content["legend"])


def test_an_unknown_format_is_an_error(session):
    base = session("base", 1, prompts=1)
    with pytest.raises(UserError, match="choose one of table, markdown, json"):
        render_comparison(compare(base, base), "csv")
