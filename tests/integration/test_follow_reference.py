"""Runs that follow the baseline: every method commits its tokens, and counts where it would have drawn otherwise."""

from dataclasses import replace

import pytest

from harness.run.losslessness import certify
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams

pytestmark = pytest.mark.torch

PARAMS = DecodingParams(max_new_tokens=24)


class Blurred(TreeModel):
    """Its logits are a little off, as rounding leaves them, or far off, as a bug does."""

    shift = 0.0

    def evaluate(self, tokens, depths, visible):
        logits = super().evaluate(tokens, depths, visible).clone()
        logits[:, ::2] += self.shift
        return logits


@pytest.fixture
def following(llama, method, echo, prompts):
    """Decode a prompt along a reference with a target that is off by `shift`."""

    def decode(name, prompt, params, shift=0.0):
        built = method(name, llama, middle=echo(llama))
        built.models.target.__class__ = Blurred
        built.models.target.shift = shift
        return built.generate(prompt, params)

    return decode


@pytest.mark.parametrize("name", ["autoregressive", "all-small", "treegraft-fixed", "csd"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_baselines_tokens_are_committed_whatever_a_method_would_draw(following, prompts, name, temperature):
    params = replace(PARAMS, temperature=temperature, draw_key=(1,))
    reference = following("autoregressive", prompts[0], params).token_ids

    generation = following(name, prompts[0], replace(params, reference=tuple(reference)), shift=2.0)

    assert generation.token_ids == reference
    assert generation.flips
    assert all(reference[position] != drawn for position, drawn in generation.flips)


@pytest.mark.parametrize("name", ["autoregressive", "all-small", "treegraft-fixed"])
def test_a_method_that_draws_the_same_flips_nowhere(following, prompts, name):
    reference = following("autoregressive", prompts[1], PARAMS).token_ids

    assert following(name, prompts[1], replace(PARAMS, reference=tuple(reference))).flips == []


def test_without_a_reference_there_is_nothing_to_flip(following, prompts):
    assert following("all-small", prompts[1], PARAMS).flips is None


def test_tokens_behind_the_reference_are_the_methods_own(following, prompts):
    whole = following("autoregressive", prompts[1], PARAMS).token_ids

    assert following("all-small", prompts[1], replace(PARAMS, reference=tuple(whole[:5]))).token_ids == whole


def test_the_worst_flip_decides_the_verdict(llama, following, prompts):
    reference = following("autoregressive", prompts[2], PARAMS).token_ids
    flips = following("all-small", prompts[2], replace(PARAMS, reference=tuple(reference)), shift=2.0).flips
    target = TreeModel(llama)

    assert certify(target, PARAMS, prompts[2], reference, reference, []) == "identical"
    assert certify(target, PARAMS, prompts[2], reference, reference, flips) == "different"
