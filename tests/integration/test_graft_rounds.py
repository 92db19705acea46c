"""What a grafting method says of its rounds is what its models did, differs between names, and can be drafted again."""

import itertools
import random

import pytest

from methods.catalog import catalogue
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams
from methods.core.tree import DraftTree
from methods.drafters.neural import NeuralDrafter
from methods.settings import Settings
from methods.treegraft.method import TreeGraft

pytestmark = pytest.mark.torch

OURS = [name for name, entry in catalogue().items() if entry.family in ("autoregressive", "treegraft")]
DRAFTING = [name for name in OURS if name != "autoregressive"]
GREEDY = DecodingParams(max_new_tokens=12)
DECODINGS = {
    "greedy": GREEDY,
    "sampled": DecodingParams(max_new_tokens=12, temperature=1.0, draw_key=(3,)),
    "ended by a token": DecodingParams(max_new_tokens=30, eos_ids=frozenset(range(0, 16, 5))),
}
REPEATING = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3] * 3
PROMPTS = [[9], [5, 4, 5], REPEATING]
SETTINGS = [{"width": 5}, {"width": 2, "budget": 3}]


@pytest.fixture(scope="module")
def pair(tiny, echo):
    target = tiny(vocab_size=16, num_hidden_layers=2)
    return target, echo(target), echo(target, noise=0.3)


@pytest.fixture
def build(pair, method):
    """Build a catalogue method over a target with a good and a poor drafter."""

    def build(name, **settings):
        target, middle, small = pair
        return method(name, target, middle=middle, small=small, **settings)

    return build


@pytest.fixture
def sizes(monkeypatch):
    """The nodes held by each drafted tree before it is pruned."""
    held = []
    draft = TreeGraft.draft

    def record(self, *arguments):
        tree = draft(self, *arguments)
        held.append(self.drafted.held)
        return tree

    monkeypatch.setattr(TreeGraft, "draft", record)
    return held


def check_record(decoder, prompt, generation, made):
    """Rounds against the forwards that were made, the settings, and the committed tokens."""
    settings, models = decoder.settings, decoder.models
    roles = {models.target: "target", models.middle: "middle", models.small: "small"}
    recorded = [forward for record in generation.rounds for forward in record.forwards]
    look_up = [forward for forward in recorded if forward.role == "small" and settings.small == "ngram"]
    evaluated = [(forward.role, forward.tokens, forward.context) for forward in recorded if forward not in look_up]
    assert evaluated == [(roles[model], len(tokens), rows) for model, tokens, _, _, rows, _ in made]
    done = 0
    for record in generation.rounds:
        *drafting, verify = record.forwards
        assert (verify.role, verify.step, verify.tokens) == ("target", None, record.drafted + 1)
        assert verify.context == len(prompt) + done - 1
        assert record.accepted <= record.drafted <= settings.budget
        steps = [forward.step for forward in drafting]
        assert steps == sorted(set(steps))
        assert len(record.schedule) <= settings.steps
        assert all(record.schedule[forward.step - 1] == (forward.role == "middle") for forward in drafting)
        assert settings.schedule is None or [*settings.schedule][: len(record.schedule)] == record.schedule
        for forward in drafting:
            assert forward.tokens > 0
            assert forward not in look_up or forward.context == len(prompt) + done
        first = [forward for forward in drafting if forward.role == "middle"][:1]
        assert all(forward.context + forward.tokens >= len(prompt) + done for forward in first)  # it has seen the root
        done += record.accepted + 1
    assert done - len(generation.token_ids) in (0, 1)


@pytest.mark.parametrize(
    ("name", "params"),
    [(name, DECODINGS["greedy"]) for name in DRAFTING]
    + [
        (name, params)
        for name in ("all-small", "treegraft-fixed", "neural-small")
        for params in [*DECODINGS.values()][1:]
    ],
)
def test_rounds_say_what_the_models_did(build, calls, sizes, name, params):
    for settings in SETTINGS:
        decoder = build(name, **settings)
        sizes.clear()
        for prompt in PROMPTS:
            calls.clear()
            check_record(decoder, prompt, decoder.generate(prompt, params), calls)
        assert max(sizes) <= decoder.settings.cap
        assert max(sizes) > 2


def test_the_record_check_fails_where_a_forwards_unseen_tokens_are_not_counted(build, calls, monkeypatch):
    evaluate = NeuralDrafter.evaluate
    monkeypatch.setattr(NeuralDrafter, "evaluate", lambda self, tree, nodes: evaluate(self, tree, nodes) and len(nodes))
    decoder = build("treegraft-fixed")
    generation = decoder.generate(REPEATING, GREEDY)

    with pytest.raises(AssertionError):
        check_record(decoder, REPEATING, generation, calls)


@pytest.mark.parametrize("name", DRAFTING)
def test_prefill_is_one_forward_a_model_that_has_something_to_see(build, name):
    decoder = build(name)
    roles = ["target", *(drafter.role for drafter in decoder.drafters if isinstance(drafter, NeuralDrafter))]
    for prompt in PROMPTS:
        prefill = decoder.generate(prompt, GREEDY).prefill
        expected = [(role, len(prompt) - 1, 0) for role in roles if len(prompt) > 1]
        assert [(forward.role, forward.tokens, forward.context) for forward in prefill] == expected


def test_time_goes_to_whoever_worked(build):
    spans = {name: build(name).generate(REPEATING, GREEDY).spans for name in DRAFTING}

    assert {name for name, spent in spans.items() if spent.scheduler_s > 0} == {*DRAFTING} - {"all-small"}
    assert {name for name, spent in spans.items() if spent.middle_s > 0} == {*DRAFTING} - {"all-small"}
    assert all(spent.small_s > 0 and spent.verify_s > 0 for spent in spans.values())


@pytest.mark.parametrize("name", ["treegraft-fixed", "all-mid", "treegraft-release"])
def test_a_middle_evaluates_far_less_than_the_trees_it_grows(build, calls, name):
    decoder = build(name)
    whole, extend = [], decoder.middle.extend

    def record(tree, frontier, step, cap):
        result = extend(tree, frontier, step, cap)
        whole.append(tree.held)  # what the public code would have forwarded at the next call, and nearly at this one
        return result

    decoder.middle.extend = record
    for prompt in PROMPTS:
        decoder.generate(prompt, GREEDY)

    evaluated = sum(len(tokens) for model, tokens, *_ in calls if model is decoder.models.middle)
    assert evaluated < 0.5 * sum(whole)


MIXED = random.Random(1).choices(range(12), k=60)


@pytest.fixture
def rounds_of(llama, echo, method):
    """Return a method's rounds on one prompt, over more tokens than a node has children: look-up finds some that the
    middle does not propose. With the default width and budget those deleted without ND would hardly ever be sent."""

    def of(name, **settings):
        decoder = method(name, llama, middle=echo(llama), small=echo(llama, noise=0.3), **{"width": 3, **settings})
        return decoder.generate(MIXED, GREEDY).rounds

    return of


def test_no_two_names_stand_for_one_thing(rounds_of):
    """On one prompt the rounds of all methods of ours differ pairwise, also where `release` has the others' budget."""
    decided = ("never", "always", "fixed")  # schedulers that look at the tree may well agree on one prompt
    rounds = {name: rounds_of(name) for name in OURS if catalogue()[name].settings.get("scheduler", "never") in decided}
    rounds["release, small budget"] = rounds_of("treegraft-release", budget=Settings().budget)

    same = [pair for pair in itertools.combinations(rounds, 2) if rounds[pair[0]] == rounds[pair[1]]]

    assert same == []


CHANGES = [
    {"look_back": 0}, {"reselect": "all"}, {"reselect": "off"}, {"non_destructive": False}, {"exhaustion": "release"},
    {"schedule": (1, 0, 0, 0, 0)}, {"width": 4}, {"budget": 7}, {"longest_match": 2},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_setting_changes_rounds(rounds_of, change):
    assert rounds_of("treegraft-fixed") != rounds_of("treegraft-fixed", **change)


def check_redrafted(decoder, prompts, params, sent, redraft=TreeGraft.redraft):
    for prompt in prompts:
        sent.clear()
        generation = decoder.generate(prompt, params)
        prefill, rounds = redraft(decoder, prompt, generation.token_ids, params.max_new_tokens)
        again = [*rounds]
        assert prefill == generation.prefill
        assert [(tree.tokens, tree.depths, tree.visibility().tolist()) for tree, _, _ in again] == sent
        assert [one.record for one in again] == generation.rounds


@pytest.fixture
def sent(pair, monkeypatch):
    """Every tree that goes to the target, as its arrays."""
    trees = []
    evaluate = TreeModel.evaluate

    def record(self, tokens, depths, visible):
        if self.model is pair[0]:
            trees.append((list(tokens), list(depths), visible.tolist()))
        return evaluate(self, tokens, depths, visible)

    monkeypatch.setattr(TreeModel, "evaluate", record)
    return trees


@pytest.mark.parametrize("params", DECODINGS.values(), ids=DECODINGS)
@pytest.mark.parametrize("name", ["treegraft-fixed", "treegraft-no-nd", "treegraft-release", "neural-small"])
def test_drafting_again_gives_the_trees_that_were_sent(build, sent, name, params):
    for settings in SETTINGS:
        check_redrafted(build(name, **settings), PROMPTS, params, sent)


def with_pruned_ids(*arguments):
    """The mutant: the drafter is told the accepted nodes by their ids in the pruned tree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DraftTree, "source", lambda self, node: node)
        prefill, rounds = TreeGraft.redraft(*arguments)
        return prefill, [*rounds]


def test_the_redraft_check_fails_on_a_mutant(build, sent):
    with pytest.raises((AssertionError, IndexError)):
        check_redrafted(build("treegraft-fixed", width=5), PROMPTS, GREEDY, sent, with_pruned_ids)
