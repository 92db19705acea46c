"""A model made of some of another's layers has their weights, its own KV rows, and leaves the other alone."""

import pytest
import torch

from foundation.errors import UserError
from harness.models.shared_layers import sharing_layers
from methods.core.model import TreeModel
from methods.core.tree import DraftTree

pytestmark = pytest.mark.torch


def copied(tiny, layers, kind, **changes):
    """The same model built anew, with copies of the weights."""
    whole = tiny(kind, **changes)
    picked = {}
    for name, tensor in whole.state_dict().items():
        parts = name.split(".")
        if "layers" not in parts:
            picked[name] = tensor
            continue
        place = parts.index("layers") + 1
        for index, layer in enumerate(layers):
            if int(parts[place]) == layer:
                picked[".".join([*parts[:place], str(index), *parts[place + 1 :]])] = tensor
    kinds = getattr(whole.config, "layer_types", None)
    changes |= {"num_hidden_layers": len(layers)} | ({"layer_types": tuple(kinds[i] for i in layers)} if kinds else {})
    model = tiny(kind, seed=99, **changes)
    model.load_state_dict(picked)
    return model


WINDOWED = {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1, "head_dim": 8}


@pytest.mark.parametrize("layers", [(0, 2), (2,), (2, 0, 1)])
@pytest.mark.parametrize(("kind", "changes"), [("Llama", {}), ("Qwen3", WINDOWED)])
def test_shared_layers_decode_like_copied_ones(tiny, path_logits, close, kind, changes, layers):
    whole = tiny(kind, **changes)
    shared, truth = sharing_layers(whole, list(layers), "middle"), copied(tiny, layers, kind, **changes)
    context, tree = [3, 9, 27, 4, 50, 11], DraftTree(11)
    tree.insert_path(0, [1, 2, 3], 9)
    tree.insert_path(0, [5, 2], 9)
    models = [TreeModel(whole), TreeModel(shared)]
    for model in models:  # both are at work at once
        model.begin(32)
        model.prefill(context[:-1])
    for model, alone in zip(models, (whole, truth), strict=True):
        logits = model.evaluate(tree.tokens, tree.depths, tree.visibility())
        close(logits, path_logits(alone, context, tree))


def test_the_other_model_stays_as_it_was(tiny, fresh):
    whole = tiny(seed=5)
    before, config = fresh(whole, [1, 2, 3]), whole.config.to_dict()

    shared = sharing_layers(whole, [2, 0], "middle")
    TreeModel(shared).prefill([])

    assert torch.equal(fresh(whole, [1, 2, 3]), before)
    assert whole.config.to_dict() == config
    assert [layer.self_attn.layer_idx for layer in whole.model.layers] == [0, 1, 2]
    assert shared.model.layers[1].mlp is whole.model.layers[0].mlp


@pytest.mark.parametrize("layers", [[], [3], [-1], [0, 7]])
def test_layers_that_are_not_there_are_refused(llama, layers):
    with pytest.raises(UserError, match=r"pair x: middle: .* are not among the target's 3 layers"):
        sharing_layers(llama, layers, "pair x: middle")
