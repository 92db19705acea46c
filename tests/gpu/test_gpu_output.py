"""What a GPU computes: the baseline's tokens in fp32, and a tree's logits at a real model's shape in bf16."""

import random

import numpy as np
import pytest
import torch

from methods.core.sampling import DecodingParams
from methods.core.tree import DraftTree

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]  # other versions than the pinned ones warn

PROMPTS = [
    "[user] Who wrote it, and why? Who wrote it, and why?\n[assistant] ",
    "[user] Add 17 and 25. Add 17 and 26.\n[assistant] ",
    "[user] x\n[assistant] ",
]


@pytest.mark.parametrize("name", ["all-small", "all-mid", "treegraft-fixed", "csd"])
def test_greedy_output_is_the_baselines_in_fp32(toy, decoder, name):
    baseline, method = decoder(toy, "autoregressive"), decoder(toy, name)
    params, drafted = DecodingParams(48), 0
    for prompt in PROMPTS:
        answer = method.generate(list(prompt.encode()), params)
        assert answer.token_ids == baseline.generate(list(prompt.encode()), params).token_ids
        drafted += sum(one.drafted for one in answer.rounds)
    assert drafted > 0


def tree_of(rng, vocabulary, nodes=24):
    tree = DraftTree(rng.randrange(vocabulary))
    while len(tree) < nodes:
        tree.add(max(rng.randrange(len(tree)), rng.randrange(len(tree))), rng.randrange(vocabulary))
    return tree


@torch.no_grad()
def path_logits(model, context, tree):
    """Return the logits of every node, each by a forward of its own without a cache."""
    paths = ([*context, *(tree.tokens[step] for step in tree.path(node))] for node in range(len(tree)))
    inputs = (torch.tensor([path], device=model.device) for path in paths)
    return torch.stack([model(one, use_cache=False, logits_to_keep=1).logits[0, -1].float() for one in inputs])


def off(wrapped, context, tree, depths, visible, truth):
    """Return how far each node's logits are off: the length of the difference over the length of the truth."""
    wrapped.begin(len(context) + len(tree))
    wrapped.prefill(context)
    difference = wrapped.evaluate(tree.tokens, depths, visible).float() - truth
    return difference.norm(dim=-1) / truth.norm(dim=-1)


@pytest.mark.parametrize("role", ["target", "middle"])
def test_tree_logits_at_a_real_shape_are_those_of_a_forward_for_each_path(real, role):
    wrapped = getattr(real.models, role)
    rng = random.Random(0)
    context = [rng.randrange(wrapped.vocab_size) for _ in range(12)]
    tree = tree_of(rng, wrapped.vocab_size)
    truth = path_logits(wrapped.model, context, tree)

    worst = off(wrapped, context, tree, tree.depths, tree.visibility(), truth).max().item()
    by_index = off(wrapped, context, tree, range(len(tree)), tree.visibility(), truth).median().item()
    causal = off(wrapped, context, tree, tree.depths, np.tri(len(tree), dtype=np.bool_), truth).median().item()

    print(f"{role}: off by {worst:.3f} at most; wrong positions {by_index:.3f}, wrong mask {causal:.3f}")  # noqa: T201
    # Rounding in bf16 brings several hundredths over tens of layers, a wrong position or mask a good part of the whole.
    assert worst < 0.15
    assert min(by_index, causal) > 0.25


@pytest.mark.parametrize("size", [1, 5, 16, 40])
def test_a_captured_forward_gives_the_logits_of_the_same_forward_launch_by_launch(real, size, monkeypatch):
    wrapped = real.models.middle
    rng = random.Random(size)
    tree = tree_of(rng, wrapped.vocab_size, nodes=size)
    context = [rng.randrange(wrapped.vocab_size) for _ in range(12)]

    def logits():
        wrapped.begin(len(context) + size)
        wrapped.prefill(context)
        return wrapped.evaluate(tree.tokens, tree.depths, tree.visibility())

    first, again = logits(), logits()
    monkeypatch.setattr(wrapped.engine, "_padded", None)
    launched = logits()

    assert torch.equal(first, again)
    assert ((first - launched).float().norm(dim=-1) / launched.float().norm(dim=-1)).max().item() < 0.05
