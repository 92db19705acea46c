"""What a generation says about its rounds adds up, and is enough to draft the same trees again."""

import dataclasses
from functools import partial

import pytest

from methods import tree_method
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams
from methods.core.stopwatch import Stopwatch
from methods.treegraft.method import TreeGraft

pytestmark = pytest.mark.torch

DECODINGS = {
    "greedy": DecodingParams(max_new_tokens=24),
    "sampled": DecodingParams(max_new_tokens=24, temperature=1.0, draw_key=(3,)),
    "stopped early": DecodingParams(max_new_tokens=60, eos_ids=frozenset(range(0, 64, 9))),
}
SETTINGS = {"few nodes": {"budget": 3, "steps": 2, "width": 2}, "a wide tree": {"budget": 40, "steps": 3}}


@pytest.fixture
def sent(monkeypatch):
    """Every tree that goes to a target, as its arrays."""
    trees = []
    evaluate = TreeModel.evaluate

    def record(self, tokens, depths, visible):
        trees.append((list(tokens), list(depths), visible.tolist()))
        return evaluate(self, tokens, depths, visible)

    monkeypatch.setattr(TreeModel, "evaluate", record)
    return trees


def check_rounds(generation, prompt, settings):
    committed = len(generation.token_ids)
    assert [(forward.role, forward.step) for forward in generation.prefill] == [("target", None)] * (len(prompt) > 1)
    assert sum(forward.tokens for forward in generation.prefill) == len(prompt) - 1
    done = 0
    for record in generation.rounds:
        assert done < committed
        assert 0 <= record.accepted <= record.drafted <= settings.budget
        *small, verify = record.forwards
        assert (verify.role, verify.step, verify.tokens) == ("target", None, record.drafted + 1)
        assert verify.context == len(prompt) + done - 1
        assert [forward.step for forward in small] == list(range(1, len(small) + 1))
        assert all((forward.role, forward.context) == ("small", len(prompt) + done) for forward in small)
        assert len(small) <= settings.steps
        assert record.schedule in ([0] * len(small), None)
        done += record.accepted + 1
    assert done - committed in (0, 1)  # the last bonus may have been cut
    assert generation.decode_forwards is None


def check_rounds_of(decoder, prompts, params):
    for prompt in prompts:
        generation = decoder.generate(prompt, params)
        check_rounds(generation, prompt, decoder.settings)
        has_schedule = isinstance(decoder, TreeGraft)
        assert all((record.schedule is not None) == has_schedule for record in generation.rounds)


@pytest.mark.parametrize("params", DECODINGS.values(), ids=DECODINGS)
def test_rounds_add_up_to_the_committed_tokens(llama, method, prompts, ours, params):
    check_rounds_of(method(ours[0], llama, **ours[1]), [[9], *prompts[:3]], params)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_rounds_add_up_whatever_the_size_of_the_tree(llama, method, prompts, settings):
    check_rounds_of(method("all-small", llama, **settings), prompts[:3], DECODINGS["greedy"])


def test_the_round_check_fails_where_every_drafted_token_counts_as_accepted(llama, method, prompts):
    decoder = method("all-small", llama, steps=1, budget=3)
    generation = decoder.generate(prompts[0], DECODINGS["greedy"])
    blind = [dataclasses.replace(record, accepted=record.drafted) for record in generation.rounds]
    assert blind != generation.rounds

    with pytest.raises(AssertionError):
        check_rounds(dataclasses.replace(generation, rounds=blind), prompts[0], decoder.settings)


def test_the_parts_of_a_generations_time_add_up_to_the_whole(llama, method, prompts, ours):
    generation = method(ours[0], llama, **ours[1]).generate(prompts[1], DECODINGS["greedy"])
    spans = dataclasses.asdict(generation.spans)

    assert sum(spans.values()) == pytest.approx(generation.decode_s, rel=0.02)
    assert generation.e2e_s == generation.prefill_s + generation.decode_s
    assert spans["verify_s"] > 0
    assert (spans["small_s"] > 0) == (ours[0] == "all-small")
    assert spans["middle_s"] == spans["scheduler_s"] == 0


def test_a_generation_without_spans_is_the_same(llama, method, prompts, ours, monkeypatch):
    decoder = method(ours[0], llama, **ours[1])
    timed = decoder.generate(prompts[1], DECODINGS["greedy"])
    monkeypatch.setattr(tree_method, "Stopwatch", partial(Stopwatch, spans=False))
    untimed = decoder.generate(prompts[1], DECODINGS["greedy"])

    assert untimed.spans is None
    assert (untimed.token_ids, untimed.rounds) == (timed.token_ids, timed.rounds)


@pytest.mark.parametrize(("name", "plain"), [("hf-generate", True), ("prompt-lookup", False)])
def test_a_peers_forwards_are_counted_and_its_rounds_are_its_own(llama, method, prompts, name, plain):
    for prompt in [[9], *prompts[:4]]:
        generation = method(name, llama).generate(prompt, DECODINGS["greedy"])
        assert generation.rounds is None
        assert generation.spans is None
        (prefill,) = generation.prefill
        assert prefill.context == 0
        assert prefill.tokens == len(prompt) or (prefill.tokens > len(prompt) and not plain)  # with a first draft
        assert 0 < generation.decode_forwards <= len(generation.token_ids) - 1
        assert generation.decode_forwards == len(generation.token_ids) - 1 or not plain
        assert generation.prefill_s > 0
        assert generation.decode_s > 0


def check_redrafted(decoder, prompts, params, sent, most):
    for prompt in prompts:
        sent.clear()
        generation = decoder.generate(prompt, params)
        prefill, rounds = decoder.redraft(prompt, generation.token_ids, most(generation))
        again = [*rounds]
        assert prefill == generation.prefill
        assert [(tree.tokens, tree.depths, tree.visibility().tolist()) for tree, _, _ in again] == sent
        assert [one.record for one in again] == generation.rounds


@pytest.mark.parametrize("params", DECODINGS.values(), ids=DECODINGS)
def test_drafting_again_gives_the_trees_that_were_sent(llama, method, prompts, ours, params, sent):
    decoder = method(ours[0], llama, **ours[1])

    check_redrafted(decoder, prompts[:4], params, sent, lambda generation: params.max_new_tokens)


def test_the_redraft_check_fails_where_an_answers_own_length_is_its_limit(llama, method, prompts, sent):
    decoder, params = method("all-small", llama), DECODINGS["stopped early"]

    with pytest.raises(AssertionError):
        check_redrafted(decoder, prompts[:10], params, sent, lambda generation: len(generation.token_ids))
