import dataclasses

import pytest
import torch

from harness.run import losslessness
from harness.run.losslessness import certify, explain_difference
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams, Sampler

GREEDY = DecodingParams(max_new_tokens=16)
SAMPLED = DecodingParams(max_new_tokens=16, temperature=0.7, draw_key=(0,))
ULP = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}  # between 1 and 2


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 64), (torch.bfloat16, 8), (torch.float16, 8)], ids=str)
def test_a_gap_within_the_tolerance_is_numeric_and_one_unit_more_is_different(dtype, within):
    def verdict(units):
        logits = torch.tensor([1.0, 1.0 + units * ULP[dtype], -3.0], dtype=dtype)
        return explain_difference(logits, GREEDY, [0], 0, 1, 0), explain_difference(logits, GREEDY, [0], 0, 0, 1)

    assert verdict(0) == ("tie", "tie")
    assert verdict(1) == verdict(within) == ("numeric", "numeric")
    assert verdict(within + 1) == ("different", "different")


def test_the_unit_is_that_of_the_larger_raw_logit():
    def verdict(low, high):
        return explain_difference(torch.tensor([low, high]), GREEDY, [5], 0, 0, 1)

    assert verdict(-8.0 - 64 * 2.0**-20, -8.0) == "numeric"
    assert verdict(8.0 - 60 * 2.0**-20, 8.0) == "numeric"  # 120 units of the smaller one
    assert verdict(8.0, 8.0 + 64 * 2.0**-20) == "numeric"
    assert verdict(8.0, 8.0 + 65 * 2.0**-20) == "different"


def test_a_gap_in_sampled_decoding_is_measured_with_the_noise_and_in_logits():
    leads = [noise[0] - noise[1] for noise in (Sampler(SAMPLED).noise(3, place).tolist() for place in range(99))]
    place = next(place for place, lead in enumerate(leads) if 0.2 < abs(lead) < 0.5)

    def verdict(units):
        level = 1.5 + leads[place] * SAMPLED.temperature  # makes up for what the noise gives token 0
        return explain_difference(
            torch.tensor([1.5, level + units * ULP[torch.float32], -9.0]), SAMPLED, [0], place, 0, 1
        )

    assert verdict(60) == "numeric"
    assert verdict(-60) == "numeric"
    assert verdict(80) == "different"
    assert explain_difference(torch.tensor([1.5, 1.5, -9.0]), SAMPLED, [0], place, 0, 1) == "different"


def test_the_repetition_penalty_is_part_of_the_comparison():
    params = dataclasses.replace(GREEDY, repetition_penalty=2.0)

    assert explain_difference(torch.tensor([3.0, 1.5]), params, [0], 0, 0, 1) == "tie"
    assert explain_difference(torch.tensor([1.5, 1.5]), params, [0], 0, 0, 1) == "different"


def drawn_at_the_border(params, border):
    """An output position at which the noise prefers `border` to the other tokens of LOGITS."""
    sampler = Sampler(dataclasses.replace(params, top_k=0, top_p=1.0))
    return next(place for place in range(999) if sampler.draw(LOGITS, [0], place) == border)


LOGITS = torch.tensor([0.5, 0.3, 0.2]).log() + 3.0


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ({"top_p": 0.8}, "numeric"),
        ({"top_p": 0.79}, "different"),
        ({"top_p": 0.81}, "different"),
        ({"top_k": 2}, "different"),
    ],
    ids=str,
)
def test_a_token_on_the_border_of_the_nucleus_is_numeric(limits, verdict):
    params = DecodingParams(max_new_tokens=9, temperature=1.0, draw_key=(0,), **limits)
    place = drawn_at_the_border(params, 2)

    assert explain_difference(LOGITS, params, [0], place, 2, 0) == verdict
    assert explain_difference(LOGITS, params, [0], place, 0, 2) == verdict


@pytest.mark.parametrize(("units", "verdict"), [(1, "numeric"), (60, "numeric"), (100, "different")])
def test_a_token_on_the_border_of_the_top_k_is_numeric(units, verdict):
    params = DecodingParams(max_new_tokens=9, temperature=1.0, top_k=2, draw_key=(0,))
    logits = torch.tensor([1.9, 1.5, 1.5 - units * ULP[torch.float32]])
    place = next(place for place in range(999) if Sampler(SAMPLED_ALL).draw(logits, [0], place) == 2)

    assert explain_difference(logits, params, [0], place, 2, 0) == verdict


SAMPLED_ALL = DecodingParams(max_new_tokens=9, temperature=1.0, draw_key=(0,))


def check_lengths(certify):
    assert certify(None, GREEDY, [1], [4, 5, 6], [4, 5, 6]) == "identical"
    assert certify(None, GREEDY, [1], [4, 5, 6], [4, 5]) == "different"
    assert certify(None, GREEDY, [1], [4, 5], [4, 5, 6]) == "different"
    assert certify(None, GREEDY, [1], [4, 5], []) == "different"


def test_an_answer_that_is_cut_short_is_different():
    def zipped(target, params, prompt, reference, tokens):
        return "identical" if all(a == b for a, b in zip(reference, tokens, strict=False)) else "different"

    check_lengths(certify)

    with pytest.raises(AssertionError):
        check_lengths(zipped)


@pytest.mark.torch
@pytest.mark.parametrize("prompt", [[3], [3, 9, 4]])
@pytest.mark.parametrize("shared", [[], [8, 8, 5]])
def test_the_candidates_are_compared_where_they_part(llama, monkeypatch, prompt, shared):
    calls = []
    monkeypatch.setattr(losslessness, "explain_difference", lambda *arguments: calls.append(arguments) or "numeric")

    assert certify(TreeModel(llama), SAMPLED, prompt, [*shared, 1, 2], [*shared, 7]) == "numeric"

    ((logits, params, prefix, position, ours, theirs),) = calls
    assert (params, prefix, position, ours, theirs) == (SAMPLED, [*prompt, *shared], len(shared), 1, 7)
    with torch.no_grad():
        truth = llama(torch.tensor([prefix])).logits[0, -1]
    torch.testing.assert_close(logits, truth, rtol=1e-4, atol=2e-3)


@pytest.mark.torch
def test_the_first_difference_is_judged_by_the_targets_own_logits_there(llama):
    target, prompt = TreeModel(llama), [3, 9, 4]
    with torch.no_grad():
        order = llama(torch.tensor([[*prompt, 8, 8]])).logits[0, -1].argsort(descending=True).tolist()
    best, second, other = order[0], order[1], order[-1]

    assert certify(target, GREEDY, prompt, [8, 8, best, 1], [8, 8, second, 2]) == "different"
    assert certify(target, GREEDY, prompt, [8, 8, other, 1], [8, 8, other, 1]) == "identical"


@pytest.mark.torch
def test_tokens_that_the_target_cannot_tell_apart_are_a_tie(tiny):
    model = tiny(seed=3, tie_word_embeddings=False)
    with torch.no_grad():
        model.lm_head.weight[11] = model.lm_head.weight[10]
    target = TreeModel(model)

    assert certify(target, GREEDY, [3, 9, 4], [8, 10, 1], [8, 11, 2]) == "tie"
    assert certify(target, GREEDY, [3], [10], [11]) == "tie"
    assert certify(target, GREEDY, [3], [10], [12]) == "different"
