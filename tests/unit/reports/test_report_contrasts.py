"""Methods against each other: the baseline falls out, prompt by prompt."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from reports.contrasts import contrast_methods
from reports.row_summary import tally
from reports.run_facts import RunFacts
from reports.summary import comparisons


@pytest.fixture
def contrasts(row):
    """Contrasts of rows given as {method: {question: seconds}}; every answer has ten tokens."""

    def of(times, order=()):
        rows = [
            row(method, question, seconds, task=f"t{question % 2}")
            for method, answers in times.items()
            for question, seconds in answers.items()
        ]
        return contrast_methods(comparisons([tally(one) for one in rows]), RunFacts(methods=tuple(order)))

    return of


@pytest.fixture
def times():
    rng = random.Random(0)
    return {
        method: {question: pace * rng.lognormvariate(0, 0.05) for question in range(20)}
        for method, pace in {"autoregressive": 4.0, "a": 2.0, "b": 1.6}.items()
    }


def test_a_contrast_is_the_paired_ratio_of_times_whatever_the_baseline(contrasts, times):
    (found,) = contrasts(times)
    logs = [math.log(times["a"][question] / times["b"][question]) for question in range(20)]

    assert (found.method, found.against, found.n) == ("b", "a", 20)
    assert found.ratio == pytest.approx(math.exp(np.mean(logs)))
    assert found.ci_low < found.ratio < found.ci_high
    other = {**times, "autoregressive": {question: 9.0 + question for question in range(20)}}
    assert contrasts(other)[0].ratio == pytest.approx(found.ratio)


def test_its_p_agrees_with_a_signed_rank_test_of_the_same_pairs(contrasts, times):
    slight = {**times, "b": {question: 0.985 * seconds for question, seconds in times["a"].items()}}
    rng = random.Random(1)
    slight["b"] = {question: seconds * rng.lognormvariate(0, 0.04) for question, seconds in slight["b"].items()}
    logs = [math.log(slight["a"][question] / slight["b"][question]) for question in range(20)]

    assert contrasts(slight)[0].p == pytest.approx(stats.wilcoxon(logs).pvalue, abs=0.1)


def test_every_pair_of_methods_is_held_against_each_other_in_the_configurations_order(contrasts, times):
    more = {**times, "c": times["a"]}

    found = contrasts(more, order=["autoregressive", "c", "b", "a"])

    assert [(one.method, one.against) for one in found] == [("b", "c"), ("a", "c"), ("a", "b")]
    assert found[1].ratio == 1.0
    assert found[0].p_holm == pytest.approx(min(1.0, 3 * found[0].p))


def test_only_prompts_that_both_answered_count(contrasts, times):
    times["b"] = {question: seconds for question, seconds in times["b"].items() if question < 7}

    assert contrasts(times)[0].n == 7


def test_few_prompts_have_no_p_and_none_have_no_contrast(contrasts, times):
    few = {method: {question: answers[question] for question in range(3)} for method, answers in times.items()}
    apart = {**few, "b": {9: 1.0}, "autoregressive": {**few["autoregressive"], 9: 4.0}}

    (found,) = contrasts(few)
    assert (found.p, found.p_holm) == (None, None)
    assert contrasts(apart) == []


def test_the_table_shows_them(run_folder, row):
    from reports.tables import render_report

    rows = [row(method, question, pace) for question in range(8) for method, pace in
            {"autoregressive": 1.0, "slow": 0.5, "fast": 0.4}.items()]  # fmt: skip

    text = render_report(run_folder(rows), "table")

    assert "Method against method: mini" in text
    assert "1.250 [1.250, 1.250]" in text or "0.800 [0.800, 0.800]" in text
