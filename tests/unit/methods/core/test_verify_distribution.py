"""60,000 draws of two tokens through verification, against the exact joint distribution and biased verifiers."""

import numpy as np
import pytest
import torch

from methods.core.sampling import DecodingParams, Sampler
from methods.core.tree import DraftTree
from methods.core.verify import verify_tree

DRAWS = 60_000
BOUND = 0.02
V = 6


def distributions(seed, spread):
    """A first-token distribution and one for the token behind each first token, [1 + V, V]."""
    logits = np.random.default_rng(seed).normal(size=(1 + V, V)) * spread
    weights = np.exp(logits)
    return weights / weights.sum(-1, keepdims=True)


TARGET = distributions(1, 1.0)
DRAFTER = distributions(2, 1.0)
EXACT = TARGET[0][:, None] * TARGET[1:]


def distance(first, second, exact):
    """Total variation between the drawn pairs and the exact joint distribution."""
    counts = np.zeros((V, V))
    np.add.at(counts, (first, second), 1)
    return 0.5 * np.abs(counts / len(first) - exact).sum()


def check_exact(first, second, exact=EXACT):
    assert distance(first, second, exact) < BOUND


def top(weights, count):
    return np.argsort(-weights, kind="stable")[:count].tolist()


def drawn_by_the_walk(**decoding):
    """Two tokens at a time: the tree is of depth 2; what it does not hold is drawn in a next, empty round."""
    tree = DraftTree(0)
    for token in top(DRAFTER[0], 3):
        node = tree.add(0, token)
        for below in top(DRAFTER[1 + token], 2):
            tree.add(node, below)
    rows = torch.tensor(np.log(TARGET), dtype=torch.float32)
    behind = [0] + [1 + tree.tokens[node] if tree.depths[node] == 1 else 0 for node in range(1, len(tree))]
    logits = rows[behind]
    sampler = Sampler(DecodingParams(**{"max_new_tokens": 2, "temperature": 1.0, "draw_key": ("joint",), **decoding}))
    pairs = np.empty((DRAWS, 2), dtype=int)
    for draw in range(DRAWS):
        drawn = verify_tree(tree, logits, sampler, [0], 3 * draw)[1][:2]
        if len(drawn) < 2:
            drawn += verify_tree(DraftTree(drawn[0]), rows[1 + drawn[0], None], sampler, [0, drawn[0]], 3 * draw + 1)[1]
        pairs[draw] = drawn
    return pairs.T


def test_two_tokens_drawn_through_a_tree_have_the_targets_joint_distribution():
    check_exact(*drawn_by_the_walk())


def nucleus(weights, temperature, mass):
    """The distributions after temperature and top-p: a token stays while those before it hold less than `mass`."""
    weights = weights ** (1 / temperature)
    weights /= weights.sum(-1, keepdims=True)
    order = np.argsort(-weights, axis=-1)
    ordered = np.take_along_axis(weights, order, -1)
    np.put_along_axis(weights, order, np.where(ordered.cumsum(-1) - ordered < mass, ordered, 0), -1)
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.slow
def test_two_tokens_drawn_at_a_temperature_and_from_a_nucleus_have_their_joint_distribution():
    processed = nucleus(TARGET, 0.7, 0.8)
    exact = processed[0][:, None] * processed[1:]

    check_exact(*drawn_by_the_walk(temperature=0.7, top_p=0.8), exact)


class Rejection:
    """Speculative sampling over siblings, for many draws at once; `propose` says how siblings come about."""

    def __init__(self, propose):
        self.propose = propose
        self.rng = np.random.default_rng(0)

    def _categorical(self, weights):
        sums = weights.cumsum(-1)
        return (self.rng.random(len(weights))[:, None] * sums[:, -1:] >= sums).sum(-1)

    def verify(self, p, q):
        """Accept a sibling with probability min(1, p/q), else take what is left of p, and go on."""
        children = self.propose(self.rng, q)
        p, q, every = p.copy(), q.copy(), np.arange(len(p))
        token = np.full(len(p), -1)
        for child in children.T:
            accepted = (token < 0) & (self.rng.random(len(p)) * q[every, child] < p[every, child])
            token[accepted] = child[accepted]
            left = np.maximum(p - q, 0)
            p = np.where(left.sum(-1, keepdims=True) > 0, left, p)
            p /= p.sum(-1, keepdims=True)
            q[every, child] = 0
            q /= q.sum(-1, keepdims=True)
        in_tree = token >= 0
        return np.where(in_tree, token, self._categorical(p)), in_tree

    def pairs(self):
        first, in_tree = self.verify(np.tile(TARGET[0], (DRAWS, 1)), np.tile(DRAFTER[0], (DRAWS, 1)))
        behind, _ = self.verify(TARGET[1 + first], DRAFTER[1 + first])
        return first, np.where(in_tree, behind, self._categorical(TARGET[1 + first]))


def sampled(rng, q, count=3):
    """Siblings drawn from the drafter without replacement, in the order drawn."""
    return np.argsort(-(np.log(q) + rng.gumbel(size=q.shape)), axis=-1)[:, :count]


def deterministic(rng, q):
    return np.argsort(-q, axis=-1)[:, :3]


def sampled_then_pruned(rng, q):
    drawn = sampled(rng, q, 4)
    best = np.argsort(-np.take_along_axis(q, drawn, -1), axis=-1)[:, :2]
    return np.take_along_axis(drawn, best, -1)


class Merged(Rejection):
    """A look-up child stands before a sampled one, and a sampled one that repeats it is skipped."""

    def verify(self, p, q):
        guess, child, every = q.argmax(-1), self.propose(self.rng, q)[:, 0], np.arange(len(p))
        found = self.rng.random(len(p)) < p[every, guess]
        left = p.copy()
        left[every, guess] = 0
        left /= left.sum(-1, keepdims=True)
        accepted = self.rng.random(len(p)) * q[every, child] < left[every, child]
        rest = np.where((child == guess)[:, None], left, np.maximum(left - q, 0))
        behind = np.where(accepted, child, self._categorical(rest))
        return np.where(found, guess, behind), found | accepted


class MatchThenResidual(Rejection):
    """The target draws; a draw that is no sibling is drawn again from what the drafter leaves of the target."""

    def verify(self, p, q):
        children = self.propose(self.rng, q)
        token = self._categorical(p)
        matched = (children == token[:, None]).any(-1)
        return np.where(matched, token, self._categorical(np.maximum(p - q, 0))), matched


def test_speculative_sampling_over_freshly_sampled_siblings_is_exact_too():
    check_exact(*Rejection(sampled).pairs())


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(Rejection(deterministic), id="top-k siblings accepted with the drafter's probability"),
        pytest.param(Rejection(sampled_then_pruned), id="sampled siblings pruned by score"),
        pytest.param(Merged(sampled), id="sampled siblings merged with look-up ones"),
        pytest.param(MatchThenResidual(deterministic), id="match, else residual"),
    ],
)
def test_the_distribution_check_fails_on_a_biased_verifier(mutant):
    with pytest.raises(AssertionError):
        check_exact(*mutant.pairs())
