"""Sampled decoding is coupled: every method draws what decoding token by token draws with the same seed."""

import random

import pytest

from methods.core import verifiers
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams, Sampler
from methods.core.tree import DraftTree
from methods.core.verify import verify_tree
from methods.method import Models
from methods.settings import Settings
from methods.tree_method import TreeMethod

pytestmark = pytest.mark.torch

COUNT = 20
DECODINGS = {
    "T=1": {"temperature": 1.0},
    "T=0.7, top-p, penalty": {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.5},
    "T=2, penalty": {"temperature": 2.0, "repetition_penalty": 2.0},
    "greedy with a penalty": {"repetition_penalty": 1.5},
}


def params_of(decoding, index):
    return DecodingParams(max_new_tokens=COUNT, draw_key=(5, "mini", index, 0), **DECODINGS[decoding])


@pytest.fixture(scope="session")
def model(tiny):
    """A vocabulary so small that sampled tokens are often among the drafted ones."""
    return tiny(vocab_size=12, seed=2)


@pytest.fixture(scope="session")
def few(prompts):
    return [[token % 12 for token in prompt] for prompt in prompts[:4]]


@pytest.fixture(scope="session")
def truth(model, few, fresh):
    """Token by token, each by a whole forward without a cache."""
    known = {}

    def decode(decoding):
        for index, prompt in enumerate(few if decoding not in known else []):
            params = params_of(decoding, index)
            sampler, tokens = Sampler(params), list(prompt)
            for position in range(COUNT):
                tokens.append(sampler.draw(fresh(model, tokens), tokens, position))
            known.setdefault(decoding, []).append(tokens[len(prompt) :])
        return known[decoding]

    return decode


def check_tokens(decoder, few, decoding, expected):
    accepted = 0
    for index, tokens in enumerate(expected):
        generation = decoder.generate(few[index], params_of(decoding, index))
        assert generation.token_ids == tokens
        accepted += sum(record.accepted for record in generation.rounds)
    return accepted


@pytest.mark.parametrize("decoding", DECODINGS)
def test_ours_equal_decoding_token_by_token(model, method, few, truth, ours, decoding):
    accepted = check_tokens(method(ours[0], model, **ours[1]), few, decoding, truth(decoding))

    assert (accepted > 0) == (ours[0] == "all-small")


def test_another_seed_gives_other_tokens(model, method, few):
    decoder = method("all-small", model)
    answers = [
        decoder.generate(few[0], DecodingParams(COUNT, temperature=1.0, draw_key=(seed,))).token_ids for seed in (0, 1)
    ]

    assert answers[0] != answers[1]


@pytest.mark.parametrize("name", ["hf-generate", "prompt-lookup"])
def test_outside_peers_sample_as_they_are_asked_to(model, method, few, hf_tokens, name):
    def answer(**changes):
        params = DecodingParams(**{"max_new_tokens": COUNT, "temperature": 1.5, **changes})
        return method(name, model).generate(few[0], params).token_ids

    greedy = hf_tokens(model, few[0], COUNT)
    assert answer(top_k=1) == answer(top_p=1e-6) == answer(temperature=1e-4) == greedy
    assert answer(draw_key=(1,)) == answer(draw_key=(1,))
    assert answer(draw_key=(1,)) != answer(draw_key=(2,))


class Foreseeing(TreeMethod):
    """Drafts the very answer, up to three tokens of it, among random branches: long, scattered paths are accepted."""

    answer = ()

    def begin(self, context, capacity):
        self.prompt_tokens, self.rng = len(context), random.Random(0)
        return super().begin(context, capacity)

    def draft(self, context, remaining, watch, forwards):
        tree, done = DraftTree(context[-1]), len(context) - self.prompt_tokens
        for length in range(1 + min(self.rng.randrange(4), remaining - 1)):
            for _ in range(self.rng.randrange(3)):
                tree.add(self.rng.randrange(len(tree)), self.rng.randrange(12))
            tree.insert_path(0, self.answer[done : done + length], 99)
        return tree


def check_foreseen(model, few, decoding, expected):
    decoder = Foreseeing(Models(TreeModel(model), None), Settings())
    accepted = 0
    for index, tokens in enumerate(expected):
        decoder.answer = tokens
        generation = decoder.generate(few[index], params_of(decoding, index))
        assert generation.token_ids == tokens
        accepted += sum(record.accepted for record in generation.rounds)
    assert accepted > COUNT * len(expected) / 2


@pytest.mark.parametrize("decoding", DECODINGS)
def test_a_draft_that_is_mostly_accepted_changes_nothing(model, few, truth, decoding):
    check_foreseen(model, few, decoding, truth(decoding))


def greedy_bonus(tree, logits, sampler, context, position):
    nodes, drawn = verify_tree(tree, logits, sampler, context, position)
    if not tree.children[nodes[-1]]:
        drawn[-1] = int(logits[nodes[-1]].argmax())
    return nodes, drawn


def penalty_on_the_context_alone(tree, logits, sampler, context, position):
    nodes, drawn, node = [], [], 0
    while node is not None:
        nodes.append(node)
        drawn.append(sampler.draw(logits[node], context, position + len(drawn)))
        node = tree.children[node].get(drawn[-1])
    return nodes, drawn


@pytest.mark.parametrize(
    ("mutant", "decoding"),
    [
        (greedy_bonus, "T=1"),
        (penalty_on_the_context_alone, "T=2, penalty"),
        (penalty_on_the_context_alone, "greedy with a penalty"),
    ],
)
def test_the_token_check_fails_on_a_mutant(model, few, truth, monkeypatch, mutant, decoding):
    monkeypatch.setattr(verifiers, "verify_tree", mutant)

    with pytest.raises(AssertionError):
        check_foreseen(model, few, decoding, truth(decoding))
