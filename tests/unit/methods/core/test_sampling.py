import dataclasses
import math

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from methods.core.sampling import DecodingParams, Sampler

SAMPLED = DecodingParams(max_new_tokens=9, temperature=1.0, draw_key=(0, "mini", 7, 0))
LOGITS = torch.tensor([1.0, 0.5, 2.0, -1.0, 1.5])


def draws(params, count=200):
    sampler = Sampler(params)
    return [sampler.draw(LOGITS, [0], position) for position in range(count)]


def test_a_draw_depends_on_the_key_and_the_position_alone():
    sampler = Sampler(SAMPLED)
    in_order = draws(SAMPLED)
    torch.manual_seed(12345)
    backwards = [sampler.draw(LOGITS, [0], position) for position in reversed(range(200))][::-1]

    assert backwards == in_order
    assert len(set(in_order)) == len(LOGITS)
    assert draws(dataclasses.replace(SAMPLED, draw_key=(1, "mini", 7, 0))) != in_order
    assert draws(dataclasses.replace(SAMPLED, draw_key=(0, "mini", 7, 1))) != in_order
    assert not torch.equal(sampler.noise(6, 3), sampler.noise(6, 4))


def test_draws_leave_torchs_own_random_state_alone():
    before = torch.random.get_rng_state()

    draws(SAMPLED, 3)

    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_seed_of_a_draw_never_changes_between_versions():
    assert SAMPLED.draw_seed(0) == 0x5E2060F4846D045B
    assert SAMPLED.draw_seed(1) == 0x24DB43CDD0A60D6C


def test_noise_is_gumbel():
    noise = Sampler(SAMPLED).noise(200_000, 0)

    assert noise.dtype == torch.float64
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.03)


def test_greedy_is_the_argmax_and_the_first_of_a_tie():
    greedy = Sampler(DecodingParams(max_new_tokens=1))

    assert greedy.plain
    assert greedy.draw(LOGITS, [0], 0) == 2
    assert greedy.draw(torch.tensor([1.0, 3.0, 3.0]), [0], 0) == 1


def test_greedy_ignores_top_k_and_top_p_but_not_the_repetition_penalty():
    params = DecodingParams(max_new_tokens=1, top_k=1, top_p=0.1)
    assert Sampler(params).plain
    assert torch.equal(Sampler(params).processed(LOGITS, [0]), LOGITS)

    penalised = Sampler(dataclasses.replace(params, repetition_penalty=2.0))
    assert not penalised.plain
    assert penalised.draw(LOGITS, [2], 0) == 4


def test_removed_tokens_are_never_drawn():
    assert set(draws(dataclasses.replace(SAMPLED, top_k=2))) == {2, 4}
    assert set(draws(dataclasses.replace(SAMPLED, temperature=5.0, top_p=0.3))) <= {2, 4}


GRIDS = [
    {"temperature": 0.7},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 0.3, "top_p": 0.9, "top_k": 20},
    {"temperature": 1.7, "top_p": 0.6, "top_k": 7, "repetition_penalty": 1.3},
    {"temperature": 1.0, "repetition_penalty": 0.8},
]


@pytest.fixture(scope="session")
def hf_steps(llama):
    """Return, for a set of parameters, `generate`'s raw and processed scores at each step, with the step's prefix."""

    def steps(parameters, prompt=(5, 9, 5, 3), count=12):
        torch.manual_seed(0)
        out = llama.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=count,
            do_sample=True,
            **{"top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0, **parameters},
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
            output_scores=True,
        )
        tokens = out.sequences[0].tolist()
        return [
            (raw[0], scores[0], tokens[: len(prompt) + step])
            for step, (raw, scores) in enumerate(zip(out.logits, out.scores, strict=True))
        ]

    return steps


def check_processing(sampler_of, steps, parameters):
    sampler = sampler_of(DecodingParams(max_new_tokens=9, **parameters))
    for raw, scores, prefix in steps:
        torch.testing.assert_close(sampler(raw, prefix), scores, rtol=0, atol=0)


@pytest.mark.torch
@pytest.mark.parametrize("parameters", GRIDS, ids=str)
def test_processing_equals_generates_own(hf_steps, parameters):
    check_processing(lambda params: Sampler(params).processed, hf_steps(parameters), parameters)


def in_order(*makers):
    """A mutant that processes in an order of its own."""

    def sampler_of(params):
        def process(raw, prefix):
            scores = raw[None].float()
            for make in makers:
                scores = make(params)(torch.tensor([prefix]), scores)
            return scores[0]

        return process

    return sampler_of


def penalty(params):
    return RepetitionPenaltyLogitsProcessor(params.repetition_penalty)


def temperature(params):
    return TemperatureLogitsWarper(params.temperature)


def top_k(params):
    return TopKLogitsWarper(params.top_k)


def top_p(params):
    return TopPLogitsWarper(params.top_p)


@pytest.mark.torch
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(in_order(penalty, top_k, top_p, temperature), id="temperature last"),
        pytest.param(in_order(penalty, temperature, top_p, top_k), id="top-p before top-k"),
        pytest.param(in_order(temperature, top_k, top_p), id="repetition penalty lost"),
        pytest.param(in_order(temperature, top_k, top_p, penalty), id="repetition penalty last"),
        pytest.param(in_order(penalty, temperature, top_k), id="top-p lost"),
    ],
)
def test_the_processing_check_fails_on_a_mutant(hf_steps, mutant):
    parameters = GRIDS[3]
    steps = hf_steps(parameters)
    check_processing(in_order(penalty, temperature, top_k, top_p), steps, parameters)

    with pytest.raises(AssertionError):
        check_processing(mutant, steps, parameters)
