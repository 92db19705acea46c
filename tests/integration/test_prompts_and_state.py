"""Prompts at the limits of the context, and nothing carried over from one prompt to the next."""

import dataclasses

import pytest

from methods.core.sampling import DecodingParams
from methods.drafters.ngram import NgramDrafter
from methods.method import PromptError

pytestmark = pytest.mark.torch

NAMES = ["autoregressive", "all-small", "hf-generate", "prompt-lookup"]
LIMIT = 128


@pytest.fixture(scope="session")
def cramped(tiny):
    return tiny(max_position_embeddings=LIMIT)


@pytest.fixture
def evaluated(monkeypatch):
    """The deepest position of every tree that a target evaluates."""
    from methods.core.model import TreeModel

    positions = []
    evaluate = TreeModel.evaluate

    def record(self, tokens, depths, visible):
        positions.append(self.length + max(depths))
        return evaluate(self, tokens, depths, visible)

    monkeypatch.setattr(TreeModel, "evaluate", record)
    return positions


@pytest.mark.parametrize("length", [100, 120, 126, 127])
def test_decoding_goes_on_up_to_the_last_position_and_no_draft_leaves_the_context(
    cramped, method, hf_tokens, ours, evaluated, length
):
    prompt = ([4, 8, 15, 16, 23, 42] * 30)[:length]
    count = LIMIT - length

    generation = method(ours[0], cramped, **ours[1]).generate(prompt, DecodingParams(max_new_tokens=count))

    assert generation.token_ids == hf_tokens(cramped, prompt, count)
    assert len(generation.token_ids) == count
    assert max(evaluated) < LIMIT - 1  # the last token is never put in


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("length", "count"), [(126, 3), (128, 1), (400, 20)])
def test_a_prompt_that_does_not_fit_with_its_answer_is_refused(cramped, method, name, length, count):
    with pytest.raises(PromptError, match=rf"prompt of {length} tokens \+ {count} new ones exceeds the context of 128"):
        method(name, cramped).generate([3] * length, DecodingParams(max_new_tokens=count))


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_prompt_is_refused(llama, method, name):
    with pytest.raises(PromptError, match="empty prompt"):
        method(name, llama).generate([], DecodingParams(max_new_tokens=2))


def counted(generation):
    """All of a generation but its times."""
    times = {"prefill_s": 0, "decode_s": 0, "spans": None}
    return dataclasses.replace(generation, **times)


def check_order(make, first, second):
    params = DecodingParams(max_new_tokens=12)
    one, other = make(), make()
    forwards = [counted(one.generate(prompt, params)) for prompt in (first, second)]
    backwards = [counted(other.generate(prompt, params)) for prompt in (second, first)]
    assert forwards == backwards[::-1]


@pytest.mark.parametrize("name", [*NAMES, "assisted", "treegraft", "latency-normalized", "neural-small"])
def test_the_order_of_prompts_changes_nothing(llama, echo, method, prompts, name):
    for first, second in ((prompts[0], prompts[1]), (prompts[3], [9]), ([5, 6], prompts[5])):
        check_order(lambda: method(name, llama, middle=echo(llama), small=echo(llama)), first, second)


def test_every_small_method_forgets_its_prompt(llama, method, prompts, small):
    check_order(lambda: method(small[0], llama, **small[1]), prompts[2], prompts[1])


def test_the_order_check_fails_on_an_index_that_is_kept(llama, method, prompts, monkeypatch):
    monkeypatch.setattr(NgramDrafter, "begin", lambda self, context, capacity=0: self.advance(context) or [])

    with pytest.raises(AssertionError):
        check_order(lambda: method("all-small", llama), prompts[1] + prompts[3], prompts[1])


def test_a_generation_that_was_broken_off_leaves_no_trace(llama, method, prompts, monkeypatch):
    decoder, params = method("all-small", llama), DecodingParams(max_new_tokens=12)
    expected = counted(decoder.generate(prompts[1], params))
    with monkeypatch.context() as patch:
        patch.setattr(NgramDrafter, "extend", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            decoder.generate(prompts[3], params)

    assert counted(decoder.generate(prompts[1], params)) == expected
