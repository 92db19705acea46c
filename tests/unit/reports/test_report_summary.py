import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from foundation.errors import UserError
from methods.core.generation import Round
from reports.ranks import rank_methods
from reports.row_summary import last_tallies, tally
from reports.run_facts import RunFacts
from reports.statistics import holm
from reports.summary import OVERALL, summarise as summarised, timing_label


def summarise(rows, facts=None):
    return summarised(last_tallies(rows), facts)


def line_of(lines, method, task="mini", clock="wall"):
    (line,) = [line for line in lines if (line.method, line.task, line.clock) == (method, task, clock)]
    return line


def test_identical_copies_of_the_baseline_give_exactly_one(row):
    # A pitfall elsewhere: the baseline's tokens were counted by other code than the method's.
    rows = [
        row(method, q, decode_s=0.1 * q + repeat / 7, committed=q + 3, repeat=repeat, accepted=[0] * (q + 3))
        for method in ("autoregressive", "copy")
        for q in range(1, 10)
        for repeat in (0, 1, 2)
    ]
    line = line_of(summarise(rows), "copy")
    assert (line.speedup, line.total_ratio, line.e2e_ratio) == (1.0, 1.0, 1.0)
    assert (line.ci_low, line.ci_high, line.p) == (1.0, 1.0, 1.0)


def test_the_baselines_own_line_is_one_without_interval_or_p(row):
    line = line_of(summarise([row("autoregressive", q, 0.3 * q) for q in range(1, 8)]), "autoregressive")
    assert (line.speedup, line.total_ratio, line.e2e_ratio) == (1.0, 1.0, 1.0)
    assert (line.ci_low, line.p, line.p_holm, line.notes) == (None, None, None, ())


def test_every_number_of_a_small_run_is_the_one_worked_by_hand(row):
    rows = [
        row("autoregressive", 1, 1.0, 10),
        row("autoregressive", 2, 2.0, 10),
        row("tree", 1, 0.5, 10, accepted=[4, 4]),
        row("tree", 2, 0.25, 10, accepted=[3, 2, 2]),
    ]
    line = line_of(summarise(rows), "tree")
    assert line.speedup == pytest.approx(4.0)  # √(2 · 8)
    assert line.total_ratio == pytest.approx(4.0)  # 3.0 ÷ 0.75
    assert line.e2e_ratio == pytest.approx(math.sqrt((1.5 / 1.0) * (2.5 / 0.75)))
    assert line.accepted_per_round == pytest.approx(15 / 5)
    assert line.tokens_per_round == pytest.approx(20 / 5)
    assert line.tokens_per_s == pytest.approx((20 + 40) / 2)
    assert (line.small_pct, line.middle_pct, line.scheduler_pct) == pytest.approx((10.0, 20.0, 0.0))
    assert (line.verify_pct, line.other_pct) == pytest.approx((60.0, 10.0))
    assert (line.ci_low, line.ci_high) == pytest.approx((2.0, 8.0))
    assert (line.n, line.dropped, line.p) == (2, 0, None)


def test_rounds_are_counted_not_indexed(row):
    rows = [row("autoregressive", 1, 1.0, 4), row("tree", 1, 0.5, 4, accepted=[3])]
    line = line_of(summarise(rows), "tree")
    assert (line.accepted_per_round, line.tokens_per_round) == (3.0, 4.0)


def test_tokens_per_round_are_pooled_under_one_name_and_averaged_over_prompts_under_another(row):
    accepted = {"even": ([1] * 5, [1] * 50), "spiky": ([9], [0] * 75 + [4] * 5)}
    rows = [
        row(method, q, committed=committed, accepted=of_prompt)
        for method, (short, long) in {"autoregressive": ([0] * 10, [0] * 100), **accepted}.items()
        for q, committed, of_prompt in ((1, 10, short), (2, 100, long))
    ]
    even, spiky = (line_of(summarise(rows), name) for name in accepted)
    assert (even.tokens_per_round, even.tokens_per_round_by_prompt) == (2.0, 2.0)
    assert (spiky.tokens_per_round, spiky.tokens_per_round_by_prompt) == pytest.approx((110 / 81, (10 + 1.25) / 2))


def test_the_baseline_commits_one_token_a_round(row):
    line = line_of(summarise([row("autoregressive", 1, 1.0, 4)]), "autoregressive")
    assert (line.accepted_per_round, line.tokens_per_round, line.tokens_per_s) == (0.0, 1.0, pytest.approx(4.0))


def test_a_peers_first_token_leaves_its_rate_but_not_its_end_to_end_time(row):
    rows = [row("autoregressive", 1, 1.0, 10), row("peer", 1, 0.9, 10, peer=True, decode_forwards=3)]
    line = line_of(summarise(rows), "peer")
    assert line.speedup == pytest.approx(0.1 / (0.9 / 9))
    assert line.e2e_ratio == pytest.approx(1.5 / 1.4)
    assert line.tokens_per_round == pytest.approx(9 / 3)
    assert (line.accepted_per_round, line.small_pct, line.other_pct) == (None, None, None)


def test_every_token_of_a_peers_first_forward_leaves_its_rate(row):
    rows = [row("autoregressive", 1, 1.0, 10), row("peer", 1, 0.7, 10, peer=True, decode_forwards=2, prefill_tokens=3)]
    assert line_of(summarise(rows), "peer").speedup == pytest.approx(0.1 / (0.7 / 7))


def test_a_method_without_spans_has_no_decomposition(row):
    lines = summarise([row("autoregressive"), row("tree", spans=None)])
    assert line_of(lines, "tree").verify_pct is None
    assert line_of(lines, "tree").accepted_per_round == 9.0


def test_a_failed_row_gives_no_number_and_drops_its_prompt(row, failed):
    rows = [row("autoregressive", q) for q in (1, 2)] + [row("tree", 1, 0.5), failed("tree", 2)]
    line = line_of(summarise(rows), "tree")
    assert (line.n, line.dropped, line.failed, line.verdicts["identical"]) == (1, 1, 1, 1)
    assert line.speedup == pytest.approx(2.0)
    assert line.tokens_per_s == pytest.approx(20.0)
    assert any("left out: 1" in note for note in line.notes)


def test_a_failed_row_ignores_numbers_that_were_left_in_it(row, failed):
    stale = row("tree", 2, 0.001, 10, status="failed", verdict=None)
    rows = [row("autoregressive", q) for q in (1, 2)] + [row("tree", 1, 0.5), stale]
    assert line_of(summarise(rows), "tree").speedup == pytest.approx(2.0)


def test_a_prompt_whose_baseline_failed_is_dropped_for_the_method(row, failed):
    rows = [row("autoregressive", 1), failed("autoregressive", 2), row("tree", 1, 0.5), row("tree", 2, 0.01)]
    line = line_of(summarise(rows), "tree")
    assert (line.n, line.dropped, line.failed) == (1, 1, 0)
    assert line.speedup == pytest.approx(2.0)


def test_a_shorter_set_of_rows_is_never_taken_for_an_equal_one(row):
    rows = [row("autoregressive", q) for q in range(1, 9)] + [row("tree", q) for q in range(1, 6)]
    line = line_of(summarise(rows), "tree")
    assert (line.n, line.dropped) == (5, 3)


@pytest.mark.parametrize(
    "changes",
    [{"committed": 1, "peer": True}, {"committed": 0}, {"decode_s": 0.0}, {"decode_s": -0.1}, {"e2e_s": None}],
)
def test_a_row_without_tokens_or_positive_times_is_not_rated_and_counted(row, changes):
    unrated = row("tree", 2, **changes)
    assert not tally(unrated).is_rated
    rows = [row("autoregressive", q) for q in (1, 2)] + [row("tree", 1, 0.5), unrated]
    line = line_of(summarise(rows), "tree")
    assert (line.n, line.dropped, line.unrated, line.failed) == (1, 1, 1, 0)
    assert line.speedup == pytest.approx(2.0)
    assert any("without a rate" in note for note in line.notes)


def test_verdicts_and_marks_are_counted_over_answered_rows(row, failed):
    verdicts = ["identical", "identical", "tie", "numeric", "different", "unverified", "tie"]
    rows = [row("autoregressive", q) for q in range(1, 9)]
    rows += [row("tree", q, verdict=verdict, marks=["throttled"] * (q == 1)) for q, verdict in enumerate(verdicts, 1)]
    rows.append(failed("tree", 8, marks=["throttled"]))
    line = line_of(summarise(rows), "tree")
    assert {name: count for name, count in line.verdicts.items() if count} == Counter(verdicts)
    assert (line.marked, line.failed) == (1, 1)


def test_an_answer_without_a_verdict_counts_as_unverified(row):
    line = line_of(summarise([row("autoregressive"), row("tree", verdict=None)]), "tree")
    assert (line.verdicts["identical"], line.verdicts["unverified"]) == (0, 1)


def test_fewer_than_six_prompts_give_no_p_and_a_note(row):
    rows = [row(method, q) for method in ("autoregressive", "tree") for q in range(1, 6)]
    line = line_of(summarise(rows), "tree")
    assert (line.p, line.p_holm) == (None, None)
    assert "fewer than 6 prompts: no p-value" in line.notes
    assert "fewer than 6 prompts: the interval covers less than 95%" in line.notes
    (one,) = (line for line in summarise([row("autoregressive"), row("tree")]) if line.method == "tree")
    assert one.notes == ("fewer than 6 prompts: no p-value", "fewer than 2 prompts: no interval")


def test_holm_spans_all_tasks_and_overall_of_one_clock(row):
    rows = [
        row(method, q, decode_s=1.0 + speed * (0.2 + 0.1 * ((q * 7) % 5 - 2)), task=task, clock=clock)
        for method, speed in (("autoregressive", 0.0), ("tree", 0.1), ("chain", 0.5))
        for task in ("a", "b")
        for clock in ("wall", "profile:x")
        for q in range(1, 9)
    ]
    for clock in ("wall", "profile:x"):
        claims = [line for line in summarise(rows) if line.clock == clock and line.p is not None]
        assert len(claims) == 6
        assert [line.p_holm for line in claims] == pytest.approx(holm([line.p for line in claims]))


def test_clocks_and_pairs_are_never_mixed(row):
    rows = [
        row(method, q, decode_s, clock=clock, pair=pair)
        for q in (1, 2)
        for clock, pair, times in (("wall", "toy", 0.5), ("wall", "big", 0.25), ("profile:gpu", "toy", 0.125))
        for method, decode_s in (("autoregressive", 1.0), ("tree", times))
    ]
    speedups = {(line.clock, line.pair): line.speedup for line in summarise(rows) if line.method == "tree"}
    assert speedups == pytest.approx({("profile:gpu", "toy"): 8.0, ("wall", "big"): 4.0, ("wall", "toy"): 2.0})


def test_the_timing_label_derives_from_the_clock():
    assert timing_label("wall") == "measured"
    assert timing_label("profile:h200") == "modelled (profile:h200)"


def test_one_task_has_no_overall_and_two_tasks_end_with_it(row):
    one = [row(method, q) for method in ("autoregressive", "tree") for q in (1, 2)]
    two = one + [row(method, q, task="code") for method in ("autoregressive", "tree") for q in (1, 2)]
    assert {line.task for line in summarise(one)} == {"mini"}
    assert [line.task for line in summarise(two) if line.method == "tree"] == ["code", "mini", OVERALL]


def test_overall_weighs_every_prompt_the_same(row):
    rows = [row("autoregressive", q, task=task) for task, q in (("a", 1), ("b", 1), ("b", 2), ("b", 3))]
    rows += [row("tree", 1, 1 / 16, task="a")] + [row("tree", q, 1.0, task="b") for q in (1, 2, 3)]
    line = line_of(summarise(rows), "tree", OVERALL)
    assert line.n == 4  # question 1 of one task is another prompt than question 1 of the other
    assert line.speedup == pytest.approx(2.0)


def test_methods_follow_the_configuration_else_the_alphabet_with_the_baseline_first(row):
    rows = [row(method) for method in ("zip", "alpha", "autoregressive", "tree")]
    assert [line.method for line in summarise(rows)] == ["autoregressive", "alpha", "tree", "zip"]
    facts = RunFacts(methods=("tree", "autoregressive", "zip"))
    assert [line.method for line in summarise(rows, facts)] == ["autoregressive", "tree", "zip", "alpha"]


def test_methods_are_ranked_by_speedup_whatever_share_of_their_drafts_was_accepted(row):
    """The share falls as trees grow, by arithmetic alone: the larger tree here is the faster."""
    sizes = {"tree-4": (0.6, [Round(None, 4, 4, [])] * 2), "tree-40": (0.4, [Round(None, 40, 9, [])])}
    shares = {name: rounds[0].accepted / rounds[0].drafted for name, (_, rounds) in sizes.items()}
    assert shares["tree-4"] > shares["tree-40"]
    rows = [row("autoregressive", q, task=task) for task in ("a", "b") for q in (1, 2)]
    for method, (decode_s, rounds) in sizes.items():
        rows += [row(method, q, decode_s, task=task, rounds=rounds) for task in ("a", "b") for q in (1, 2)]
    (ranking,) = rank_methods(summarise(rows))
    assert ranking.mean_ranks == {"tree-40": 1.0, "tree-4": 2.0, "autoregressive": 3.0}


def test_embedded_questions_are_labelled_in_their_task_and_overall(row):
    rows = [row("autoregressive", task=task) for task in ("a", "b")]
    assert [line.task for line in summarise(rows, RunFacts(embedded=frozenset({"a"})))] == [
        "a (embedded)",
        "b",
        "overall (partly embedded)",
    ]
    both = summarise(rows, RunFacts(embedded=frozenset({"a", "b"})))
    assert [line.task for line in both] == ["a (embedded)", "b (embedded)", "overall (embedded)"]


def test_two_answers_to_the_same_turn_are_refused(row):
    rows = [row("autoregressive"), row("tree"), row("tree", key="other settings")]
    with pytest.raises(UserError, match=r"tree answers mini/1/0 .* twice"):
        summarise(rows)


def test_rows_that_all_failed_are_nothing_to_report(failed):
    with pytest.raises(UserError, match="every row failed"):
        summarise([failed("autoregressive"), failed("tree")])


def test_rows_without_an_answered_baseline_are_nothing_to_report(row, failed):
    with pytest.raises(UserError, match="autoregressive"):
        summarise([failed("autoregressive"), row("tree")])


@settings(deadline=None, max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_order_of_rows_changes_nothing(row, data):
    rows = [
        row(
            method,
            q,
            decode_s=0.1 + ((q * 31 + turn * 17 + repeat * 7 + len(method)) % 23) / 9,
            task=task,
            turn=turn,
            repeat=repeat,
        )
        for method in ("autoregressive", "tree")
        for task in ("a", "b")
        for q in (1, 2, 3)
        for turn in (0, 1)
        for repeat in (0, 1)
    ]
    assert summarise(data.draw(st.permutations(rows))) == summarise(rows)


def test_an_end_to_end_ratio_is_missing_where_a_prefill_is_unknown(row):
    unknown = {"prefill_s": None, "e2e_s": None}
    rows = [
        row(method, q, seconds, clock="profile:gpu", **(unknown if method == "chain" and q == 3 else {}))
        for q in range(1, 9)
        for method, seconds in (("autoregressive", 1.0), ("tree", 0.5), ("chain", 0.5))
    ]

    lines = {line.method: line for line in summarise(rows)}

    assert lines["tree"].e2e_ratio == pytest.approx(1.5)
    assert (lines["chain"].e2e_ratio, lines["chain"].n, lines["chain"].unrated) == (None, 8, 0)
    assert lines["chain"].speedup == pytest.approx(2.0)
