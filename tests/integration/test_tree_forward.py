"""One masked forward over a tree gives each node the logits of a forward over its own path."""

import random

import numpy as np
import pytest
import torch

from methods.core.engines.hf import HuggingFaceEngine
from methods.core.model import TreeModel
from methods.core.tree import DraftTree

pytestmark = pytest.mark.torch

CONTEXTS = [[7], [7, 12], [3, 9, 27, 4, 4, 51, 9]]


def by_depth(model, tree):
    return model.evaluate(tree.tokens, tree.depths, tree.visibility())


def check_tree_logits(model, evaluate, path_logits, close, random_tree, engine=HuggingFaceEngine):
    rng = random.Random(0)
    wrapped = TreeModel(model, engine(model))
    for context in CONTEXTS:
        tree = random_tree(rng, context[-1])
        wrapped.begin(64)
        wrapped.prefill(context[:-1])
        logits = evaluate(wrapped, tree)
        assert bool(logits.isfinite().all())
        close(logits, path_logits(model, context, tree))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_tree_logits_equal_a_forward_for_each_path(tiny, attention, path_logits, close, random_tree):
    check_tree_logits(tiny(attention=attention), by_depth, path_logits, close, random_tree)


def positions_by_index(model, tree):
    return model.evaluate(tree.tokens, list(range(len(tree))), tree.visibility())


def without_ancestors(model, tree):
    return model.evaluate(tree.tokens, tree.depths, np.eye(len(tree), dtype=np.bool_))


def causal_by_index(model, tree):
    return model.evaluate(tree.tokens, tree.depths, np.tri(len(tree), dtype=np.bool_))


class BooleanMask(HuggingFaceEngine):
    """What SDPA takes and eager attention adds to the scores."""

    def _mask(self, visible):
        return super()._mask(visible) == 0


class ZeroOneMask(HuggingFaceEngine):
    """A float mask of ones and zeros, which both back ends add to the scores."""

    def _mask(self, visible):
        return (super()._mask(visible) == 0).float()


class InfiniteMask(HuggingFaceEngine):
    """Minus infinity, and a node that does not see itself: alone in the context it sees nothing."""

    def _mask(self, visible):
        blind = visible.copy()
        blind[:, -len(visible) :] &= ~np.eye(len(visible), dtype=np.bool_)
        mask = super()._mask(blind)
        return mask.masked_fill(mask < 0, float("-inf"))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("evaluate", "engine"),
    [
        pytest.param(positions_by_index, HuggingFaceEngine, id="positions by index instead of depth"),
        pytest.param(without_ancestors, HuggingFaceEngine, id="a mask without the ancestors"),
        pytest.param(causal_by_index, HuggingFaceEngine, id="a causal mask"),
        pytest.param(by_depth, BooleanMask, id="a boolean mask"),
        pytest.param(by_depth, ZeroOneMask, id="a mask of ones and zeros"),
        pytest.param(by_depth, InfiniteMask, id="a row of minus infinity"),
    ],
)
def test_the_logits_check_fails_on_a_mutant(tiny, attention, evaluate, engine, path_logits, close, random_tree):
    arguments = (tiny(attention=attention), evaluate, path_logits, close, random_tree, engine)
    if engine is BooleanMask and attention == "sdpa":  # the one place where it is right
        check_tree_logits(*arguments)
        return

    with pytest.raises(AssertionError):
        check_tree_logits(*arguments)


def test_a_node_that_sees_nothing_else_has_finite_logits(llama, fresh, close):
    model = TreeModel(llama)
    model.begin(8)

    logits = model.evaluate([9, 5], [0, 0], np.eye(2, dtype=np.bool_))

    close(logits, torch.stack([fresh(llama, [9]), fresh(llama, [5])]))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_mask_has_the_models_type_in_half_precision(tiny, attention, path_logits):
    model = tiny(attention=attention, dtype="bfloat16")
    wrapped, tree = TreeModel(model), DraftTree(4)
    tree.insert_path(0, [1, 2], 9)
    tree.insert_path(0, [3, 2], 9)
    wrapped.begin(64)
    wrapped.prefill([3, 9, 27])

    logits = by_depth(wrapped, tree)

    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits, path_logits(model, [3, 9, 27, 4], tree), rtol=0.05, atol=1.0)


@pytest.mark.parametrize("length", [1, 2, 300])
def test_a_prefill_in_parts_or_scored_equals_one_at_once(llama, fresh, close, length):
    rng = random.Random(length)
    tokens = [rng.randrange(64) for _ in range(length)]
    truth = fresh(llama, [*tokens, 5])
    see_itself = np.ones((1, 1), dtype=np.bool_)
    chunks = []

    model = TreeModel(llama)
    for prefill in (
        lambda: model.prefill(tokens),
        lambda: (model.prefill([]), model.prefill(tokens[:1]), model.prefill(tokens[1:])),
        lambda: model.prefill_scored(tokens, lambda logits, start: chunks.append((start, logits))),
    ):
        model.begin(length + 1)
        prefill()
        assert model.length == length
        close(model.evaluate([5], [0], see_itself)[0], truth)

    assert [start for start, _ in chunks] == list(range(0, length, 256))
    scored = torch.cat([logits for _, logits in chunks])
    for place in {0, length // 2, length - 1}:
        close(scored[place], fresh(llama, tokens[: place + 1]))


def test_layers_that_cannot_see_a_tree_are_refused(tiny):
    from foundation.errors import UserError

    model = tiny("Qwen2", seed=9)
    model.config.layer_types = ["full_attention", "linear_attention", "full_attention"]

    with pytest.raises(UserError, match="linear_attention"):
        TreeModel(model)
