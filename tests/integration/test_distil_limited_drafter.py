"""A drafter whose head knows some tokens drafts what one with a whole head would that gives others the floor."""

import copy
import random

import pytest
import torch

from methods.core.limited_head import LimitedHead
from methods.core.sampling import DecodingParams
from methods.core.stopwatch import Stopwatch
from methods.drafters.vocabulary_map import TokenColumns
from methods.schedulers.scheduler import FixedSchedule

pytestmark = pytest.mark.torch

WATCH = Stopwatch()
TOKENS = torch.tensor(random.Random(5).sample(range(64), k=40)).sort().values
FLOOR = -40.0  # below all that the head knows, so that no other token is drafted
COUNT = 16
PROMPTS = [[9], [17, 17], [5, 40, 5], [4, 8, 15, 16, 23, 42] * 2, random.Random(0).choices(range(64), k=40) * 2]


class Spelled(torch.nn.Module):
    """A whole head: the limited one's logits, and the floor for every other token."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, hidden):
        return self.head(hidden)


@pytest.fixture(scope="module")
def drafters(llama, echo):
    """The same drafter with a limited head, and with the whole one that says the same."""
    head = LimitedHead(llama.lm_head.weight.detach()[TOKENS], TOKENS, 64, FLOOR)
    pair = [copy.deepcopy(echo(llama)) for _ in range(2)]
    pair[0].set_output_embeddings(head)
    pair[1].set_output_embeddings(Spelled(head))
    return pair


def drafted(method, schedule):
    """Draft behind contexts that grow by accepted paths and any tokens; yield the trees."""
    for seed, prompt in enumerate(PROMPTS):
        rng, context = random.Random(seed), [*prompt]
        method.models.target.begin(500)
        method.begin(context, 500)
        for _ in range(4):
            method._scheduler = FixedSchedule(schedule)
            method.draft(context, 99, WATCH, [])
            tree = method.drafted
            yield tree
            accepted = tree.path(rng.randrange(len(tree)))
            new = [*(tree.tokens[node] for node in accepted[1:]), rng.randrange(64)]
            context = [*context, *new]
            method.advance(new, accepted, WATCH)


def check_trees(method, llama, drafters, name, schedule=(1, 0, 1, 0, 1)):
    """Return how many nodes the drafter drafted and how many tokens that it does not know it scored."""
    limited, whole = (method(name, llama, middle=drafter, small=drafter, width=3) for drafter in drafters)
    own, unknown = 0, 0
    for ours, truth in zip(drafted(limited, schedule), drafted(whole, schedule), strict=True):
        assert (ours.tokens, ours.parents, ours.origins) == (truth.tokens, truth.parents, truth.origins)
        assert ours.scores == pytest.approx(truth.scores, abs=1e-3)
        added = [token for token, origin in zip(ours.tokens, ours.origins, strict=True) if origin == "middle"]
        assert {*added} <= {*TOKENS.tolist()}
        own, unknown = own + len(added), unknown + sum(score < FLOOR for score in ours.scores)
    return own, unknown


@pytest.mark.parametrize("name", ["treegraft-fixed", "all-mid", "treegraft-release"])
def test_a_limited_head_drafts_the_tree_of_a_whole_one(method, llama, drafters, name):
    own, unknown = check_trees(method, llama, drafters, name)

    assert own > 50
    assert unknown > 0 or name == "all-mid"  # which alone drafts, so that it scores what it knows


def test_a_small_neural_model_with_a_limited_head_does_too(method, llama, drafters):
    check_trees(method, llama, drafters, "neural-small")


def columns_as_tokens(model, vocabulary):
    """The mutant: a column's token is its number."""
    return TokenColumns(vocabulary if model.limited_head is None else len(TOKENS), FLOOR)


def usual_floor(model, vocabulary):
    """The mutant: tokens that the head does not know count as those beyond any vocabulary."""
    columns = TokenColumns.of(model, vocabulary)
    return TokenColumns(columns.count, ids=columns.ids, places=columns.places)


@pytest.mark.parametrize("mutant", [columns_as_tokens, usual_floor])
def test_the_check_of_trees_fails_on_a_mutant(method, llama, drafters, monkeypatch, mutant):
    class Columns:
        of = staticmethod(mutant)

    monkeypatch.setattr("methods.drafters.neural.TokenColumns", Columns)
    with pytest.raises(AssertionError):
        check_trees(method, llama, drafters, "treegraft-fixed")


@pytest.mark.parametrize("name", ["treegraft-fixed", "all-mid", "neural-small", "assisted"])
def test_answers_with_a_limited_drafter_equal_generate(method, llama, drafters, hf_tokens, name):
    decoder = method(name, llama, middle=drafters[0], small=drafters[0])

    forwards = 0
    for prompt in PROMPTS:
        generation = decoder.generate(prompt, DecodingParams(max_new_tokens=COUNT))
        assert generation.token_ids == hf_tokens(llama, prompt, COUNT)
        forwards += generation.decode_forwards + 1 if generation.rounds is None else len(generation.rounds)

    assert forwards < len(PROMPTS) * COUNT  # some of its tokens were accepted
