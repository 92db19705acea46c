"""Fitted values find the policy that is best where it is known, and nothing is credited with hindsight."""

import json

import numpy as np
import pytest

from methods.value_system import rivals
from methods.value_system.distilling import distil, network_margins, planner_margins, unseen_margins
from methods.value_system.rounds import Rounds, always, bits_of, calls_of, hindsight
from methods.value_system.values import classification, decisions, fit_values, fold_of

STEPS = 3
COST_OF_CALL = 0.15


def rounds(count=800, prompts=40, most_calls=3, seed=0, noise=1.0):
    """Rounds where one call is worth 0.6 tokens if the first signal is above 0, else nothing; a second brings nothing.

    Signals: the telling one, noise, one that never varies, and the calls so far.
    """
    rng = np.random.default_rng(seed)
    telling = rng.normal(size=count)
    committed, cost = np.zeros((count, 2 ** (STEPS + 1))), np.ones((count, 2 ** (STEPS + 1)))
    luck = rng.exponential(noise, size=count)
    for schedule in range(2**STEPS, 2 ** (STEPS + 1)):
        calls = calls_of(schedule)
        committed[:, schedule] = 1 + luck + np.where(telling > 0, 0.6, 0.0) * (calls > 0)
        cost[:, schedule] = 1 + COST_OF_CALL * calls
    signals = np.full((count, 2**STEPS, 4), np.nan)
    for state in range(1, 2**STEPS):
        signals[:, state] = np.stack(
            [telling, rng.normal(size=count), np.full(count, 7.0), np.full(count, calls_of(state))], axis=1
        )
    numbers = np.arange(count) % prompts
    tasks = np.where(numbers < prompts // 2, "one", "other")
    return Rounds(STEPS, committed, cost, signals, ("telling", "noise", "same", "calls"), numbers, tasks, most_calls)


@pytest.fixture(scope="module")
def known():
    """Rounds, and the schedules of the policy that is best in them: call once where it tells."""
    made = rounds()
    return made, np.where(made.signals[:, 1, 0] > 0, 0b1100, 0b1000)


@pytest.fixture(scope="module")
def fitted(known):
    return fit_values(known[0], 0, lambda line: None)


def test_schedules_are_numbered_like_a_heap():
    assert [bits_of(number) for number in (1, 2, 3, 6, 0b1101)] == ["", "0", "1", "10", "101"]
    assert [calls_of(number) for number in (1, 2, 3, 6, 0b1101)] == [0, 0, 1, 1, 2]


def test_a_policy_s_rate_is_a_ratio_of_sums():
    made = rounds(count=3)
    chosen = np.array([0b1000, 0b1111, 0b1100])
    tokens = sum(made.committed[row, schedule] for row, schedule in enumerate(chosen))
    assert made.rate(chosen) == pytest.approx(tokens / (1 + 1.45 + 1.15))
    assert made.rates()[0b1000] == pytest.approx(made.rate(always(made, 0b1000)))


def test_decisions_are_followed_state_by_state():
    made = rounds(count=2)
    calls = np.zeros((2, 2**STEPS), dtype=bool)
    calls[0, 1] = calls[0, 0b110] = True  # 1, then 0, then state 110 calls: 101
    calls[1, 0b10] = True  # 0, then 1, then 0
    assert made.outcome(calls).tolist() == [0b1101, 0b1010]


def test_fitted_values_find_the_policy_that_is_best(known, fitted):
    made, best = known
    assert fitted.rate > 0.995 * made.rate(best)
    assert fitted.rate > 1.03 * np.nanmax(made.rates())
    assert fitted.price == pytest.approx(fitted.rate, rel=2e-3)


def test_a_mutant_that_pays_nothing_for_time_calls_always_too_much(known, fitted):
    made, _ = known
    free = Rounds(**{**{name: getattr(made, name) for name in Rounds.__slots__}, "cost": np.ones_like(made.cost)})
    schedules = fit_values(free, 0, lambda line: None).schedules
    assert made.rate(schedules) < 0.99 * fitted.rate


def test_nothing_beats_hindsight_and_hindsight_beats_what_can_be_known(known, fitted):
    made, best = known
    top = made.rate(hindsight(made))
    for schedules in (best, fitted.schedules, rivals.best_fixed(made, 0), rivals.bandit(made, 0)):
        assert made.rate(schedules) <= top + 1e-9
        assert rivals.gap(made, schedules, hindsight(made), top) >= 0
    assert rivals.gap(made, hindsight(made), hindsight(made), top) == 0


def test_noise_alone_earns_nothing_on_prompts_that_were_not_seen():
    made = rounds(noise=2.0)
    shuffled = np.random.default_rng(1).permutation(len(made))
    signals = made.signals.copy()
    signals[:, :, 0] = signals[shuffled][:, :, 0]
    blind = Rounds(**{**{name: getattr(made, name) for name in Rounds.__slots__}, "signals": signals})
    assert fit_values(blind, 0, lambda line: None).rate < 1.01 * np.nanmax(blind.rates())


@pytest.mark.parametrize("most", [0, 1])
def test_no_policy_calls_more_often_than_it_may(most):
    made = rounds(most_calls=most, noise=0.1)
    values = fit_values(made, 0, lambda line: None)
    networks = network_margins(distil(made, values.margins, 0), made) if most else values.margins
    for schedules in (values.schedules, made.outcome(decisions(networks))):
        assert max(map(calls_of, schedules.tolist())) <= most


def test_the_distilled_network_keeps_what_the_values_knew(known, fitted):
    made, best = known
    network = distil(made, fitted.margins, 0)
    assert "same" not in network.signals  # it never varies, so nothing was learnt of it
    assert made.rate(made.outcome(decisions(network_margins(network, made)))) > 0.99 * made.rate(best)
    assert made.rate(made.outcome(decisions(unseen_margins(made, fitted.margins, 0)))) > 0.99 * made.rate(best)


def test_the_same_fit_twice_gives_the_same_bytes(known, fitted):
    made, _ = known
    again = fit_values(made, 0, lambda line: None)
    assert again.margins.tobytes() == fitted.margins.tobytes()
    one, other = (json.dumps(distil(made, values.margins, 3).model_dump()) for values in (fitted, again))
    assert one == other
    assert one != json.dumps(distil(made, fitted.margins, 4).model_dump())


def test_rivals_find_the_rule_too(known):
    made, best = known
    assert made.rate(rivals.threshold(made, 0)) > 0.99 * made.rate(best)
    assert fit_values(made, 0, lambda line: None, classification).rate > 0.99 * made.rate(best)
    assert set(rivals.best_fixed(made, 0).tolist()) <= {int(np.nanargmax(made.rates())), 0b1000, 0b1100, 0b1010, 0b1001}


def test_a_prompt_s_rounds_share_a_fold():
    prompts = np.array([7, 3, 7, 9, 3, 9, 1, 2, 4])
    folds = fold_of(prompts, 0)
    assert {prompt: len(set(folds[prompts == prompt])) for prompt in set(prompts.tolist())} == dict.fromkeys(
        set(prompts.tolist()), 1
    )
    assert len(set(folds.tolist())) == 5


def test_where_drafting_had_ended_nothing_is_decided():
    made = rounds(count=300, prompts=10)
    signals = made.signals.copy()
    signals[::2, 2:] = np.nan  # after the first step, in every other round
    ended = Rounds(**{**{name: getattr(made, name) for name in Rounds.__slots__}, "signals": signals})
    values = fit_values(ended, 0, lambda line: None)
    assert np.isnan(values.margins[::2, 2:]).all()
    assert not np.isnan(values.margins[:, 1]).any()


def test_value_models_of_a_file_judge_as_those_that_were_fitted(known, fitted):
    from methods.schedulers.artifact import Planner
    from methods.value_system.values import final_models

    made, best = known
    models = final_models(made, fitted, 0)
    texts = {
        step: {"call": a.booster_.model_to_string(), "skip": b.booster_.model_to_string()}
        for step, (a, b) in models.items()
    }
    planner = Planner.model_validate_json(Planner(signals=list(made.names), steps=texts).model_dump_json())
    margins = planner_margins(planner, made)
    call, skip = models[1]
    assert np.allclose(margins[:, 1], call.predict(made.signals[:, 1]) - skip.predict(made.signals[:, 1]))
    assert made.rate(made.outcome(decisions(margins))) > 0.995 * made.rate(best)
