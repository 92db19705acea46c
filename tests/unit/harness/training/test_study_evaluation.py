"""Policies under conditions where the right answer is known by counting rounds."""

from dataclasses import replace

import numpy as np
import pytest

from harness.training.bootstrap import gain
from harness.training.policy_rollout import Rounds, calls_of
from harness.training.study.conditions import Timed
from harness.training.study.evaluation import evaluate_policies
from harness.training.trace_costs import Priced
from methods.latency import Latency
from methods.schedulers.artifact import Network

STEPS, LENGTH, ANSWERS = 2, 12, 5
DECISION = 0.1
"""What the decisions of a round take, in verifications."""
CALLER = Network(signals=["same"], weights=[[[0.0]]], biases=[[1.0]])
SKIPPER = Network(signals=["same"], weights=[[[0.0]]], biases=[[-1.0]])


def timed(call, decision=0.0):
    """Rounds that commit 4 tokens with a call and 2 without; a verification takes 1, a token of the baseline 0.9."""
    count = ANSWERS * LENGTH
    left = np.tile(np.arange(LENGTH, 0, -1), ANSWERS)
    committed, cost = np.ones((count, 8), dtype=np.int64), np.ones((count, 8))
    for schedule in range(4, 8):
        committed[:, schedule] = np.minimum(left, 4 if calls_of(schedule) else 2)
        cost[:, schedule] = 1 + decision + call * calls_of(schedule)
    signals = np.full((count, 4, 1), 7.0)
    prompts = np.repeat(np.arange(ANSWERS), LENGTH)
    calls = np.broadcast_to([max(0, calls_of(number)) for number in range(8)], cost.shape)
    tasks = np.full(count, "one")
    charged = Rounds(
        STEPS, committed, cost, calls, signals, ("same",), left, prompts, tasks, np.zeros(count), most_calls=1
    )
    undecided = cost.copy()
    undecided[:, 4] -= decision
    return Timed(
        priced=Priced(
            learned=replace(charged, cost=cost + DECISION), fixed=replace(charged, cost=undecided), ruled=charged
        ),
        autoregressive=np.full(count, 0.9),
        latency=Latency(20.0, 5.0),
    )


def lines(condition, own):
    networks = {"cheap": CALLER, "dear": SKIPPER}
    ordered = {own: networks.pop(own), **networks}
    found = evaluate_policies(condition, ordered, ["01"], own, seed=0)
    return {line.policy: line for line in found}


def test_the_matrix_of_fitted_and_run_is_what_counting_rounds_gives():
    baseline = 0.9 * LENGTH
    # Never: 6 rounds of 1. With calls: 3 rounds of 1, and what the calls cost. Learned rounds pay decisions besides.
    cheap, dear = lines(timed(0.25), "cheap"), lines(timed(2.0), "dear")

    assert {name: line.speedup for name, line in cheap.items()} == {
        "never (all-small)": pytest.approx(baseline / 6),
        "always (all-mid)": pytest.approx(baseline / 4.5),
        "fixed 01": pytest.approx(baseline / 3.75),
        "learned": pytest.approx(baseline / (3.75 + 0.3)),
        "learned, fitted on dear": pytest.approx(baseline / (6 + 0.6)),
    }
    assert {name: line.speedup for name, line in dear.items()} == {
        "never (all-small)": pytest.approx(baseline / 6),
        "always (all-mid)": pytest.approx(baseline / 15),
        "fixed 01": pytest.approx(baseline / 9),
        "learned": pytest.approx(baseline / (6 + 0.6)),
        "learned, fitted on cheap": pytest.approx(baseline / (9 + 0.3)),
    }


def test_gains_are_over_the_better_endpoint_and_over_the_refitted_scheduler():
    cheap, dear = lines(timed(0.25), "cheap"), lines(timed(2.0), "dear")

    assert cheap["learned"].gain.value == pytest.approx(4.5 / 4.05 - 1)
    assert dear["learned"].gain.value == pytest.approx(6 / 6.6 - 1)
    assert dear["learned, fitted on cheap"].gain.value == pytest.approx(6 / 9.3 - 1)
    assert cheap["always (all-mid)"].gain.value == dear["never (all-small)"].gain.value == 0
    assert dear["learned, fitted on cheap"].over_refit.value == pytest.approx(6.6 / 9.3 - 1)
    assert [line.over_refit for line in dear.values()].count(None) == 4


def test_calls_speed_and_origin_stand_in_every_line():
    dear = lines(timed(2.0), "dear")

    assert [line.calls for line in dear.values()] == [0, 2, 1, 0, 1]
    assert [line.schedule for line in dear.values()] == ["00", "11", "01", None, None]
    assert [line.fitted for line in dear.values()] == [None, None, None, "dear", "cheap"]
    assert dear["never (all-small)"].tokens_per_s == pytest.approx(1e3 * LENGTH / (6 * 20))


def test_never_calling_pays_for_no_decision_and_calling_schedules_do():
    free, charged = lines(timed(0.25), "cheap"), lines(timed(0.25, decision=0.5), "cheap")

    assert charged["never (all-small)"].speedup == pytest.approx(free["never (all-small)"].speedup)
    assert charged["always (all-mid)"].speedup == pytest.approx(0.9 * LENGTH / 6)


def test_a_policy_that_is_always_faster_by_the_same_share_leaves_no_doubt():
    times = np.array([1.0, 30.0, 2.0, 7.0, 90.0])

    found = gain(times / 1.25, [times], seed=0)

    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))  # unpaired, it would be wide


def test_gains_are_ratios_of_sums_and_lie_inside_their_interval():
    rng = np.random.default_rng(0)
    mine, other = rng.uniform(1, 9, size=40), rng.uniform(1, 9, size=40)

    found = gain(mine, [other], seed=0)

    assert found.value == pytest.approx(other.sum() / mine.sum() - 1)
    assert found.low < found.value < found.high
    assert gain(mine, [other], seed=0) == found
    assert gain(mine, [other], seed=1) != found


def test_which_endpoint_is_the_better_is_asked_anew_in_each_resample():
    rng = np.random.default_rng(3)
    one, other = rng.uniform(1, 9, size=30), rng.uniform(1, 9, size=30)
    mine = (one + other) / 2

    both = gain(mine, [one, other], seed=0)

    assert both.value == min(gain(mine, [single], seed=0).value for single in (one, other))
    assert both.high < min(gain(mine, [single], seed=0).high for single in (one, other))
