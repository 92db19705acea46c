"""The end rule inside Hugging Face's `generate` is ours: a step of it costs the same, and no peer pays for it."""

import pytest

from methods.core.sampling import DecodingParams
from methods.core.stopping import Stopper
from methods.external import huggingface

pytestmark = pytest.mark.torch

PEERS = ("hf-generate", "prompt-lookup")
COUNT = 60
NEVER = "never, in no answer"
PROMPT = [3, 9, 4, 9, 4, 9, 4]


class CountingLetters:
    """A tokenizer that notes how many tokens it is given each time."""

    def __init__(self):
        self.given = []

    def decode(self, token_ids):
        self.given.append(len(token_ids))
        return "".join(chr(0x4E00 + token) for token in token_ids)


class ReadsTheWholeAnswer(huggingface._EndRule):
    """The mutant: each step reads the answer from its first token."""

    def __call__(self, input_ids, scores, **kwargs):
        self.token_ids = []
        return super().__call__(input_ids, scores, **kwargs)


class DecodesTheWholeAnswer(Stopper):
    """The mutant: stop strings are looked for in all that was written."""

    def __init__(self, params, decoder):
        super().__init__(params, decoder)
        self._tail = params.max_new_tokens


def check_that_a_steps_cost_is_flat(peer, llama, method, monkeypatch):
    letters, read = CountingLetters(), []
    cut = huggingface.Stopper.cut

    def counted(self, committed, new):
        read.append(len(new))
        return cut(self, committed, new)

    with monkeypatch.context() as patch:
        patch.setattr(huggingface.Stopper, "cut", counted)
        generation = method(peer, llama, letters).generate(PROMPT, DecodingParams(max_new_tokens=COUNT, stop=(NEVER,)))
    assert len(generation.token_ids) == COUNT
    assert sum(read) == len(letters.given) == COUNT
    assert max(letters.given) <= len(NEVER) + 4 < COUNT / 2


@pytest.mark.parametrize("peer", PEERS)
def test_each_step_reads_its_new_tokens_and_decodes_a_bounded_tail(llama, method, monkeypatch, peer):
    check_that_a_steps_cost_is_flat(peer, llama, method, monkeypatch)


@pytest.mark.parametrize(("part", "mutant"), [("_EndRule", ReadsTheWholeAnswer), ("Stopper", DecodesTheWholeAnswer)])
def test_the_cost_check_fails_on_a_rule_whose_steps_grow_with_the_answer(llama, method, monkeypatch, part, mutant):
    monkeypatch.setattr(huggingface, part, mutant)
    with pytest.raises(AssertionError):
        check_that_a_steps_cost_is_flat("hf-generate", llama, method, monkeypatch)


class SlowLetters:
    """A tokenizer on whose clock nothing but decoding takes time, a second each."""

    now = START = 100.0

    def clock(self):
        return self.now

    def decode(self, token_ids):
        self.now += 1.0
        return "".join(chr(0x4E00 + token) for token in token_ids)


def check_that_peers_do_not_pay(peer, llama, method, monkeypatch):
    letters = SlowLetters()
    monkeypatch.setattr(huggingface, "perf_counter", letters.clock)
    generation = method(peer, llama, letters).generate(PROMPT, DecodingParams(max_new_tokens=COUNT, stop=(NEVER,)))
    assert letters.now == letters.START + COUNT
    assert (generation.prefill_s, generation.decode_s) == (0.0, 0.0)


@pytest.mark.parametrize("peer", PEERS)
def test_the_time_of_our_rule_is_not_in_a_peers_decode_time(llama, method, monkeypatch, peer):
    check_that_peers_do_not_pay(peer, llama, method, monkeypatch)


class HidesItsTime(huggingface._EndRule):
    """The mutant: nobody is told what the rule took."""

    def __setattr__(self, name, value):
        super().__setattr__(name, 0.0 if name == "seconds" else value)


def test_the_time_check_fails_where_the_rules_time_is_not_taken_off(llama, method, monkeypatch):
    monkeypatch.setattr(huggingface, "_EndRule", HidesItsTime)
    with pytest.raises(AssertionError):
        check_that_peers_do_not_pay("hf-generate", llama, method, monkeypatch)
