"""Models whose layers see a window: the tree mask has it too, and every layer keeps every row."""

import random

import pytest
import torch

from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams

pytestmark = pytest.mark.torch

COUNT = 12
GREEDY = DecodingParams(max_new_tokens=COUNT)
GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8}
MODELS = {
    "Mistral, window 4": ("Mistral", {"sliding_window": 4}),
    "Mistral, window 8": ("Mistral", {"sliding_window": 8, "head_dim": 8}),
    "Qwen2, mixed": ("Qwen2", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1}),
    "Qwen2, all layers": ("Qwen2", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 0}),
    "Qwen3, mixed": (
        "Qwen3",
        {"sliding_window": 6, "use_sliding_window": True, "max_window_layers": 2, "head_dim": 8},
    ),
    "Gemma2": ("Gemma2", {"sliding_window": 5, **GEMMA}),
    "Gemma3": ("Gemma3", {"sliding_window": 5, "num_hidden_layers": 6, **GEMMA}),
}
EAGER_ONLY = {"Gemma2"}
WINDOWLESS = {
    "Mistral without a window": ("Mistral", {"sliding_window": None}),
    "Qwen2 with the window switched off": ("Qwen2", {"sliding_window": 5, "use_sliding_window": False}),
}


@pytest.fixture
def build(tiny):
    """Build a model; over few tokens, so that a look-up often guesses right."""

    def build(kind, changes, attention="sdpa", vocabulary=16):
        attention = "eager" if kind in EAGER_ONLY else attention
        return tiny(kind, attention=attention, vocab_size=vocabulary, **changes)

    return build


@pytest.fixture(scope="session")
def few(prompts):
    return [[9], [5, 4], *([token % 16 for token in prompt] for prompt in prompts[2:5])]


def check_tokens(decoders, model, prompts, hf_tokens):
    accepted = 0
    for prompt in prompts:
        for decoder in decoders:
            generation = decoder.generate(prompt, GREEDY)
            assert generation.token_ids == hf_tokens(model, prompt, COUNT)
            accepted += sum(record.accepted for record in generation.rounds)
    return accepted


@pytest.mark.parametrize(("kind", "changes"), [*MODELS.values(), *WINDOWLESS.values()], ids=[*MODELS, *WINDOWLESS])
def test_ours_equal_generate(build, method, hf_tokens, few, kind, changes):
    model = build(kind, changes)
    decoders = [method(name, model) for name in ("autoregressive", "all-small")]

    accepted = check_tokens(decoders, model, few, hf_tokens)

    assert accepted > 0


@pytest.mark.parametrize("name", ["Mistral, window 4", "Qwen3, mixed", "Gemma3"])
def test_ours_equal_generate_with_eager_attention(build, method, hf_tokens, few, name):
    model = build(*MODELS[name], attention="eager")

    check_tokens([method("all-small", model)], model, few, hf_tokens)


class WithoutWindow(TreeModel):
    """The mutant: a mask of our own switches the window off."""

    def _visible(self, positions, visible, window):
        return super()._visible(positions, visible, None)


class PendingByIndex(TreeModel):
    """The mutant: pending rows stand at their index, not at their depth, when a window is laid."""

    def evaluate(self, tokens, depths, visible):
        logits = super().evaluate(tokens, depths, visible)
        self._pending_positions = [self.length + row for row in range(self.pending)]
        return logits


def check_parts(kind, model, path_logits, close, random_tree):
    rng, context = random.Random(3), [3, 9, 27, 4, 50, 11]
    wrapped = kind(model)
    for _ in range(2):
        tree = random_tree(rng, context[-1], nodes=24, reach=6)
        assert max(tree.depths) > 8  # deeper than any window
        truth, visible = path_logits(model, context, tree), tree.visibility()
        wrapped.begin(64)
        wrapped.prefill(context[:-1])
        for start, end in ((0, 12), (12, 24)):
            part = slice(start, end)
            close(wrapped.evaluate(tree.tokens[part], tree.depths[part], visible[part, :end]), truth[part])


@pytest.mark.parametrize(("kind", "changes"), MODELS.values(), ids=MODELS)
def test_a_window_is_laid_by_depth_over_committed_and_pending_rows(
    build, path_logits, close, random_tree, kind, changes
):
    model = build(kind, changes, vocabulary=64)
    check_parts(TreeModel, model, path_logits, close, random_tree)

    for mutant in (WithoutWindow, PendingByIndex):
        with pytest.raises(AssertionError):
            check_parts(mutant, model, path_logits, close, random_tree)


def test_no_layer_of_the_cache_slides(tiny):
    model = TreeModel(tiny("Mistral", sliding_window=4))
    model.begin(32)
    model.prefill(list(range(20)))

    layers = model.engine._cache.layers
    assert not any(layer.is_sliding for layer in layers)
    assert all(layer.get_seq_length() == 20 for layer in layers)
    assert all(torch.isfinite(layer.keys[..., :20, :]).all() for layer in layers)
