import random

import pytest
import torch

from methods.core.sampling import DecodingParams, Sampler
from methods.core.tree import DraftTree
from methods.core.verify import verify_tree

VOCABULARY = 6
DECODINGS = {
    "greedy": {},
    "greedy with a penalty": {"repetition_penalty": 1.8},
    "T=1": {"temperature": 1.0},
    "T=0.7, top-p, penalty": {"temperature": 0.7, "top_p": 0.8, "repetition_penalty": 1.8},
    "T=1.5, top-k": {"temperature": 1.5, "top_k": 3},
}


def target(prefix):
    """The logits that follow a prefix, the same at every call."""
    seed = int("".join(str(token + 1) for token in prefix))
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 2


def decoded(params, context, position, count):
    """Token by token: process the logits behind the whole prefix, add the position's noise, take the best."""
    sampler, prefix = Sampler(params), list(context)
    for index in range(position, position + count):
        scores = sampler.processed(target(prefix), prefix)
        if not params.greedy:
            scores = scores + sampler.noise(VOCABULARY, index)
        prefix.append(int(scores.argmax()))
    return prefix[len(context) :]


def tree_around(root, tokens, rng):
    """A random tree that often holds the first of `tokens` as a path."""
    tree = DraftTree(root)
    tree.insert_path(0, tokens[: rng.randrange(5)], 99)
    for _ in range(rng.randrange(12)):
        tree.add(rng.randrange(len(tree)), rng.randrange(VOCABULARY))
    return tree


def check_walk(verify_tree, decoding, trials=40):
    """The draws must be what decoding token by token gives, one more than the tree holds of them."""
    rng = random.Random(0)
    for trial in range(trials):
        params = DecodingParams(max_new_tokens=99, draw_key=(trial,), **decoding)
        context = [rng.randrange(VOCABULARY) for _ in range(3)]
        position = rng.randrange(50)
        expected = decoded(params, context, position, 6)
        tree = tree_around(context[-1], expected, rng)
        paths = [[tree.tokens[step] for step in tree.path(node)[1:]] for node in range(len(tree))]
        logits = torch.stack([target(context + path) for path in paths])

        nodes, drawn = verify_tree(tree, logits, params, context, position)

        agreeing = max(len(path) for path in paths if path == expected[: len(path)])
        assert drawn == expected[: agreeing + 1]
        assert [paths[node] for node in nodes] == [expected[:size] for size in range(agreeing + 1)]


def real(tree, logits, params, context, position):
    return verify_tree(tree, logits, Sampler(params), context, position)


@pytest.mark.parametrize("decoding", DECODINGS.values(), ids=DECODINGS)
def test_whatever_the_tree_the_draws_are_those_of_decoding_token_by_token(decoding):
    check_walk(real, decoding)


def following(draw):
    """A walk that draws in a wrong way of its own: `draw(sampler, params, logits, path, index, is_leaf)`."""

    def mutant(tree, logits, params, context, position):
        node, nodes, path = 0, [], []
        while node is not None:
            nodes.append(node)
            leaf = not tree.children[node]
            path.append(draw(params, logits[node], context, list(path), position + len(path), leaf))
            node = tree.children[node].get(path[-1])
        return nodes, path

    return mutant


def bonus_from_raw_logits(params, logits, context, path, index, leaf):
    plain = DecodingParams(99, temperature=1.0, draw_key=params.draw_key)
    return Sampler(plain if leaf else params).draw(logits, context + path, index)


def greedy_bonus(params, logits, context, path, index, leaf):
    return Sampler(DecodingParams(99) if leaf else params).draw(logits, context + path, index)


def penalty_lost(params, logits, context, path, index, leaf):
    kept = DecodingParams(99, params.temperature, params.top_p, params.top_k, draw_key=params.draw_key)
    return Sampler(kept).draw(logits, context + path, index)


def penalty_on_the_context_alone(params, logits, context, path, index, leaf):
    return Sampler(params).draw(logits, context, index)


def one_noise_a_round(params, logits, context, path, index, leaf):
    return Sampler(params).draw(logits, context + path, index - len(path))


@pytest.mark.parametrize(
    ("mutant", "decoding"),
    [
        (bonus_from_raw_logits, "T=0.7, top-p, penalty"),
        (greedy_bonus, "T=1"),
        (penalty_lost, "greedy with a penalty"),
        (penalty_lost, "T=0.7, top-p, penalty"),
        (penalty_on_the_context_alone, "greedy with a penalty"),
        (penalty_on_the_context_alone, "T=0.7, top-p, penalty"),
        (one_noise_a_round, "T=1"),
    ],
)
def test_the_walk_check_fails_on_a_mutant(mutant, decoding):
    def right(params, logits, context, path, index, leaf):
        return Sampler(params).draw(logits, context + path, index)

    check_walk(following(right), DECODINGS[decoding])

    with pytest.raises(AssertionError):
        check_walk(following(mutant), DECODINGS[decoding])


def test_a_wholly_accepted_path_is_followed_by_a_bonus_and_an_empty_tree_draws_once():
    tree = DraftTree(0)
    tree.insert_path(0, [3, 1], 9)
    tree.add(0, 2)
    logits = torch.nn.functional.one_hot(torch.tensor([3, 1, 5, 0]), VOCABULARY).float()
    sampler = Sampler(DecodingParams(9))

    assert verify_tree(tree, logits, sampler, [0], 0) == ([0, 1, 2], [3, 1, 5])
    assert verify_tree(DraftTree(0), logits[:1], sampler, [0], 0) == ([0], [3])
