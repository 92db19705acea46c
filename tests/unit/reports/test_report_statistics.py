import itertools
import math

import numpy as np
import pytest
from scipy import stats

from reports.pairing import Answers, Pairing, pair_with_baseline, turns_of
from reports.row_summary import tally
from reports.statistics import (
    benjamini_hochberg,
    bootstrap_interval,
    geometric_mean,
    holm,
    prompt_effect,
    prompts_needed,
    rank_biserial,
    rank_over_tasks,
    sign_flip_p,
    total_time_ratio,
)


def pair(*rows):
    """Pair tallies of one method with the baseline's."""
    tallies = [tally(row) for row in rows]
    return pair_with_baseline(tallies, turns_of(tallies))["tree"]


def numpy_interval(strata, draws, seed):
    rng = np.random.default_rng(seed)
    resampled = [rng.choice(sample, (draws, len(sample))) for sample in strata.values()]
    means = np.concatenate(resampled, axis=1).mean(axis=1)
    return np.exp(np.quantile(means, [0.025, 0.975]))


def numpy_sign_flip(values):
    signs = np.array(list(itertools.product([1, -1], repeat=len(values))))
    flipped = np.abs((signs * values).mean(axis=1))
    return float(np.mean(flipped >= abs(np.mean(values)) * (1 - 1e-12)))


def test_a_prompts_speedup_is_baseline_time_per_token_over_the_methods(row):
    # 2.0 s / 10 tokens = 0.2; 0.6 s / 12 tokens = 0.05; end to end 2.5/10 = 0.25 over 1.1/12
    pairing = Pairing(
        ("mini", 1),
        (Answers((tally(row("autoregressive", decode_s=2.0)),)),),
        (Answers((tally(row("tree", 1, 0.6, 12)),)),),
    )
    effect = prompt_effect(pairing)
    assert math.exp(effect.log_speedup) == pytest.approx(4.0)
    assert math.exp(effect.log_e2e) == pytest.approx(0.25 / (1.1 / 12))
    assert effect.tokens_per_s == pytest.approx(20.0)


def test_repeats_are_averaged_in_the_logarithm_before_anything_else(row):
    base = tuple(Answers((tally(row("autoregressive", decode_s=s, repeat=i)),)) for i, s in enumerate((1.0, 1.0)))
    fast_and_slow = tuple(Answers((tally(row("tree", decode_s=s, repeat=i)),)) for i, s in enumerate((0.5, 0.125)))
    effect = prompt_effect(Pairing(("mini", 1), base, fast_and_slow))
    assert math.exp(effect.log_speedup) == pytest.approx(4.0)  # √(2 · 8), not their mean 5


def test_two_turns_of_a_conversation_are_one_prompt_with_summed_times_and_tokens(row):
    base = [row("autoregressive", 1, 1.0, 10, turn=0), row("autoregressive", 1, 3.0, 30, turn=1)]
    tree = [row("tree", 1, 0.8, 10, turn=0), row("tree", 1, 0.2, 30, turn=1)]
    pairings = pair(*base, *tree)
    assert len(pairings) == 1
    assert math.exp(prompt_effect(pairings[0]).log_speedup) == pytest.approx(4.0)  # (4/40) ÷ (1/40)


def test_a_conversation_that_lost_a_turn_is_left_out_on_both_sides(row, failed):
    base = [row("autoregressive", q, turn=t) for q in (1, 2) for t in (0, 1)]
    tree = [row("tree", 1, turn=0), failed("tree", 1, turn=1), row("tree", 2, turn=0), row("tree", 2, turn=1)]
    pairings = pair(*base, *tree)
    assert [pairing.prompt for pairing in pairings] == [("mini", 2)]


def test_only_repeats_that_both_answered_are_compared(row):
    base = [row("autoregressive", decode_s=1.0, repeat=0), row("autoregressive", decode_s=9.0, repeat=1)]
    tree = [row("tree", decode_s=0.5, repeat=0)]
    (pairing,) = pair(*base, *tree)
    assert math.exp(prompt_effect(pairing).log_speedup) == pytest.approx(2.0)


def test_the_total_ratio_pools_times_over_each_sides_own_tokens(row):
    base = [row("autoregressive", 1, 1.0, 10), row("autoregressive", 2, 5.0, 50)]
    tree = [row("tree", 1, 1.0, 10), row("tree", 2, 0.5, 20)]
    pairings = pair(*base, *tree)
    assert total_time_ratio(pairings) == pytest.approx((6.0 / 60) / (1.5 / 30))


def test_the_geometric_mean_of_two_and_eight_is_four():
    assert geometric_mean([math.log(2), math.log(8)]) == pytest.approx(4.0)


def test_the_interval_agrees_with_a_numpy_bootstrap_stratified_by_task():
    rng = np.random.default_rng(5)
    strata = {
        "a": list(rng.normal(0.2, 0.1, 25)),
        "b": list(rng.normal(0.9, 0.3, 40)),
        "c": list(rng.normal(0, 0.2, 12)),
    }
    assert bootstrap_interval(strata) == pytest.approx(numpy_interval(strata, 20_000, seed=1), abs=0.006)


def test_strata_make_the_interval_narrower_than_pooling_tasks_that_differ():
    rng = np.random.default_rng(6)
    slow, fast = list(rng.normal(0.0, 0.05, 20)), list(rng.normal(1.0, 0.05, 20))
    low, high = bootstrap_interval({"slow": slow, "fast": fast})
    pooled_low, pooled_high = bootstrap_interval({"both": slow + fast})
    assert (high - low) < (pooled_high - pooled_low) / 3


def test_the_t_interval_beyond_2000_prompts_is_what_resampling_says(monkeypatch):
    rng = np.random.default_rng(9)
    strata = {"a": list(rng.normal(0.1, 0.2, 1500)), "b": list(rng.normal(0.9, 0.4, 700))}
    by_t = bootstrap_interval(strata)
    monkeypatch.setattr("reports.statistics.MANY_PROMPTS", 10_000)
    assert by_t == pytest.approx(bootstrap_interval(strata), abs=0.03 * (by_t[1] - by_t[0]))
    assert by_t[0] < math.exp(np.mean(strata["a"] + strata["b"])) < by_t[1]


def test_the_interval_covers_the_truth_at_about_its_level(monkeypatch):
    # 300 draws of 40 prompts: 95% ± 1.3% Monte-Carlo error (1 s.d.), percentile slightly narrow
    monkeypatch.setattr("reports.statistics.RESAMPLES", 499)
    rng = np.random.default_rng(7)
    intervals = [bootstrap_interval({"a": list(rng.normal(0.3, 0.2, 40))}) for _ in range(300)]
    covered = np.mean([low <= math.exp(0.3) <= high for low, high in intervals])
    assert 0.90 <= covered <= 0.98


@pytest.mark.parametrize("sizes", [[6], [2, 2, 2], [1] * 6, [3, 3], [2] * 6, [2, 9]], ids=str)
def test_few_prompts_cover_the_truth_however_they_lie_in_tasks(monkeypatch, sizes):
    # 300 draws: 95% ± 1.3% Monte-Carlo error (1 s.d.); resampled by themselves, three tasks of two cover 75%
    monkeypatch.setattr("reports.statistics.RESAMPLES", 499)
    rng = np.random.default_rng(8)
    draws = [{str(task): list(rng.normal(0.3, 0.15, n)) for task, n in enumerate(sizes)} for _ in range(300)]
    intervals = [bootstrap_interval(strata) for strata in draws]
    assert np.mean([low <= math.exp(0.3) <= high for low, high in intervals]) >= 0.90


def test_fewer_than_two_prompts_have_no_interval():
    assert bootstrap_interval({"a": [0.5]}) is None
    assert bootstrap_interval({}) is None


def test_tasks_with_one_prompt_each_are_resampled_together():
    low, high = bootstrap_interval({"a": [0.0], "b": [1.0], "c": [0.5, 0.6]})
    assert low < high


def test_identical_prompts_have_an_interval_of_no_width():
    assert bootstrap_interval({"a": [0.0] * 8}) == (1.0, 1.0)


@pytest.mark.parametrize("n", [6, 9, 12])
def test_p_agrees_with_all_sign_patterns_counted_in_numpy(n):
    values = np.random.default_rng(n).normal(0.1, 0.2, n)
    assert sign_flip_p(list(values)) == pytest.approx(numpy_sign_flip(values))


def test_p_of_many_prompts_is_close_to_the_t_test():
    values = np.random.default_rng(3).normal(0.03, 0.1, 80)
    assert sign_flip_p(list(values)) == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue, abs=0.01)


def test_six_prompts_that_all_gain_have_p_two_in_sixty_four():
    assert sign_flip_p([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == pytest.approx(2 / 64)


def test_fewer_than_six_prompts_have_no_p():
    assert sign_flip_p([1.0] * 5) is None


def test_no_effect_at_all_has_p_one():
    assert sign_flip_p([0.0] * 20) == 1.0


def test_holm_steps_down_from_the_smallest_p():
    # sorted .01 .03 .04 → 3·.01, max(.03, 2·.03), max(.06, .04), back in the order given
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([]) == []


def test_benjamini_and_hochberg_step_up_from_the_largest_p():
    # sorted .01 .03 .04 → min(3·.01, 3/2·.03, .04), min(3/2·.03, .04), .04, back in the order given
    assert benjamini_hochberg([0.04, 0.01, 0.03]) == pytest.approx([0.04, 0.03, 0.04])
    assert benjamini_hochberg([]) == []


@pytest.mark.parametrize("n", [2_001, 6_000])
def test_beyond_two_thousand_prompts_p_is_that_of_drawn_sign_patterns(n):
    rng = np.random.default_rng(n)
    values = rng.laplace(0.0, 0.1, n)
    values += 1.8 * values.std() / math.sqrt(n) - values.mean()  # p near .07
    signs = rng.integers(0, 2, (4_000, n), dtype=np.int8) * 2 - 1
    drawn = np.mean(np.abs(signs @ values) >= abs(values.sum()))
    assert sign_flip_p(list(values)) == pytest.approx(drawn, abs=0.015)


def test_many_prompts_that_gain_alike_have_p_zero_and_no_warning():
    assert sign_flip_p([math.log(2.0)] * 2_001) == 0.0


def test_many_prompts_without_any_effect_have_p_one():
    assert sign_flip_p([0.0] * 2_001) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_rank_biserial_agrees_with_ranks_summed_by_hand(seed):
    values = np.round(np.random.default_rng(seed).normal(0.2, 1.0, 30), 1)  # with ties and zeros
    kept = values[values != 0]
    ranks = [sum(abs(kept) < abs(x)) + (sum(abs(kept) == abs(x)) + 1) / 2 for x in kept]
    expected = sum(rank * np.sign(x) for rank, x in zip(ranks, kept, strict=True)) / sum(ranks)
    assert rank_biserial(list(values)) == pytest.approx(expected)


def test_rank_biserial_is_one_where_all_gain_and_absent_where_nothing_differs():
    assert rank_biserial([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == 1.0
    assert rank_biserial([-0.1] * 7) == -1.0
    assert rank_biserial([0.0] * 7) is None
    assert rank_biserial([0.5] * 5) is None


@pytest.mark.parametrize("seed", range(3))
def test_ranks_agree_with_friedman_and_nemenyi_worked_in_numpy(seed):
    scores = np.random.default_rng(seed).normal(1.0, 0.2, (6, 4)) + np.array([0.0, 0.1, 0.2, 0.6])
    ranks = (-scores).argsort(axis=1).argsort(axis=1) + 1  # no ties
    mean, (tasks, methods) = ranks.mean(axis=0), scores.shape
    statistic = 12 * tasks / (methods * (methods + 1)) * np.sum((mean - (methods + 1) / 2) ** 2)
    gaps = np.abs(mean[:, None] - mean) / math.sqrt(methods * (methods + 1) / (6 * tasks))
    found = rank_over_tasks(scores.tolist())
    assert found.mean_ranks == pytest.approx(mean)
    assert found.friedman_p == pytest.approx(stats.chi2.sf(statistic, methods - 1))
    nemenyi = stats.studentized_range.sf(gaps * math.sqrt(2), methods, np.inf)
    np.fill_diagonal(nemenyi, 1.0)
    assert np.array(found.nemenyi_p) == pytest.approx(nemenyi)


def test_two_methods_one_task_or_nothing_but_ties_are_not_ranked():
    assert rank_over_tasks([[1.0, 2.0], [1.0, 2.0]]) is None
    assert rank_over_tasks([[1.0, 2.0, 3.0]]) is None
    assert rank_over_tasks([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]) is None
    assert rank_over_tasks([]) is None


def test_prompts_needed_are_those_of_the_normal_approximation():
    values = np.random.default_rng(0).normal(0.0, 0.1, 400)
    values += 0.02 - values.mean()
    z = stats.norm.ppf(0.95) + stats.norm.ppf(0.8)
    expected = (z * values.std() / 0.02) ** 2
    assert prompts_needed(list(values), ["a"] * 400, 0.0, 0.02) == pytest.approx(expected, rel=0.03)


def test_prompts_needed_do_not_count_what_lies_between_tasks():
    rng = np.random.default_rng(1)
    values = [*rng.normal(-1.0, 0.05, 30), *rng.normal(1.02, 0.05, 30)]
    assert prompts_needed(values, ["a"] * 30 + ["b"] * 30, 0.0, 0.01) < 300
    assert prompts_needed(values, ["a"] * 60, 0.0, 0.01) is None


def test_prompts_needed_know_their_ends():
    assert prompts_needed([0.1, 0.1001, 0.0999], ["a"] * 3, 0.0, 0.1) == 6
    assert prompts_needed([0.1, 0.1], ["a"] * 2, 0.0, 0.1) == 6
    assert prompts_needed([0.1, -0.1, 0.0], ["a"] * 3, 0.0, 0.00001) is None
    assert prompts_needed([0.1, 0.1 + 1e-12, 0.1 - 1e-12], ["a"] * 3, 0.0, 0.1) == 6
    assert prompts_needed([0.1, 0.1], ["a"] * 2, 0.1, 0.1) is None


def student_interval(values):
    interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    return np.exp([interval.low, interval.high])


@pytest.mark.parametrize("n", [6, 12, 40])
def test_the_interval_of_few_prompts_is_as_wide_as_students(n):
    values = np.random.default_rng(n).normal(0.2, 0.1, n)
    low, high = bootstrap_interval({"a": list(values)})
    student = student_interval(values)
    assert math.log(high / low) == pytest.approx(math.log(student[1] / student[0]), rel=0.12)
