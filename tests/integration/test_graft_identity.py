"""Whatever drafts, over every family of models: the tokens are those of decoding without a draft."""

from copy import deepcopy

import pytest

from methods.catalog import catalogue
from methods.core.sampling import DecodingParams, Sampler
from methods.drafters.middle import MiddleDrafter

pytestmark = pytest.mark.torch

COUNT = 10
GREEDY = DecodingParams(max_new_tokens=COUNT)
OURS = [
    name for name, entry in catalogue().items() if entry.family in ("autoregressive", "calibrated", "csd", "treegraft")
]
THREE = ("treegraft-fixed", "treegraft-calibrated", "csd")
BOTH = ("sliding_attention", "full_attention")
GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 5, "layer_types": BOTH}
FAMILIES = {
    "Llama": {},
    "Qwen2": {"sliding_window": 5, "use_sliding_window": True, "layer_types": BOTH},
    "Qwen3": {"head_dim": 8},
    "Mistral": {"sliding_window": 4},
    "Gemma2": {**GEMMA, "attention": "eager"},
    "Gemma3": GEMMA,
}
PROMPTS = [[9], [5, 40], [8, 8, 8], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3] * 3]


@pytest.fixture(scope="module")
def pair(tiny, echo):
    """A target of a family and, of the same family, a drafter that often guesses right and one that never does."""

    def build(kind, **changes):
        options = {**FAMILIES[kind], "num_hidden_layers": 2, **changes}
        target = tiny(kind, **options)
        return target, echo(target), tiny(kind, seed=8, **options)

    return build


def of_each(kinds, names):
    """Every method on the first kind, and on the others three that between them take every kind of step."""
    first, *others = kinds
    return [(first, name) for name in names] + [(kind, name) for kind in others for name in THREE]


@pytest.mark.parametrize(("kind", "name"), of_each(FAMILIES, OURS))
def test_greedy_answers_equal_generate(pair, method, hf_tokens, kind, name):
    target, good, poor = pair(kind)
    accepted = []
    for drafter, prompts in ((good, PROMPTS), (poor, PROMPTS[-1:])):
        decoder = method(name, target, middle=drafter, small=drafter, budget=12, width=4)
        accepted.append(0)
        for prompt in prompts:
            generation = decoder.generate(prompt, GREEDY)
            assert generation.token_ids == hf_tokens(target, prompt, COUNT)
            accepted[-1] += sum(record.accepted for record in generation.rounds)
    if name == "csd" or catalogue()[name].settings.get("scheduler") in ("always", "fixed"):
        assert accepted[0] > max(accepted[1], COUNT // 2 if name == "csd" else COUNT)  # a chain guesses once a place


def draws_below_the_wrong_node(tree, logits, sampler, context, position):
    """The mutant: a node that is accepted is followed by what the target says behind the node before it."""
    from methods.core.verify import verify_tree

    nodes, drawn = verify_tree(tree, logits, sampler, context, position)
    return nodes, [*drawn[:-1], int(logits[max(0, nodes[-1] - 1)].argmax())]


def test_the_identity_check_fails_on_a_mutant(pair, method, hf_tokens, monkeypatch):
    from methods.core import verifiers

    monkeypatch.setattr(verifiers, "verify_tree", draws_below_the_wrong_node)
    with pytest.raises(AssertionError):
        test_greedy_answers_equal_generate(pair, method, hf_tokens, "Llama", "treegraft-fixed")


@pytest.mark.parametrize(("drafter_vocabulary", "name"), of_each([50, 80], OURS[1:]))
def test_vocabularies_of_other_sizes_change_nothing(tiny, llama, method, hf_tokens, name, drafter_vocabulary):
    drafter = tiny(vocab_size=drafter_vocabulary, seed=8)
    decoder = method(name, llama, middle=drafter, small=drafter, width=4)
    for prompt in [[63], [60, 2, 61, 2] * 4]:
        assert decoder.generate(prompt, GREEDY).token_ids == hf_tokens(llama, prompt, COUNT)


@pytest.fixture(scope="module")
def sampled(tiny, echo, fresh):
    """A target, a drafter, prompts with their parameters, and what is drawn token by token by forwards over all."""
    target = tiny(vocab_size=12, seed=2)
    asked = []
    for index, prompt in enumerate([[9], [1, 2], [3, 1, 4, 1, 5] * 4]):
        params = DecodingParams(16, temperature=0.7, top_p=0.9, repetition_penalty=1.2, draw_key=(1, "mini", index))
        sampler, tokens = Sampler(params), list(prompt)
        for position in range(16):
            tokens.append(sampler.draw(fresh(target, tokens), tokens, position))
        asked.append((prompt, params, tokens[len(prompt) :]))
    return target, echo(target), asked


def check_sampled(method, sampled, name):
    target, drafter, asked = sampled
    decoder = method(name, target, middle=drafter, small=drafter, width=4)
    accepted = 0
    for prompt, params, tokens in asked:
        generation = decoder.generate(prompt, params)
        assert generation.token_ids == tokens
        accepted += sum(record.accepted for record in generation.rounds)
    return accepted


@pytest.mark.parametrize("name", OURS)
def test_sampled_answers_equal_those_drawn_token_by_token(method, sampled, name):
    accepted = check_sampled(method, sampled, name)

    assert (accepted > 0) == (name != "autoregressive")


@pytest.mark.parametrize("kind", [kind for kind in FAMILIES if kind != "Llama"])
def test_sampled_answers_of_every_family_equal_the_baselines(pair, method, kind):
    target, good, _ = pair(kind, vocab_size=12, initializer_range=0.2)  # at 0.5 some are too sure of themselves
    baseline, *decoders = (
        method(name, target, middle=good, width=4)
        for name in ("autoregressive", "treegraft-fixed", "treegraft-release", "csd")
    )
    answers = []
    for seed in range(3):
        params = DecodingParams(12, temperature=0.7, top_p=0.9, repetition_penalty=1.2, draw_key=(seed,))
        prompt = [3, 1, 4, 1, 5] * (1 + seed)
        answers.append(baseline.generate(prompt, params).token_ids)
        assert [decoder.generate(prompt, params).token_ids for decoder in decoders] == [answers[-1]] * 3
        answers.append(baseline.generate(prompt, DecodingParams(12, repetition_penalty=1.2)).token_ids)
    assert answers[::2] != answers[1::2]  # the draws are no mere argmax


def test_the_sampled_check_fails_on_draws_that_depend_on_the_tree(method, sampled, monkeypatch):
    """The mutant: noise by node instead of by output position."""
    noise = Sampler.noise
    monkeypatch.setattr(Sampler, "noise", lambda self, size, position: noise(self, size, position % 3))

    with pytest.raises(AssertionError):
        check_sampled(method, sampled, "treegraft-fixed")


@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
def test_an_assisted_peer_equals_generate(pair, method, hf_tokens, kind):
    target, good, _ = pair(kind)
    peer = method("assisted", target, middle=good)
    for prompt in PROMPTS:
        assert peer.generate(prompt, GREEDY).token_ids == hf_tokens(target, prompt, COUNT)


def test_an_assistant_drafts_as_far_as_it_is_told(pair, method):
    target, *_ = pair("Llama")
    twin = deepcopy(target)
    before = twin.generation_config
    forwards = {}
    for count in (1, 4):
        told = {"num_assistant_tokens": count, "assistant_confidence_threshold": 0.0}
        forwards[count] = method("assisted", target, middle=twin, options=told).generate(PROMPTS[-1], GREEDY)
    assert forwards[1].token_ids == forwards[4].token_ids
    assert forwards[4].decode_forwards < forwards[1].decode_forwards < COUNT - 1
    assert twin.generation_config is before


@pytest.mark.parametrize("name", ["treegraft-fixed", "all-mid", "csd", "assisted"])
def test_without_a_middle_drafter_a_method_says_what_it_lacks(llama, method, name):
    from foundation.errors import UserError

    with pytest.raises(UserError, match="no middle drafter"):
        method(name, llama)
    with pytest.raises(UserError, match="small"):
        method("neural-small", llama, middle=llama)


def test_a_middle_drafter_is_neither_asked_nor_needed_where_it_is_never_called(llama, method, monkeypatch):
    monkeypatch.setattr(MiddleDrafter, "begin", lambda *_: 1 / 0)
    prompt = PROMPTS[-1]

    with_one, without = method("all-small", llama, middle=llama), method("all-small", llama)

    assert with_one.generate(prompt, GREEDY).rounds == without.generate(prompt, GREEDY).rounds
