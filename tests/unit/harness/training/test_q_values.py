"""Fitted values find the policy that is best where it is known, and nothing is credited with hindsight."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from harness.training import baseline_policies as rivals
from harness.training.distillation import _between, distil_network, network_margins, planner_margins, unseen_margins
from harness.training.policy_rollout import Rounds, always, bits_of, calls_of
from harness.training.q_values import classification, decisions, final_models, fit_values, fold_of
from methods.schedulers.artifact import Planner

STEPS = 3
COST_OF_CALL = 0.2


def rounds(answers=40, length=25, most_calls=3, seed=0, telling=True):
    """Rounds where one call brings three more tokens if the first signal is above 0, else nothing; a second nothing.

    Signals: the telling one (or as much noise), noise, one that never varies, and the calls so far.
    """
    rng = np.random.default_rng(seed)
    count = answers * length
    left = np.tile(np.arange(length, 0, -1), answers)
    worth_it = rng.normal(size=count)
    committed, cost = np.ones((count, 2 ** (STEPS + 1)), dtype=np.int64), np.ones((count, 2 ** (STEPS + 1)))
    luck = rng.integers(0, 2, size=count)
    for schedule in range(2**STEPS, 2 ** (STEPS + 1)):
        calls = calls_of(schedule)
        committed[:, schedule] = np.minimum(left, 1 + luck + np.where(worth_it > 0, 3, 0) * (calls > 0))
        cost[:, schedule] = 1 + COST_OF_CALL * calls
    shown = worth_it if telling else rng.normal(size=count)
    signals = np.full((count, 2**STEPS, 4), np.nan)
    for state in range(1, 2**STEPS):
        signals[:, state] = np.stack(
            [shown, rng.normal(size=count), np.full(count, 7.0), np.full(count, calls_of(state))], axis=1
        )
    signals[left == 1] = np.nan  # for the last token nothing is drafted
    committed[left == 1], cost[left == 1] = 1, 1
    prompts = np.repeat(np.arange(answers), length)
    tasks = np.where(prompts < answers // 2, "one", "other")
    calls = np.broadcast_to([max(0, calls_of(number)) for number in range(2 ** (STEPS + 1))], cost.shape)
    names = ("telling", "noise", "same", "calls")
    return Rounds(STEPS, committed, cost, calls, signals, names, left, prompts, tasks, np.zeros(count), most_calls)


def slowly(made, schedules):
    """Tokens and time of a policy, answer by answer, round by round."""
    tokens = time = place = 0
    while place < len(made):
        time += made.cost[place, schedules[place]]
        step = int(made.committed[place, schedules[place]])
        tokens += min(step, int(made.left[place]))
        place += min(step, int(made.left[place]))
    return tokens, time


@pytest.fixture(scope="module")
def known():
    """Rounds, and the schedules of the policy that is best in them: call once where it tells."""
    made = rounds()
    return made, np.where(np.nan_to_num(made.signals[:, 1, 0], nan=-1.0) > 0, 0b1100, 0b1000)


@pytest.fixture(scope="module")
def fitted(known):
    return fit_values(known[0], 0, lambda line: None)


def test_schedules_are_numbered_like_a_heap():
    assert [bits_of(number) for number in (1, 2, 3, 6, 0b1101)] == ["", "0", "1", "10", "101"]
    assert [calls_of(number) for number in (1, 2, 3, 6, 0b1101)] == [0, 0, 1, 1, 2]


def test_a_policy_is_followed_along_its_own_path(known):
    made, best = known
    random = np.random.default_rng(5).choice(list(made.schedules), size=len(made))
    for schedules in (best, random, always(made, 0b1000)):
        tokens, time = slowly(made, schedules)
        assert tokens == 40 * 25
        assert made.rate(schedules) == pytest.approx(tokens / time)
        assert made.visited(schedules).sum() < len(made)
        assert made.cost[made.visited(schedules), schedules[made.visited(schedules)]].sum() == pytest.approx(time)
    assert made.rates()[0b1100] == pytest.approx(made.rate(always(made, 0b1100)))
    both = np.stack([best, random], axis=1)
    assert made.time_to_go(both)[:, 1] == pytest.approx(made.time_to_go(random))


def test_a_call_after_a_pause_pays_for_what_was_committed_meanwhile(known):
    made, best = known
    told = replace(made, catch_up=np.full(len(made), 0.01))
    random = np.random.default_rng(5).choice(list(made.schedules), size=len(made))
    for schedules in (best, random):
        time = 0.0
        for answer in range(40):
            place = seen = 25 * answer  # the middle drafter has read all before `seen`
            while place < 25 * (answer + 1):
                time += made.cost[place, schedules[place]]
                committed = int(made.committed[place, schedules[place]])
                if made.calls[place, schedules[place]]:
                    traced_as = 0 if place == 25 * answer or seen > 25 * answer else 1  # nobody has called yet
                    time += 0.01 * (place - seen - traced_as)
                    seen = place + committed
                place += committed
        assert told.rate(schedules) == pytest.approx(40 * 25 / time)
        assert told.rate(schedules) < made.rate(schedules)
    for always_alike in (0b1000, 0b1100):
        assert told.rate(always(made, always_alike)) == pytest.approx(made.rate(always(made, always_alike)))
    assert told.without_catching_up().rate(best) == made.rate(best)


def test_a_schedule_s_worth_is_the_time_to_the_end_with_it_once(known):
    made, best = known
    time = made.time_to_go(best)
    worth = made.worth(time)
    for place in (0, 7, 24, 30, len(made) - 2):
        for schedule in (0b1000, 0b1101):
            once = best.copy()
            once[place] = schedule
            assert -worth[place, schedule] == pytest.approx(made.time_to_go(once)[place])


def test_hindsight_is_the_fastest_of_all_paths():
    made = rounds(answers=1, length=4, seed=3)
    every = np.array(list(itertools.product(made.schedules, repeat=3)))
    every = np.concatenate([every, np.full((len(every), 1), 0b1000)], axis=1).T
    assert made.time_to_go(every)[0].min() == pytest.approx(made.time_to_go(made.hindsight())[0])


def test_decisions_are_followed_state_by_state():
    made = rounds(answers=1, length=2)
    calls = np.zeros((2, 2**STEPS), dtype=bool)
    calls[0, 1] = calls[0, 0b110] = True  # 1, then 0, then state 110 calls: 101
    calls[1, 0b10] = True  # 0, then 1, then 0
    assert made.outcome(calls).tolist() == [0b1101, 0b1010]


def test_fitted_values_find_the_policy_that_is_best(known, fitted):
    made, best = known
    assert fitted.rate > 0.99 * made.rate(best)
    assert fitted.rate > 1.05 * np.nanmax(made.rates())


def test_a_mutant_that_pays_nothing_for_time_calls_too_much(known, fitted):
    made, _ = known
    free = replace(made, cost=np.where(made.cost > 1, 1.001, made.cost))
    assert made.rate(fit_values(free, 0, lambda line: None).schedules) < 0.97 * fitted.rate


def test_nothing_beats_hindsight_and_hindsight_beats_what_can_be_known(known, fitted):
    made, best = known
    top = made.rate(made.hindsight())
    for schedules in (best, fitted.schedules, rivals.best_fixed(made, 0), rivals.bandit(made, 0)):
        assert made.rate(schedules) <= top + 1e-9
        assert rivals.gap(made, schedules, made) >= -1e-12
    assert rivals.gap(made, made.hindsight(), made) == 0


def test_noise_alone_earns_nothing_on_prompts_that_were_not_seen():
    blind = rounds(telling=False)
    assert fit_values(blind, 0, lambda line: None).rate < 1.02 * np.nanmax(blind.rates())


@pytest.mark.parametrize("most", [0, 1])
def test_no_policy_calls_more_often_than_it_may(most):
    made = rounds(most_calls=most)
    values = fit_values(made, 0, lambda line: None)
    networks = network_margins(distil_network(made, values.margins, 0), made) if most else values.margins
    for schedules in (values.schedules, made.outcome(decisions(networks))):
        assert max(map(calls_of, schedules.tolist())) <= most


def test_the_distilled_network_keeps_what_the_values_knew(known, fitted):
    made, best = known
    network = distil_network(made, fitted.margins, 0)
    assert "same" not in network.signals  # it never varies, so nothing was learnt of it
    assert made.rate(made.outcome(decisions(network_margins(network, made)))) > 0.99 * made.rate(best)
    assert made.rate(made.outcome(decisions(unseen_margins(made, fitted.margins, 0)))) > 0.99 * made.rate(best)


def test_margins_that_least_squares_drew_below_zero_still_call_where_it_pays(known, fitted):
    made, best = known
    network = distil_network(made, fitted.margins - 5.0, 0)  # of the right order, and all of them below 0
    assert made.rate(made.outcome(decisions(network_margins(network, made)))) > 0.99 * made.rate(best)
    unseen = made.outcome(decisions(unseen_margins(made, fitted.margins - 5.0, 0)))
    assert made.rate(unseen) > 0.99 * made.rate(best)


def test_one_margin_that_many_states_share_is_no_offset():
    margins = np.repeat([0.1, 0.3, 0.30001, 7.0], [5000, 9000, 2000, 700])
    offsets = _between(margins)
    assert not np.isin(offsets, margins).any()
    assert {tuple(margins > offset) for offset in offsets} == {
        tuple(margins >= least) for least in (0.1, 0.3, 0.30001, 7.0, 8.0)
    }


def test_where_no_signal_varies_a_network_knows_one_margin(known, fitted):
    made, _ = known
    network = distil_network(made.without(("telling", "noise", "calls")), fitted.margins, 0)
    margins = network_margins(network, made)
    assert np.ptp(margins[~np.isnan(margins)]) == 0


def test_the_same_fit_twice_gives_the_same_bytes(known, fitted):
    made, _ = known
    again = fit_values(made, 0, lambda line: None)
    assert again.margins.tobytes() == fitted.margins.tobytes()
    one, other = (json.dumps(distil_network(made, values.margins, 3).model_dump()) for values in (fitted, again))
    assert one == other
    assert one != json.dumps(distil_network(made, fitted.margins, 4).model_dump())


def test_where_a_step_is_never_decided_on_there_is_no_rule_of_it(known):
    made, best = known
    signals = made.signals.copy()
    signals[:, 0b10] = np.nan  # after a skip drafting is over
    assert made.rate(rivals.threshold(replace(made, signals=signals), 0)) > 0.97 * made.rate(best)


def test_rivals_find_the_rule_too(known):
    made, best = known
    assert made.rate(rivals.threshold(made, 0)) > 0.97 * made.rate(best)
    assert fit_values(made, 0, lambda line: None, classification).rate > 0.98 * made.rate(best)
    assert made.rate(rivals.best_fixed(made, 0)) == pytest.approx(np.nanmax(made.rates()))


def test_a_classifier_that_calls_too_seldom_is_given_an_offset(known):
    made, best = known
    margins = fit_values(made, 0, lambda line: None, classification).margins - 0.5
    assert made.rate(made.outcome(decisions(margins))) < 0.9 * made.rate(best)
    assert made.rate(rivals.with_best_offset(made, margins, 0)) > 0.97 * made.rate(best)


def one_good(steps):
    """Rounds in which one schedule is three times as fast as the others."""
    made = rounds(answers=20, length=60, telling=False)
    schedules = range(2**steps, 2 ** (steps + 1))
    committed, cost = made.committed[:, : 2 ** (steps + 1)].copy(), np.ones((len(made), 2 ** (steps + 1)))
    for number, schedule in enumerate(schedules):
        committed[:, schedule] = np.minimum(made.left, 3 if number == 1 else 1)
    calls = made.calls[:, : 2 ** (steps + 1)]
    return replace(made, steps=steps, committed=committed, cost=cost, calls=calls, signals=made.signals[:, : 2**steps])


@pytest.mark.parametrize("steps", [1, 3])
def test_a_bandit_settles_on_the_schedule_that_is_best(steps):
    made = one_good(steps)
    found = rivals.bandit(made, 0)
    assert set(found.tolist()) <= set(made.schedules)
    good = made.rate(always(made, 2**steps + 1))
    assert made.rate(found) > 0.7 * good
    assert good > 2.9 * made.rate(always(made, 2**steps))


def test_a_prompt_s_rounds_share_a_fold():
    prompts = np.array([7, 3, 7, 9, 3, 9, 1, 2, 4])
    folds = fold_of(prompts, 0)
    assert {prompt: len(set(folds[prompts == prompt])) for prompt in set(prompts.tolist())} == dict.fromkeys(
        set(prompts.tolist()), 1
    )
    assert len(set(folds.tolist())) == 5


def test_where_drafting_had_ended_nothing_is_decided():
    made = rounds(answers=12)
    signals = made.signals.copy()
    signals[::2, 2:] = np.nan  # after the first step, in every other round
    values = fit_values(replace(made, signals=signals), 0, lambda line: None)
    assert np.isnan(values.margins[::2, 2:]).all()
    assert not np.isnan(values.margins[made.left > 1, 1]).any()


def test_value_models_of_a_file_judge_as_those_that_were_fitted(known, fitted):
    made, best = known
    models = final_models(made, fitted, 0)
    texts = {
        step: {"call": call.booster_.model_to_string(), "skip": skip.booster_.model_to_string()}
        for step, (call, skip) in models.items()
    }
    planner = Planner.model_validate_json(json.dumps({"signals": made.names, "steps": texts}))
    margins, rows = planner_margins(planner, made, "its"), made.open(1)
    call, skip = (model.predict(made.signals[rows, 1]) for model in models[1])
    assert np.allclose(margins[rows, 1], call - skip)
    assert made.rate(made.outcome(decisions(margins))) > 0.99 * made.rate(best)
