"""Enumerated outcomes are those of decoding: same trees, same accepted tokens, same forwards, schedule by schedule."""

import random
from dataclasses import replace
from itertools import product

import pytest

from methods.core.sampling import DecodingParams
from methods.core.tree import DraftTree
from methods.method import Models
from methods.schedulers.scheduler import Latency
from methods.value_system.enumeration import Enumerator

pytestmark = pytest.mark.torch

COUNT = 14
GREEDY = DecodingParams(max_new_tokens=COUNT)
REPEATING = [4, 8, 15, 16, 23, 42] * 3
FEW_LETTERS = random.Random(0).choices(range(6), k=40)  # so that most nodes have several continuations
PROMPTS = [REPEATING, FEW_LETTERS, [9]]
CASES = {
    "continue": {"exhaustion": "continue"},
    "release": {"exhaustion": "release", "reselect": "all", "raise_scores": True},
    "prefill estimates": {"exhaustion": "release", "estimate": "prefill"},
    "no reselection": {"reselect": "off"},
    "destructive": {"non_destructive": False},
}
STEPS = 3
SCHEDULES = ["".join(bits) for bits in product("01", repeat=STEPS)]


@pytest.fixture(scope="module")
def models(tiny, echo):
    """A target and a drafter that often guesses right, in fp64: other batches must not change what is best."""
    from methods.core.model import TreeModel

    target = tiny(dtype="float64")
    return Models(TreeModel(target), None, middle=TreeModel(echo(target, noise=0.3)))


@pytest.fixture
def build(method, models):
    def make(name, **settings):
        decoder = method(name, models.target.model, middle=models.middle.model, **settings)
        return decoder

    return make


def enumerator(build, models, **settings):
    made = Enumerator(models, build("treegraft-fixed", **settings).settings)
    made.latency = Latency(40.0, 10.0)
    return made


def settings_of(case, **more):
    return {"steps": STEPS, "width": 4, "budget": 7, **CASES[case], **more}


def bits(schedule):
    return [int(bit) for bit in schedule]


def leaf(outcomes, schedule):
    """The outcome of a schedule, or of what it shares with others after drafting ended."""
    (found,) = [outcome for outcome in outcomes if schedule.startswith(outcome.asked)]
    return found


@pytest.mark.parametrize("schedule", ["000", "101", "011"])
@pytest.mark.parametrize("case", CASES)
def test_along_a_schedule_every_round_is_that_of_decoding(build, models, case, schedule):
    settings = settings_of(case, schedule=bits(schedule))
    for prompt in PROMPTS:
        generation = build("treegraft-fixed", **settings).generate(prompt, GREEDY)
        traced = list(enumerator(build, models, **settings).trace(prompt, generation.token_ids, COUNT))
        expected = generation.rounds[: len(traced)]  # the last token of an answer is drafted nothing for
        assert [leaf(one.outcomes, schedule).record for one in traced] == expected
        assert [leaf(one.outcomes, schedule).committed for one in traced] == [one.accepted + 1 for one in expected]
        assert all(schedule.startswith(one.taken) for one in traced)


@pytest.mark.parametrize("case", [case for case in CASES if case != "prefill estimates"])  # those know the prompt alone
def test_every_other_schedule_gets_what_decoding_would_give_it_there(build, models, case):
    settings = settings_of(case, schedule=[0] * STEPS)
    answer = build("autoregressive").generate(FEW_LETTERS, GREEDY).token_ids
    traced = list(enumerator(build, models, **settings).trace(FEW_LETTERS, answer, COUNT))
    assert any(len(one.outcomes) > 4 for one in traced)
    for one in traced:
        done = one.context - len(FEW_LETTERS)
        for schedule in SCHEDULES:
            outcome = leaf(one.outcomes, schedule)
            decoder = build("treegraft-fixed", **{**settings, "schedule": bits(schedule)})
            context = [*FEW_LETTERS, *answer[:done]]
            _, rounds = decoder.redraft(context, answer[done:], COUNT - done)
            _, record = next(iter(rounds))
            assert (record.drafted, record.accepted, record.schedule, record.by_middle) == (
                outcome.record.drafted,
                outcome.record.accepted,
                outcome.record.schedule,
                outcome.record.by_middle,
            )
            # Nothing was called before, so the first forward sees all that was committed since the prompt.
            unseen = done if 1 in record.schedule else 0
            first = next((forward for forward in outcome.record.forwards if forward.role == "middle"), None)
            fresh = next((forward for forward in record.forwards if forward.role == "middle"), None)
            if fresh is not None:
                assert first == replace(fresh, tokens=fresh.tokens + unseen, context=fresh.context - unseen)


def test_states_are_told_apart_and_none_is_left_out(build, models):
    made = enumerator(build, models, **settings_of("continue"))
    answer = build("autoregressive").generate(REPEATING, GREEDY).token_ids
    for one in made.trace(REPEATING, answer, COUNT):
        assert set(one.signals) == {"", *("".join(part) for size in (1, 2) for part in product("01", repeat=size))}
        assert [outcome.asked for outcome in one.outcomes] == SCHEDULES
        assert one.signals["0"] != one.signals["1"]


def test_signals_are_those_that_the_online_scheduler_reads(build, models, random_artifact, monkeypatch):
    from methods.schedulers import signals

    settings = {**settings_of("continue"), "artifact": random_artifact(STEPS), "max_calls": 1}
    read = []
    plain = signals.read_tree

    def record(*arguments):
        read.append(plain(*arguments))
        return read[-1]

    monkeypatch.setattr(signals, "read_tree", record)
    followed = set()
    for prompt in PROMPTS:
        answer = build("autoregressive").generate(prompt, GREEDY).token_ids
        online = build("treegraft", **settings)
        read.clear()
        _, rounds = online.redraft(prompt, answer, COUNT)
        taken = ["".join(map(str, record.schedule)) for _, record in rounds]
        expected = iter(list(read))
        made = Enumerator(models, online.settings)
        made.latency = Latency(40.0, 10.0)
        traced = list(made.trace(prompt, answer, COUNT))
        assert [one.taken for one in traced] == taken[: len(traced)]
        for one in traced:
            for step in range(STEPS):
                if "1" not in one.taken[:step]:  # else no call is left, and nothing is read
                    assert one.signals[one.taken[:step]] == next(expected)
        followed |= set(taken[: len(traced)])
    assert len(followed) > 1


def test_every_so_many_rounds_are_traced_and_the_others_followed(build, models):
    settings = settings_of("continue", schedule=[1, 0, 0])
    answer = build("autoregressive").generate(REPEATING, GREEDY).token_ids
    every = list(enumerator(build, models, **settings).trace(REPEATING, answer, COUNT))
    some = list(enumerator(build, models, **settings).trace(REPEATING, answer, COUNT, every=2))
    assert some == every[1::2]


def test_one_forward_a_step_serves_all_schedules(build, models, monkeypatch):
    from methods.core.model import TreeModel

    sizes = []
    evaluate = TreeModel.evaluate

    def count(self, tokens, depths, visible):
        sizes.append(len(tokens))
        return evaluate(self, tokens, depths, visible)

    monkeypatch.setattr(TreeModel, "evaluate", count)
    answer = build("autoregressive").generate(REPEATING, GREEDY).token_ids
    sizes.clear()
    traced = list(enumerator(build, models, **settings_of("continue")).trace(REPEATING, answer, COUNT))
    assert len(sizes) <= STEPS * (len(traced) + 1)
    alone = sum(
        forward.tokens
        for one in traced
        for outcome in one.outcomes
        for forward in outcome.record.forwards
        if forward.role == "middle"
    )
    assert sum(sizes) < alone / 2


def test_a_fork_grows_by_itself():
    tree = DraftTree(1)
    child = tree.add(0, 2, -1.0)
    twin = tree.copy()
    twin.add(child, 3, -2.0)
    twin.scores[child] = -9.0
    twin.expanded.add(0)
    assert (len(tree), tree.scores[child], tree.expanded, tree.children[child]) == (2, -1.0, set(), {})
