"""Prompts, methods and the slow truths that decoding is compared with."""

import copy
import random
from functools import cache

import pytest

SMALL = {
    f"all-small, {exhaustion}, {estimate}": ("all-small", {"exhaustion": exhaustion, "estimate": estimate})
    for exhaustion in ("release", "continue")
    for estimate in ("counts", "prefill")
}
OURS = {"autoregressive": ("autoregressive", {}), **SMALL}


@pytest.fixture(params=SMALL.values(), ids=SMALL)
def small(request):
    """Name and parameters of an all-small method."""
    return request.param


@pytest.fixture(params=OURS.values(), ids=OURS)
def ours(request):
    """Name and parameters of a method whose rounds are ours."""
    return request.param


@pytest.fixture(scope="session")
def prompts():
    """50 prompts; those of odd index repeat themselves, so that a look-up finds what the model may well repeat."""
    rng = random.Random(0)
    several = []
    for index in range(50):
        length = rng.randint(2, 7) if index % 2 else rng.randint(4, 30)
        tokens = [rng.randrange(64) for _ in range(length)]
        several.append(tokens * rng.randint(3, 5) if index % 2 else tokens)
    return several


@pytest.fixture(scope="session")
def fresh():
    """Return a model's raw logits behind a sequence of tokens, by a forward without a cache, [vocabulary]."""
    import torch

    @torch.no_grad()
    def logits(model, tokens):
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -1]

    return logits


@pytest.fixture(scope="session")
def path_logits(fresh):
    """Return the logits of every node of a tree, each by a forward of its own over the context and its path."""
    import torch

    def of(model, context, tree):
        paths = ([tree.tokens[step] for step in tree.path(node)] for node in range(len(tree)))
        return torch.stack([fresh(model, [*context[:-1], *path]) for path in paths])

    return of


@pytest.fixture(scope="session")
def close():
    """Compare logits; wrong masks and positions are off by whole units, rounding by less than a thousandth."""
    import torch

    def check(ours, truth):
        torch.testing.assert_close(ours, truth, rtol=1e-4, atol=2e-3)

    return check


@pytest.fixture(scope="session")
def random_tree():
    """Build a tree of random tokens, its nodes in no particular order; the larger `reach`, the deeper it is."""
    from methods.core.tree import DraftTree

    def build(rng, root, nodes=9, reach=1, vocabulary=64):
        tree = DraftTree(root)
        while len(tree) < nodes:
            parent = max(rng.randrange(len(tree)) for _ in range(reach))
            tree.add(parent, rng.randrange(vocabulary))
        return tree

    return build


@pytest.fixture(scope="session")
def echo():
    """Make a drafter of a model: the same with weights that are a little off, so that it often guesses right."""
    import torch

    @cache
    def make(model, noise=0.1, seed=1):
        twin = copy.deepcopy(model)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for weights in twin.parameters():
                weights.data += noise * weights.std() * torch.randn_like(weights)
        return twin

    return make


@pytest.fixture
def calls(monkeypatch):
    """Every forward of every model: model, tokens, depths, visibility, rows before it, its last position."""
    from methods.core.model import TreeModel

    made = []
    evaluate = TreeModel.evaluate

    def record(self, tokens, depths, visible):
        rows, last = self.length + self.pending, self.length + max(depths)
        made.append((self, list(tokens), list(depths), visible.tolist(), rows, last))
        return evaluate(self, tokens, depths, visible)

    monkeypatch.setattr(TreeModel, "evaluate", record)
    return made
