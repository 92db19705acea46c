"""The statistics on simulated studies whose truth is known: a few in CI, 2,000 by `tox run -e slow`.

Monte-Carlo error at 2,000 studies: a true 5% is found as 5% ± 1% (two standard deviations), at 300 as 5% ± 2.5%.
The shares that were found are printed: `python -m pytest -m slow -rP`.
"""

import math
from collections import defaultdict

import numpy as np
import pytest

from reports import statistics
from reports.statistics import bootstrap_interval, sign_flip_p

DESIGNS = {
    "6 prompts": ("a", 6),
    "20 prompts": ("a", 20),
    "6 tasks of 6": ("abcdef", 6),
    "6 tasks of 20": ("abcdef", 20),
}


def studies(*designs):
    """300 studies of the small designs in CI, 2,000 of each in the slow run."""
    few = [(design, 300) for design in designs if design != "6 tasks of 20"]
    many = [pytest.param(design, 2_000, marks=pytest.mark.slow) for design in designs]
    return pytest.mark.parametrize(("design", "count"), [*few, *many])


TRUTH = 1.4


def log_speedups(times, study, design, speedup, session=0):
    """Simulate a run of new prompts; return the log speedups by task. The prompts are the same in every session."""
    tasks, prompts = DESIGNS[design]
    methods = {"autoregressive": 1.0, "tree": speedup}
    found = times(np.random.default_rng([study, session]), tasks, prompts, methods, prompt_seed=study)
    strata = defaultdict(list)
    for task, question, method in found:
        if method == "tree":
            strata[task].append(math.log(found[task, question, "autoregressive"] / found[task, question, "tree"]))
    return strata


def pooled(strata):
    return [log for logs in strata.values() for log in logs]


def coverage(times, design, count):
    intervals = [bootstrap_interval(log_speedups(times, study, design, TRUTH)) for study in range(count)]
    return np.mean([low <= TRUTH <= high for low, high in intervals])


@pytest.fixture
def fewer_resamples(monkeypatch):
    """999 resamples do for a share over many studies."""
    monkeypatch.setattr(statistics, "RESAMPLES", 999)


@pytest.mark.usefixtures("fewer_resamples")
@studies(*DESIGNS)
def test_intervals_cover_the_truth_in_93_of_100_studies_and_more(times, design, count):
    covered = coverage(times, design, count)
    print(f"covered: {covered}")  # noqa: T201 - `-rP` shows it
    assert (0.93 if count >= 2_000 else 0.91) <= covered <= 0.98, covered


@pytest.mark.usefixtures("fewer_resamples")
def test_a_plain_percentile_interval_of_six_prompts_would_not(times, monkeypatch):
    monkeypatch.setattr(statistics, "_expanded", lambda samples, confidence: confidence)
    assert coverage(times, "6 prompts", 300) < 0.90


@pytest.mark.usefixtures("fewer_resamples")
@studies("20 prompts", "6 tasks of 6", "6 tasks of 20")  # 6 prompts alone have no p between .03 and .06
def test_a_method_without_effect_is_called_different_in_5_of_100_studies(times, design, count):
    p_values = [sign_flip_p(pooled(log_speedups(times, study, design, 1.0))) for study in range(count)]
    rejected = np.mean([p <= 0.05 for p in p_values])
    print(f"rejected: {rejected}")  # noqa: T201 - `-rP` shows it
    assert rejected == pytest.approx(0.05, abs=0.01 if count >= 2_000 else 0.025), rejected


def gate_bounds(times, study, design, ratio):
    base = log_speedups(times, study, design, TRUTH, session=0)
    head = log_speedups(times, study, design, TRUTH * ratio, session=1)
    moved = {task: [after - before for before, after in zip(base[task], head[task], strict=True)] for task in base}
    return bootstrap_interval(moved, 0.90)


@pytest.mark.usefixtures("fewer_resamples")
@studies("20 prompts", "6 tasks of 6", "6 tasks of 20")
def test_a_loss_of_exactly_the_margin_passes_the_gate_in_5_of_100_studies(times, design, count):
    passed = np.mean([gate_bounds(times, study, design, 0.95)[0] >= 0.95 for study in range(count)])
    print(f"passed: {passed}")  # noqa: T201 - `-rP` shows it
    assert passed == pytest.approx(0.05, abs=0.015 if count >= 2_000 else 0.03), passed


@pytest.mark.usefixtures("fewer_resamples")
@pytest.mark.parametrize("count", [60, pytest.param(2_000, marks=pytest.mark.slow)])
def test_120_prompts_tell_a_tenth_from_nothing_at_a_margin_of_5_percent(times, count):
    flagged = np.mean([gate_bounds(times, study, "6 tasks of 20", 1 / 1.1)[0] < 0.95 for study in range(count)])
    passed = np.mean([gate_bounds(times, study, "6 tasks of 20", 1.0)[0] >= 0.95 for study in range(count)])
    print(f"flagged: {flagged}, passed: {passed}")  # noqa: T201 - `-rP` shows it
    assert flagged >= 0.999
    assert passed >= 0.95


@pytest.mark.usefixtures("fewer_resamples")
def test_rates_of_two_sessions_would_flag_most_pairs_of_equal_runs(times):
    # The mutant: time per token of one run over the other's, without the baseline between.
    flagged = 0
    for study in range(40):
        one, other = (
            times(np.random.default_rng([study, session]), "abcdef", 20, {"tree": 1.0}, prompt_seed=study)
            for session in (0, 1)
        )
        flagged += sign_flip_p([math.log(one[place] / other[place]) for place in one]) < 0.05
    assert flagged > 30
