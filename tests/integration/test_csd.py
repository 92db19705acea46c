"""The cascade as a method: what its rounds say, where its drafts end, and that it drafts the same again."""

import dataclasses
import random

import pytest

from methods.core.sampling import DecodingParams
from methods.core.tree import DraftTree
from methods.rivals.csd.max_gram import MaxGram
from methods.rivals.csd.method import CascadeDrafting
from methods.rivals.csd.verifier import CascadeVerifier

pytestmark = pytest.mark.torch

GREEDY = DecodingParams(max_new_tokens=16)
DECODINGS = {
    "greedy": GREEDY,
    "sampled": DecodingParams(max_new_tokens=16, temperature=1.0, draw_key=(3,)),
    "ended by a token": DecodingParams(max_new_tokens=40, eos_ids=frozenset(range(0, 16, 5))),
}
REPEATING = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3] * 3
PROMPTS = [[9], [5, 4, 5], REPEATING]
OPTIONS = [{}, {"k": [[2, 0], [0, 1]], "leniency": 4}, {"k": [[7, 9], [0, 12]]}]


@pytest.fixture(scope="module")
def target(tiny):
    return tiny(vocab_size=16, num_hidden_layers=2)


@pytest.fixture
def build(target, method, echo):
    """Build the cascade of a target and a middle that often guesses right, or that always or never does."""

    def build(middle="good", **options):
        drafter = {"good": echo(target), "perfect": target, "poor": echo(target, noise=9.0)}[middle]
        return method("csd", target, middle=drafter, options=options)

    return build


def check_record(decoder, prompt, params, generation, made):
    """Rounds against the forwards that were made, the bounds, and the committed tokens."""
    roles = {decoder.models.target: "target", decoder.models.middle: "middle"}
    recorded = [forward for record in generation.rounds for forward in record.forwards]
    neural = [(forward.role, forward.tokens, forward.context) for forward in recorded if forward.role != "small"]
    assert neural == [(roles[model], len(tokens), rows) for model, tokens, _, _, rows, _ in made]
    done = 0
    for record in generation.rounds:
        *drafting, verify = record.forwards
        assert (verify.role, verify.step, verify.tokens) == ("target", None, record.drafted + 1)
        assert verify.context == len(prompt) + done - 1
        assert record.accepted <= record.drafted <= min(decoder.max_draft_tokens, params.max_new_tokens - done - 1)
        assert [forward.step for forward in drafting] == list(range(1, len(drafting) + 1))
        assert record.schedule is None
        assert record.calls == sum(forward.role == "middle" for forward in drafting)
        copies = [forward for forward in drafting if forward.role == "small"]
        assert all(forward.tokens == 1 and forward.context >= len(prompt) + done for forward in copies)
        first = [forward for forward in drafting if forward.role == "middle"][:1]
        assert all(forward.context + forward.tokens >= len(prompt) + done for forward in first)  # it has seen the root
        done += record.accepted + 1
    assert done - len(generation.token_ids) in (0, 1)


@pytest.mark.parametrize("params", DECODINGS.values(), ids=DECODINGS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rounds_say_what_the_models_did(build, calls, options, params):
    for middle in ("good", "poor"):
        decoder = build(middle, **options)
        for prompt in PROMPTS:
            calls.clear()
            check_record(decoder, prompt, params, decoder.generate(prompt, params), calls)


def test_prefill_is_one_forward_a_model_that_has_something_to_see(build):
    for prompt in PROMPTS:
        prefill = build().generate(prompt, GREEDY).prefill
        expected = [(role, len(prompt) - 1, 0) for role in ("target", "middle") if len(prompt) > 1]
        assert [(forward.role, forward.tokens, forward.context) for forward in prefill] == expected


def test_time_goes_to_whoever_worked_and_nobody_schedules(build):
    spans = build().generate(REPEATING, GREEDY).spans

    assert min(spans.small_s, spans.middle_s, spans.verify_s) > 0
    assert spans.scheduler_s == 0


def test_a_better_middle_needs_fewer_rounds_and_the_target_never_more_than_one_for_each_token(build):
    params = DecodingParams(max_new_tokens=36)
    rounds = [len(build(middle).generate(REPEATING, params).rounds) for middle in ("perfect", "good", "poor")]

    assert rounds == sorted(rounds)
    assert rounds[0] <= 36 / 6  # five tokens that were reviewed, and the target's own
    assert rounds[0] < rounds[2] <= 36


def test_bounds_and_leniency_change_rounds(build):
    options = [*OPTIONS, {"leniency": 8}, {"k": [[0, 10], [0, 10]]}, {"k": [[5, 0], [0, 10]]}]
    rounds = [[build("good", **one).generate(prompt, GREEDY).rounds for prompt in PROMPTS] for one in options]

    assert all(one != other for place, one in enumerate(rounds) for other in rounds[:place])


def check_ends(decoder, hf_tokens, prompt, count):
    model = decoder.models.target.model
    whole = hf_tokens(model, prompt, count)
    for token in {*whole}:
        expected = whole[: whole.index(token) + 1]
        generation = decoder.generate(prompt, DecodingParams(max_new_tokens=count, eos_ids=frozenset({token})))
        assert generation.token_ids == expected == hf_tokens(model, prompt, count, (token,))
        assert generation.finish == "eos"
    return max(record.accepted for record in decoder.generate(prompt, DecodingParams(count)).rounds)


@pytest.mark.parametrize(("middle", "least"), [("perfect", 5), ("good", 2)])
def test_an_end_token_anywhere_in_an_accepted_chain_ends_the_answer(build, hf_tokens, middle, least):
    accepted = [check_ends(build(middle), hf_tokens, prompt, 24) for prompt in ([5, 4], REPEATING)]

    assert max(accepted) >= least


def test_a_stop_string_anywhere_in_an_accepted_chain_ends_the_answer(target, method, letters, hf_tokens):
    decoder = method("csd", target, letters, middle=target)
    whole = hf_tokens(target, REPEATING, 40)
    for last in range(1, 12):
        stop = letters.decode(whole[last - 1 : last + 1])
        end = letters.decode(whole).index(stop) + 2
        generation = decoder.generate(REPEATING, DecodingParams(max_new_tokens=40, stop=(stop,)))
        assert (generation.token_ids, generation.finish) == (whole[:end], "stop")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_two_or_three_tokens_are_exactly_that(build, calls, hf_tokens, count):
    for middle in ("perfect", "poor"):
        decoder = build(middle)
        for prompt in [[9], [5, 4], [5, 4, 5], REPEATING]:
            calls.clear()
            generation = decoder.generate(prompt, DecodingParams(max_new_tokens=count))
            assert generation.token_ids == hf_tokens(decoder.models.target.model, prompt, count)
            assert (len(generation.token_ids), generation.finish) == (count, "length")
            assert count > 1 or [model for model, *_ in calls] == [decoder.models.target]


@pytest.mark.parametrize("length", [1, 40, 56, 62, 63])
@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
def test_decoding_goes_on_up_to_the_last_position_and_no_draft_leaves_the_context(
    tiny, echo, method, hf_tokens, calls, length, options
):
    target = tiny(vocab_size=16, num_hidden_layers=2, max_position_embeddings=64)
    prompt = ([4, 8, 15, 1, 2, 3] * 20)[:length]
    for middle in (target, echo(target)):
        decoder = method("csd", target, middle=middle, options=options)
        calls.clear()
        generation = decoder.generate(prompt, DecodingParams(max_new_tokens=64 - length))
        assert generation.token_ids == hf_tokens(target, prompt, 64 - length)
        assert max(last for *_, last in calls) < 63  # the last token is never put in


@pytest.fixture
def exact_buffers(monkeypatch):
    """KV buffers have the rows that were asked for and not one more."""
    monkeypatch.setattr("methods.core.engines.hf._GROW_BY", 1)


@pytest.mark.usefixtures("exact_buffers")
@pytest.mark.parametrize("options", [*OPTIONS, {"k": [[64, 64], [0, 64]]}, {"k": [[9, 0], [0, 0]]}], ids=str)
def test_buffers_hold_whatever_is_proposed(build, hf_tokens, options):
    for middle in ("perfect", "good", "poor"):
        decoder = build(middle, **options)
        for prompt in PROMPTS:
            assert decoder.generate(prompt, GREEDY).token_ids == hf_tokens(decoder.models.target.model, prompt, 16)


@pytest.mark.usefixtures("exact_buffers")
def test_the_buffer_check_fails_where_rejected_proposals_are_not_counted(build, hf_tokens, monkeypatch):
    monkeypatch.setattr("methods.rivals.csd.method.most_proposed", lambda k: 0)
    decoder = build("poor", k=[[64, 0], [0, 10]])

    with pytest.raises(RuntimeError):
        decoder.generate(REPEATING, DecodingParams(max_new_tokens=48))


def counted(generation):
    """All of a generation but its times."""
    return dataclasses.replace(generation, prefill_s=0, decode_s=0, spans=None)


def check_order(make, first, second):
    one, other = make(), make()
    forwards = [counted(one.generate(prompt, GREEDY)) for prompt in (first, second)]
    backwards = [counted(other.generate(prompt, GREEDY)) for prompt in (second, first)]
    assert forwards == backwards[::-1]


def test_the_order_of_prompts_changes_nothing(build, monkeypatch):
    check_order(build, REPEATING, [9])
    check_order(build, REPEATING, [9, 3, 1, 5, 3, 1])

    begin = MaxGram.begin

    def keep(self, context, capacity=0):
        if not context:
            return begin(self, [])
        self.advance(context)
        return []

    monkeypatch.setattr(MaxGram, "begin", keep)
    with pytest.raises(AssertionError):  # the mutant: text of the last prompt can be copied
        check_order(build, REPEATING, [9, 3, 1, 5, 3, 1])


@pytest.mark.parametrize("worker", [MaxGram, CascadeVerifier])
def test_a_generation_that_was_broken_off_leaves_no_trace(build, monkeypatch, worker):
    decoder = build()
    expected = counted(decoder.generate(REPEATING, GREEDY))
    name = "propose" if worker is MaxGram else "review"
    original, done = getattr(worker, name), []

    def breaks_off(self, *arguments):
        done.append(1)
        return original(self, *arguments) if len(done) < 4 else 1 / 0

    with monkeypatch.context() as patch:
        patch.setattr(worker, name, breaks_off)
        with pytest.raises(ZeroDivisionError):
            decoder.generate([5, 4, 5, 4], GREEDY)

    assert counted(decoder.generate(REPEATING, GREEDY)) == expected


def check_redrafted(decoder, params, calls, redraft=CascadeDrafting.redraft):
    for prompt in PROMPTS:
        calls.clear()
        generation = decoder.generate(prompt, params)
        sent = [call[1:4] for call in calls if call[0] is decoder.models.target]
        prefill, rounds = redraft(decoder, prompt, generation.token_ids, params.max_new_tokens)
        again = [*rounds]
        assert prefill == generation.prefill
        assert [(tree.tokens, tree.depths, tree.visibility().tolist()) for tree, _, _ in again] == sent
        assert [one.record for one in again] == generation.rounds


@pytest.mark.parametrize("params", DECODINGS.values(), ids=DECODINGS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_drafting_again_gives_the_chains_that_were_sent(build, calls, options, params):
    check_redrafted(build(**options), params, calls)


def with_the_chains_own_ids(*arguments):
    """The mutant: the middle is told the accepted nodes by their ids in the chain, where no side branches are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DraftTree, "source", lambda self, node: node)
        prefill, rounds = CascadeDrafting.redraft(*arguments)
        return prefill, [*rounds]


def test_the_redraft_check_fails_on_a_mutant(build, calls):
    with pytest.raises((AssertionError, IndexError)):
        check_redrafted(build("good"), DecodingParams(max_new_tokens=40), calls, with_the_chains_own_ids)


def test_what_was_sent_is_one_path_of_what_was_proposed(build, target):
    decoder, rng = build("poor"), random.Random(0)
    prompt = rng.choices(range(4), k=30)
    beside = 0

    _, rounds = decoder.redraft(prompt, decoder.generate(prompt, GREEDY).token_ids, 16)

    for chain, _, _ in rounds:
        whole, nodes = decoder.drafted, [chain.source(node) for node in range(len(chain))]
        assert chain.depths == [*range(len(chain))]
        assert nodes == whole.path(nodes[-1])
        assert [whole.tokens[node] for node in nodes] == chain.tokens
        beside += len(whole) - len(chain)
    assert beside > 0


def test_only_common_tokens_are_the_middles_own(tiny, method, llama, monkeypatch):
    def most_drafted():
        decoder = method("csd", llama, middle=tiny(vocab_size=80, seed=7))
        _, rounds = decoder.redraft([3, 1, 4], [5, 9, 2, 6, 5, 3, 5, 8], 9)
        return max(max(decoder.drafted.tokens) for _ in rounds)

    assert most_drafted() < 64

    monkeypatch.setattr("methods.rivals.csd.method.common_vocabulary", lambda target, drafter: drafter.vocab_size)
    assert most_drafted() >= 64  # the mutant: all that the drafter has
