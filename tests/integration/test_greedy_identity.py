"""Greedy decoding in fp32: whatever drafts, the tokens are those of Hugging Face's `generate(do_sample=False)`."""

import pytest
import torch

from harness.run.losslessness import certify
from methods.core.sampling import DecodingParams

pytestmark = pytest.mark.torch

COUNT = 16
GREEDY = DecodingParams(max_new_tokens=COUNT)
SHORT = [[9], [17, 17], [5, 40], [8, 8, 8], [63, 0, 21]]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_ours_equal_generate(tiny, method, hf_tokens, prompts, ours, attention):
    model = tiny(attention=attention)
    decoder = method(ours[0], model, **ours[1])
    accepted = 0
    for prompt in SHORT + prompts[: 20 if attention == "sdpa" else 8]:
        generation = decoder.generate(prompt, GREEDY)
        assert generation.token_ids == hf_tokens(model, prompt, COUNT)
        accepted += sum(record.accepted for record in generation.rounds)
    assert (accepted > 0) == (ours[0] == "all-small")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_ours_equal_generate_on_many_more_prompts_and_longer_answers(tiny, method, hf_tokens, prompts, ours, seed):
    model, params = tiny(seed=20 + seed, vocab_size=24), DecodingParams(max_new_tokens=96)
    decoder = method(ours[0], model, **ours[1])
    for prompt in SHORT + prompts:
        few = [token % 24 for token in prompt]
        assert decoder.generate(few, params).token_ids == hf_tokens(model, few, 96)


@pytest.mark.parametrize("name", ["hf-generate", "hf-static", "prompt-lookup"])
def test_outside_peers_equal_generate(llama, method, hf_tokens, prompts, name):
    peer = method(name, llama)
    for prompt in SHORT + prompts[:8]:
        assert peer.generate(prompt, GREEDY).token_ids == hf_tokens(llama, prompt, COUNT)


@pytest.mark.parametrize("name", ["hf-generate", "prompt-lookup", "assisted"])
def test_outside_peers_penalise_repetition_over_the_whole_text_as_we_do(llama, echo, method, prompts, name):
    params = DecodingParams(max_new_tokens=COUNT, repetition_penalty=1.3)
    baseline, peer = method("autoregressive", llama), method(name, llama, middle=echo(llama))
    answers = [baseline.generate(prompt, params).token_ids for prompt in SHORT + prompts[:4]]

    assert [peer.generate(prompt, params).token_ids for prompt in SHORT + prompts[:4]] == answers
    assert answers != [baseline.generate(prompt, GREEDY).token_ids for prompt in SHORT + prompts[:4]]


def test_prompt_lookup_needs_fewer_forwards_than_tokens_where_a_prompt_repeats_itself(llama, method, prompts):
    generations = [method("prompt-lookup", llama).generate(prompt, GREEDY) for prompt in prompts[1:12:2]]

    assert sum(generation.decode_forwards + 1 for generation in generations) < COUNT * len(generations)


def test_a_padded_vocabulary_changes_nothing(tiny, method, hf_tokens, prompts, small):
    """The model has more embeddings than its tokenizer has tokens; a draft holds tokens of the context alone."""
    model = tiny(vocab_size=80, seed=1)
    for prompt in prompts[:4]:
        generation = method(small[0], model, **small[1]).generate(prompt, GREEDY)
        assert generation.token_ids == hf_tokens(model, prompt, COUNT)


def test_half_precision_is_judged_never_hidden(tiny, method, prompts):
    model = tiny(dtype="bfloat16")
    baseline, decoder = method("autoregressive", model), method("all-small", model)
    verdicts = []
    for prompt in prompts:
        reference = baseline.generate(prompt, GREEDY).token_ids
        tokens = decoder.generate(prompt, GREEDY).token_ids
        verdicts.append(certify(decoder.models.target, GREEDY, prompt, reference, tokens))

    assert "different" not in verdicts
    assert "identical" in verdicts
    assert {"tie", "numeric"} & {*verdicts}


def test_the_certificate_of_a_method_in_full_precision_is_identical(llama, method, prompts, small):
    baseline, decoder = method("autoregressive", llama), method(small[0], llama, **small[1])
    for prompt in prompts[:3]:
        reference = baseline.generate(prompt, GREEDY).token_ids
        tokens = decoder.generate(prompt, GREEDY).token_ids
        assert certify(decoder.models.target, GREEDY, prompt, reference, tokens) == "identical"
        wrong = [*tokens[:-1], (tokens[-1] + 1) % 64]
        assert certify(decoder.models.target, GREEDY, prompt, reference, wrong) == "different"


def test_inputs_of_the_two_attention_back_ends_give_the_same_logits(tiny, fresh, close):
    torch.testing.assert_close(tiny().state_dict(), tiny(attention="eager").state_dict())
    close(fresh(tiny(), [1, 2, 3]), fresh(tiny(attention="eager"), [1, 2, 3]))
