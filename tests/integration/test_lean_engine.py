"""The lean engine computes what Hugging Face's forward computes: logits, hidden states, and every method's tokens."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from foundation.errors import UserError
from methods.core.engines import lean
from methods.core.engines.choice import Engines, why_not_lean
from methods.core.engines.hf import HuggingFaceEngine
from methods.core.engines.lean import LeanEngine
from methods.core.engines.padded import BUCKETS, PaddedInputs
from methods.core.engines.products import KernelChoice, Packer
from methods.core.limited_head import LimitedHead
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams

pytestmark = pytest.mark.torch

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "Llama": ("Llama", {}),
    "Llama with biases and a padded vocabulary": (
        "Llama",
        {"attention_bias": True, "mlp_bias": True, "vocab_size": 80},
    ),
    "Llama 3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "Mistral": ("Mistral", {"sliding_window": 4, "head_dim": 16}),
    "Qwen2": ("Qwen2", {}),
    "Qwen2, mixed": ("Qwen2", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1}),
    "Qwen3": ("Qwen3", {"head_dim": 16}),
}


@pytest.fixture(scope="module", params=FAMILIES.values(), ids=FAMILIES)
def model(request, tiny):
    """A tiny model of a family; its norms and biases are random too, else a missing one would not show."""
    kind, changes = request.param
    built = tiny.__wrapped__(kind, seed=31, **changes)  # not the cached one: it is changed
    generator = torch.Generator().manual_seed(5)
    for weights in built.parameters():
        if weights.ndim == 1 and weights.requires_grad:
            weights.data += 0.3 * torch.randn(weights.shape, generator=generator)
    return built.requires_grad_(False)


def leanly(model, *kernels, padded=None):
    return TreeModel(model, LeanEngine(model, Packer(KernelChoice(kernels or ("torch",) * 5)), padded=padded))


def rounds(wrapped, random_tree):
    """Yield the logits, and the hidden states behind layers 0 and 1, of forwards over prompts, trees and commits."""
    wrapped.engine.read_layers = (0, 1)
    rng = random.Random(4)
    for length in (0, 1, 23):
        wrapped.begin(length + 60)
        tokens = [rng.randrange(64) for _ in range(length)]
        wrapped.prefill(tokens[: length // 2])
        wrapped.prefill(tokens[length // 2 :])
        for _ in range(2):
            tree = random_tree(rng, rng.randrange(64), nodes=14, reach=3)
            visible = tree.visibility()
            for part in (slice(0, 6), slice(6, 14)):
                yield wrapped.evaluate(tree.tokens[part], tree.depths[part], visible[part, : part.stop])
                yield from wrapped.engine.hidden
            wrapped.commit(sorted(tree.path(13)))


def check_equal(wrapped, model, random_tree):
    """Compare by the largest value: one in ten thousand of it is the rounding of a few layers in fp32."""
    pairs = list(zip(rounds(wrapped, random_tree), rounds(TreeModel(model), random_tree), strict=True))
    assert len(pairs) == 36
    for ours, truth in pairs:
        assert ours.shape == truth.shape
        assert (ours - truth).abs().max() <= 1e-4 * truth.abs().max()


@pytest.mark.parametrize(
    "kernels", [("torch",) * 5, ("onednn",) * 5, ("torch", "onednn", "torch", "onednn", "torch")], ids=str
)
def test_logits_and_hidden_states_equal_hugging_faces(model, random_tree, kernels):
    check_equal(leanly(model, *kernels), model, random_tree)


def test_padding_to_a_few_sizes_changes_no_logit(model, random_tree, monkeypatch):
    monkeypatch.setattr("methods.core.engines.padded.KEY_STEP", 32)
    check_equal(leanly(model, padded=True), model, random_tree)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9, 33, 64, 65])
def test_every_size_up_to_the_largest_is_padded_to_the_next(tiny, size):
    model = tiny(seed=31)
    wrapped, plain = leanly(model, padded=True), leanly(model)
    tokens, visible = [(3 * place) % 64 for place in range(size)], np.tri(size, dtype=np.bool_)
    for one in (wrapped, plain):
        one.begin(size + 5)
        one.prefill([4, 8, 15])
    torch.testing.assert_close(
        wrapped.evaluate(tokens, range(size), visible),
        plain.evaluate(tokens, range(size), visible),
        rtol=1e-4,
        atol=1e-3,
    )
    padded_to = {bucket for bucket, _ in wrapped.engine._padded._known}
    assert padded_to == {min((bucket for bucket in BUCKETS if bucket >= size), default=None)} - {None}


def test_the_check_of_padding_fails_where_padding_is_seen(tiny, random_tree, monkeypatch):
    fill = PaddedInputs.fill

    def blind(self, tokens, positions, start, visible):
        fill(self, tokens, positions, start, visible)
        for place in self.visible.values():
            place[:, start + len(tokens) :] = True

    monkeypatch.setattr(PaddedInputs, "fill", blind)

    with pytest.raises(AssertionError):
        check_equal(leanly(tiny(seed=31), padded=True), tiny(seed=31), random_tree)


def no_minus_sign(states, cosines, sines):
    lean_rotate(states, cosines, sines.abs())


def no_rotation(states, cosines, sines):
    return None


lean_rotate = lean._rotate


@pytest.mark.parametrize("mutant", [no_minus_sign, no_rotation])
def test_the_check_fails_on_another_rotary_embedding(tiny, random_tree, monkeypatch, mutant):
    monkeypatch.setattr(lean, "_rotate", mutant)

    with pytest.raises(AssertionError):
        check_equal(leanly(tiny(seed=31)), tiny(seed=31), random_tree)


def test_the_check_fails_where_a_window_is_forgotten(tiny, random_tree):
    model = tiny("Mistral", seed=31, sliding_window=4)
    wrapped = leanly(model)
    wrapped.engine._windows = dict.fromkeys(wrapped.engine._windows)
    wrapped._windows = {None}

    with pytest.raises(AssertionError):
        check_equal(wrapped, model, random_tree)


def test_a_long_prompt_in_chunks_equals_one_at_once(model, fresh, close, monkeypatch):
    monkeypatch.setattr(lean, "_CHUNK", 7)
    wrapped, tokens, scored = leanly(model), [(7 * place) % 64 for place in range(40)], []
    wrapped.begin(41)
    wrapped.prefill_scored(tokens, lambda logits, start: scored.append(logits))

    close(torch.cat(scored)[[0, 6, 7, 39]], torch.stack([fresh(model, tokens[: end + 1]) for end in (0, 6, 7, 39)]))
    close(wrapped.evaluate([5], [0], np.ones((1, 1), dtype=np.bool_))[0], fresh(model, [*tokens, 5]))


def test_half_precision_in_either_kernel_is_as_near_to_fp32_as_hugging_faces(tiny, random_tree):
    exact, model = tiny(seed=31), tiny(seed=31, dtype="bfloat16")
    truth = list(rounds(TreeModel(exact), random_tree))

    def off(wrapped):
        return max(
            ((ours.float() - true).norm() / true.norm()).item()
            for ours, true in zip(rounds(wrapped, random_tree), truth, strict=True)
        )

    theirs = off(TreeModel(model))
    assert off(leanly(model)) < 1.5 * theirs
    assert off(leanly(model, "torch", *["onednn-fp32"] * 4)) < 1.5 * theirs


def test_a_limited_head_gives_its_own_columns(tiny):
    model = tiny(seed=33)
    whole = model.get_output_embeddings()
    ids = torch.tensor([3, 9, 27, 50])
    model.set_output_embeddings(LimitedHead(whole.weight.detach()[ids].clone(), ids, 64, -5.0))
    try:
        logits = []
        for wrapped in (TreeModel(model), leanly(model)):
            wrapped.begin(8)
            wrapped.prefill([4, 8])
            logits.append(wrapped.evaluate([5, 6], [0, 1], np.tri(2, dtype=np.bool_)))
        assert logits[1].shape == (2, 4)
        torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-3)
    finally:
        model.set_output_embeddings(whole)


@pytest.mark.parametrize(
    "name", ["autoregressive", "all-small", "all-mid", "treegraft-fixed", "treegraft-calibrated", "csd"]
)
def test_methods_decode_what_generate_decodes(model, method, echo, hf_tokens, prompts, name):
    decoder = method(name, model, middle=echo(model), engine=leanly)
    assert decoder.models.target.engine.name == "lean"
    for prompt in prompts[:6]:
        assert decoder.generate(prompt, DecodingParams(12)).token_ids == hf_tokens(model, prompt, 12)


def test_the_models_own_forward_still_works_on_the_stacked_weights(tiny, fresh):
    model = tiny("Qwen2", seed=35)
    before = fresh(model, [3, 9, 27])
    weights = {name: value.clone() for name, value in model.state_dict().items()}

    leanly(model)

    assert torch.equal(fresh(model, [3, 9, 27]), before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    attention = model.model.layers[0].self_attn
    assert attention.k_proj.weight.untyped_storage().data_ptr() == attention.q_proj.weight.untyped_storage().data_ptr()


REFUSED = {
    "Gemma2ForCausalLM": lambda tiny: tiny("Gemma2", attention="eager", head_dim=8, query_pre_attn_scalar=8),
    "eager attention": lambda tiny: tiny(attention="eager"),
    "activation gelu": lambda tiny: tiny(hidden_act="gelu"),
    "rotary embedding dynamic": lambda tiny: tiny.__wrapped__(
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    ),
}


@pytest.mark.parametrize(("reason", "build"), REFUSED.items(), ids=REFUSED)
def test_what_it_does_not_know_runs_on_hugging_faces_forward(tiny, reason, build):
    model = build(tiny)

    assert reason in why_not_lean(model)
    assert isinstance(Engines("auto", model).of(model), HuggingFaceEngine)
    with pytest.raises(UserError, match=r"--engine lean: cannot run .*; give auto or hf"):
        Engines("lean", model).of(model)


def test_auto_is_lean_and_hf_is_as_asked(llama):
    assert Engines("auto", llama).of(llama).name == "lean"
    assert Engines("hf", llama).of(llama).name == "hf"


def test_code_that_a_model_brings_along_is_not_taken_for_the_family(llama):
    class LlamaForCausalLM(type(llama)):
        pass

    LlamaForCausalLM.__module__ = "somebodys.code"
    model = LlamaForCausalLM(llama.config)

    assert "not one of" in why_not_lean(model)


def test_models_that_share_layers_share_packed_weights():
    packer, layers = Packer(KernelChoice(("torch",) * 5)), [nn.Linear(4, 3), nn.Linear(4, 2)]

    assert packer.product(*layers) is packer.product(*layers)
    assert packer.product(layers[0]) is not packer.product(*layers)
