"""Answers end where `generate` ends them, wherever in an accepted block that is."""

import itertools
import random

import pytest

from methods.core.sampling import DecodingParams
from methods.core.stopping import Stopper

pytestmark = pytest.mark.torch

COUNT = 40


@pytest.fixture(scope="session")
def block(llama, method, hf_tokens):
    """A prompt that holds part of its own answer, that answer, and the bounds in it of a round of four new tokens."""
    rng = random.Random(371)  # found by trying: a random model seldom copies
    start = [rng.randrange(64) for _ in range(rng.randint(3, 20))]
    prompt = [*start, *hf_tokens(llama, start, 25), *start]
    generation = method("all-small", llama).generate(prompt, DecodingParams(max_new_tokens=COUNT))
    tokens, (begin, end) = generation.token_ids, (5, 9)
    ends = list(itertools.accumulate(record.accepted + 1 for record in generation.rounds))
    assert (begin, end) in itertools.pairwise(ends)
    assert len({*tokens[begin:end]} - {*tokens[:begin]}) == end - begin
    return prompt, tokens, begin, end


def check_ends(decoder, block, hf_tokens):
    prompt, tokens, start, end = block
    for place in range(start, end):
        eos = frozenset({tokens[place]})
        generation = decoder.generate(prompt, DecodingParams(max_new_tokens=COUNT, eos_ids=eos))
        expected = tokens[: tokens.index(tokens[place]) + 1]
        assert generation.token_ids == expected == hf_tokens(decoder.models.target.model, prompt, COUNT, tuple(eos))
        assert generation.finish == "eos"
        if generation.rounds is not None:
            beyond = sum(record.accepted + 1 for record in generation.rounds) - len(expected)
            assert beyond in (0, 1)


def test_an_end_token_inside_an_accepted_block_ends_the_answer(llama, method, block, hf_tokens, ours):
    check_ends(method(ours[0], llama, **ours[1]), block, hf_tokens)


@pytest.mark.parametrize("name", ["hf-generate", "prompt-lookup", "assisted"])
def test_an_end_token_ends_a_peers_answer(llama, echo, method, block, hf_tokens, name):
    check_ends(method(name, llama, middle=echo(llama)), block, hf_tokens)


def test_the_end_check_fails_on_a_stopper_that_looks_at_blocks_ends(llama, method, block, hf_tokens, monkeypatch):
    cut = Stopper.cut

    def at_the_end(self, committed, new):
        kept, finish = cut(self, [*committed, *new[:-1]], new[-1:])
        return [*new[:-1], *kept], finish

    monkeypatch.setattr(Stopper, "cut", at_the_end)
    with pytest.raises(AssertionError):
        check_ends(method("all-small", llama), block, hf_tokens)


def test_the_first_of_several_end_tokens_ends_the_answer(llama, method, block, hf_tokens, ours):
    prompt, tokens, start, end = block
    eos = (tokens[start + 1], tokens[end - 1])

    generation = method(ours[0], llama, **ours[1]).generate(
        prompt, DecodingParams(max_new_tokens=COUNT, eos_ids=frozenset(eos))
    )

    assert generation.token_ids == tokens[: start + 2] == hf_tokens(llama, prompt, COUNT, eos)


@pytest.mark.parametrize("name", ["autoregressive", "all-small", "hf-generate", "prompt-lookup"])
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_a_stop_string_ends_the_answer_inside_a_block_or_across_two(llama, method, block, letters, name, shift):
    prompt, tokens, start, _ = block
    last = start + 1 + shift  # -1: its two tokens stand in two blocks
    stop = letters.decode(tokens[last - 1 : last + 1])
    assert letters.decode(tokens).index(stop) == last - 1
    params = DecodingParams(max_new_tokens=COUNT, stop=("never", stop))

    generation = method(name, llama, letters).generate(prompt, params)

    assert generation.token_ids == tokens[: last + 1]
    assert generation.finish == "stop"


@pytest.mark.parametrize("name", ["autoregressive", "all-small", "hf-generate", "prompt-lookup"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_two_or_three_tokens_are_exactly_that(llama, method, prompts, hf_tokens, name, count):
    for prompt in [[9], *prompts[1:8]]:
        generation = method(name, llama).generate(prompt, DecodingParams(max_new_tokens=count))
        assert generation.token_ids == hf_tokens(llama, prompt, count)
        assert (len(generation.token_ids), generation.finish) == (count, "length")


def test_a_models_own_end_token_counts_only_where_it_is_asked_for(tiny, method, hf_tokens, block):
    """`generate` falls back on the model's generation config; a method is told its end tokens."""
    prompt, tokens, start, _ = block
    model = tiny(eos_token_id=tokens[start])
    for name in ("autoregressive", "all-small", "hf-generate"):
        generation = method(name, model).generate(prompt, DecodingParams(max_new_tokens=COUNT))
        assert generation.token_ids == tokens
