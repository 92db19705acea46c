"""Enumerated outcomes are those of decoding: same trees, same accepted tokens, same forwards, schedule by schedule."""

import random
from dataclasses import replace
from itertools import product

import pytest

from harness.training.enumeration import Enumerator
from harness.training.traces import SCHEMA_VERSION
from methods.core.generation import Forward
from methods.core.sampling import DecodingParams
from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.method import Models

pytestmark = pytest.mark.torch

COUNT = 14
UNTIMED = Stopwatch()
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
    return Enumerator(models, build("treegraft-fixed", **settings).settings)


def settings_of(case, **more):
    return {"steps": STEPS, "width": 4, "budget": 7, **CASES[case], **more}


def bits(schedule):
    return [int(bit) for bit in schedule]


def leaf(outcomes, schedule):
    """The outcome of a schedule, or of what it shares with others after drafting ended."""
    (found,) = [outcome for outcome in outcomes if schedule.startswith(outcome.asked)]
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_schedule_gets_what_decoding_gives_it_at_every_place(build, models, case):
    settings = settings_of(case)
    answer = build("autoregressive").generate(FEW_LETTERS, GREEDY).token_ids
    traced = list(enumerator(build, models, **settings).trace(FEW_LETTERS, answer, COUNT))
    assert [one.context for one in traced] == list(range(len(FEW_LETTERS), len(FEW_LETTERS) + COUNT - 1))
    assert any(len(one.outcomes) > 2 for one in traced)
    for done, one in [*enumerate(traced)][::2]:
        for schedule in SCHEDULES:
            outcome = leaf(one.outcomes, schedule)
            decoder = build("treegraft-fixed", **settings, schedule=bits(schedule))
            decoder.models.target.begin(500)
            decoder.begin(FEW_LETTERS, 500)
            decoder.advance(answer[:done], [0], UNTIMED)  # look-up knows the answer so far; the middle drafter does not
            context, forwards = [*FEW_LETTERS, *answer[:done]], []
            tree = decoder.draft(context, COUNT - done, UNTIMED, forwards)
            accepted = len(tree.follow(answer[done:])) - 1
            record = outcome.record
            assert (record.drafted, record.accepted, record.schedule) == (len(tree) - 1, accepted, decoder.schedule())
            assert outcome.committed == min(accepted + 1, COUNT - done)
            assert [caught_up(forward, context) for forward in forwards] == record.forwards[:-1]
            assert record.forwards[-1] == Forward("target", None, len(tree), len(context) - 1)


def caught_up(forward, context):
    """The forward of a drafter whose cache had held all but one of the tokens between prompt and root."""
    spared = len(context) - 2 - forward.context
    if forward.role != "middle" or spared <= 0:
        return forward
    return replace(forward, tokens=forward.tokens - spared, context=forward.context + spared)


@pytest.mark.parametrize(
    ("case", "schedule"), [*((case, "101") for case in CASES), *((next(iter(CASES)), one) for one in ("000", "011"))]
)
def test_a_path_through_the_places_is_that_of_decoding(build, models, case, schedule):
    settings = settings_of(case, schedule=bits(schedule))
    for prompt in PROMPTS:
        generation = build("treegraft-fixed", **settings).generate(prompt, GREEDY)
        traced = list(enumerator(build, models, **settings).trace(prompt, generation.token_ids, COUNT))
        place = 0
        for record in generation.rounds:
            if place < len(traced):  # nothing is drafted for the last token
                found = leaf(traced[place].outcomes, schedule).record
                assert replace(found, forwards=[]) == replace(record, forwards=[])
            place += record.accepted + 1
        assert place >= COUNT


@pytest.mark.parametrize("case", CASES)
def test_an_answer_that_ended_early_drafted_at_its_last_place_too(build, models, case):
    settings = settings_of(case)
    for prompt in PROMPTS:
        whole = build("autoregressive").generate(prompt, GREEDY).token_ids
        early = DecodingParams(max_new_tokens=COUNT, eos_ids=frozenset({whole[COUNT // 2]}))
        answer = build("autoregressive").generate(prompt, early).token_ids
        assert len(answer) < COUNT
        traced = list(enumerator(build, models, **settings).trace(prompt, answer, COUNT))
        assert len(traced) == len(answer)
        for schedule in ("000", "101", "111"):
            place = 0
            for record in build("treegraft-fixed", **settings, schedule=bits(schedule)).generate(prompt, early).rounds:
                found = leaf(traced[place].outcomes, schedule).record
                assert replace(found, forwards=[]) == replace(record, forwards=[])
                place += leaf(traced[place].outcomes, schedule).committed
            assert place == len(answer)


def test_where_one_token_may_come_nothing_is_traced(build, models):
    made = enumerator(build, models, **settings_of("continue"))
    assert list(made.trace(REPEATING, [7], 1)) == []
    assert len(list(made.trace(REPEATING, [7], 2))) == 1


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
        records = [one.record for one in rounds]
        expected = iter(list(read))
        traced = list(enumerator(build, models, **settings_of("continue")).trace(prompt, answer, COUNT))
        place = 0
        for record in records:
            taken = "".join(map(str, record.schedule))
            for step in range(len(taken)):
                if "1" not in taken[:step]:  # else no call is left, and nothing is read
                    assert traced[place].signals[taken[:step]] == next(expected)
            followed.add(taken)
            place += record.accepted + 1
    assert len(followed) > 1


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
    assert len(sizes) <= STEPS * len(traced)
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


def test_kept_traces_of_this_schema_hold_what_look_up_drafts_today(build, models):
    """Traces are kept for months and believed as long as SCHEMA_VERSION stands: whoever changes drafting raises it."""
    traced = enumerator(build, models, **settings_of("continue")).trace(FEW_LETTERS, FEW_LETTERS[3 : 3 + COUNT], COUNT)
    never = [leaf(one.outcomes, "000") for one in traced]
    told = [(one.committed, one.record.drafted, one.record.accepted) for one in never]
    nothing_accepted, three_accepted = (1, 7, 0), (4, 7, 3)
    assert told == [*[nothing_accepted] * 2, *[three_accepted] * 9, (3, 7, 2), (2, 4, 1)]
    assert SCHEMA_VERSION == "2"
