"""Heuristic schedulers decide by the formulas of ALGORITHMS, checked by hand."""

from math import inf, log

import pytest

from foundation.errors import UserError
from methods.latency import Latency
from methods.schedulers.scheduler import make_scheduler
from methods.settings import Settings

LATENCY = Latency(40.0, 10.0)


def scheduler(name, latency=LATENCY, **settings):
    made = make_scheduler(Settings(scheduler=name, **settings))
    made.begin(100, latency)
    return made


def test_always_early_calls_in_the_first_three_steps(state):
    early = scheduler("early", max_calls=5)
    assert [early.should_call(state([-1.0], step)) for step in range(1, 6)] == [True, True, True, False, False]


@pytest.mark.parametrize(("most", "expected"), [(0, []), (1, [1]), (2, [1, 2]), (9, [1, 2, 3])])
def test_no_round_has_more_calls_than_given(state, most, expected):
    early = scheduler("early", max_calls=most)
    called = []
    for step in range(1, 6):
        calls = [int(number in called) for number in range(1, step)]
        if early.should_call(state([-1.0], step, calls)):
            called.append(step)
    assert called == expected


@pytest.mark.parametrize(("latency", "most"), [((40, 10), 4), ((39, 10), 3), ((10, 40), 0)])
def test_by_default_a_round_has_as_many_calls_as_fit_into_a_verification(latency, most):
    assert scheduler("early", Latency(*latency)).most_calls == most


def test_heuristics_need_to_know_what_calls_cost(state):
    with pytest.raises(UserError, match=r"T_tgt and T_mid are not known; give latency"):
        scheduler("early", None)


@pytest.mark.parametrize(
    ("scores", "called"),
    [
        ([log(0.6), log(0.1)], True),  # the best is below 0.7
        ([log(0.75), log(0.1)], False),
        ([log(0.9), log(0.9)], True),  # together more than 1, so each counts half
        ([-inf, -inf], True),  # nothing is scored
        ([], True),
    ],
)
def test_entropy_confidence_calls_where_the_best_node_is_unsure(state, scores, called):
    assert scheduler("entropy-confidence", threshold=0.7).should_call(state(scores)) is called


@pytest.mark.parametrize(
    ("scores", "called"),
    [
        ([log(0.9), log(0.1)], False),  # 0.8 apart
        ([log(0.1), log(0.9)], False),  # whatever their order
        ([log(0.6), log(0.2)], True),
        ([log(0.75)], False),  # a missing one counts 0
        ([log(0.65)], True),
        ([-inf, log(0.9)], False),
        ([], True),
    ],
)
def test_candidate_score_gap_calls_where_the_best_two_are_close(state, scores, called):
    assert scheduler("candidate-score-gap", threshold=0.7).should_call(state(scores)) is called


@pytest.mark.parametrize(("shares", "called"), [((0.8, 0.2), False), ((0.4, 0.2), True), ((), True)])
@pytest.mark.parametrize("name", ["entropy-confidence", "candidate-score-gap"])
def test_at_the_first_step_the_root_s_continuations_stand_for_the_frontier(state, name, shares, called):
    assert scheduler(name, threshold=0.5).should_call(state([], 1, shares=shares)) is called


def test_latency_normalized_weighs_tokens_by_time(state):
    # step 1, nothing found: mass 1, doubt 1, h 0.5, A 0, T_mid / T_round = 1/4: 0.5 / 0.25 = 2
    assert scheduler("latency-normalized", threshold=1.99, call_gain=0.5).should_call(state([], 1))
    assert not scheduler("latency-normalized", threshold=2.01, call_gain=0.5).should_call(state([], 1))
    # step 2: mass 0.8, doubt 1 - 0.6: 0.8 * 0.4 * 0.5 / 0.25 = 0.64
    found = state([log(0.6), log(0.2)])
    assert scheduler("latency-normalized", threshold=0.63, call_gain=0.5).should_call(found)
    assert not scheduler("latency-normalized", threshold=0.65, call_gain=0.5).should_call(found)


def test_latency_normalized_learns_from_the_rounds_of_its_turn_alone(state):
    made = scheduler("latency-normalized", threshold=1.0, call_gain=0.5)
    assert made.should_call(state([], 1))
    made.end_round(calls=0, accepted=2)
    made.end_round(calls=2, accepted=0)
    # A = 1, T_round = 40 + 10: 0.5 / 2 / (10 / 50) = 1.25
    assert made.should_call(state([], 1))
    made.end_round(calls=1, accepted=7)
    # A = 3, T_round = 50: 0.5 / 4 / (10 / 50) = 0.625
    assert not made.should_call(state([], 1))
    made.begin(100, LATENCY)
    assert made.should_call(state([], 1))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("entropy-confidence", {}, "needs a threshold; give threshold: 0.7"),
        ("latency-normalized", {"threshold": 1.0}, "needs the tokens that a call brings"),
        ("learned", {}, "this pair has no fitted artifact; make one with treegraft fit"),
        ("planner", {}, "this pair has no fitted artifact; make one with treegraft fit"),
        ("entropy-confidnce", {}, r"unknown scheduler 'entropy-confidnce'; did you mean entropy-confidence"),
    ],
)
def test_a_scheduler_that_lacks_something_says_what(name, settings, message):
    with pytest.raises(UserError, match=message):
        make_scheduler(Settings(scheduler=name, **settings))
