"""A target writes many sequences at once: each is what it would write alone, with the hidden states of a forward."""

import copy
import random

import pytest
import torch

from harness.distil import batched_generation
from harness.distil.batched_generation import Writer
from harness.distil.sequence_templates import Part, Segment
from methods.core.engines.hf import KVCache

pytestmark = pytest.mark.torch

COUNT = 20
ENDS = frozenset(range(5, 64, 9))  # many, so that sequences leave the batch at different times
BOTH = ("sliding_attention", "full_attention", "sliding_attention")
GEMMA = {  # a head of its own, for with tied weights a random model repeats one token
    "sliding_window": 5,
    "layer_types": BOTH,
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "tie_word_embeddings": False,
}
FAMILIES = {
    "Llama": ("Llama", {}),
    "Qwen2, windows": ("Qwen2", {"sliding_window": 5, "use_sliding_window": True, "layer_types": BOTH}),
    "Mistral, window": ("Mistral", {"sliding_window": 4}),
    "Qwen3": ("Qwen3", {"head_dim": 8}),
    "Gemma3, windows": ("Gemma3", GEMMA),
}


@pytest.fixture
def writer():
    """Build a writer over a copy, since it changes how a model attends."""
    return lambda model, ends=ENDS, **options: Writer(copy.deepcopy(model), ends, **options)


@pytest.fixture(scope="module")
def ragged(prompts):
    return prompts[:16]


def questions(prompts):
    return [[Segment(Part.GIVEN, tuple(prompt)), Segment(Part.ANSWER, limit=COUNT)] for prompt in prompts]


def talks(prompts):
    """A question that the target writes on, its answer, and a second turn."""
    turn = [Segment(Part.SAMPLED, limit=6), Segment(Part.GIVEN, (1, 2)), Segment(Part.ANSWER, limit=COUNT)]
    return [[Segment(Part.GIVEN, tuple(prompt)), *turn, Segment(Part.GIVEN, (5, 3)), *turn] for prompt in prompts]


def check_answers(model, written, prompts, hf_tokens):
    lengths = set()
    for own, prompt in zip(written, prompts, strict=True):
        answer = hf_tokens(model, prompt, COUNT, tuple(sorted(ENDS)))
        assert own.tokens.tolist() == [*prompt, *answer]
        assert own.parts.tolist() == [int(Part.GIVEN)] * len(prompt) + [int(Part.ANSWER)] * len(answer)
        lengths.add(len(answer))
    assert len(lengths) > 4


@torch.no_grad()
def check_signals(model, written, close):
    """Hidden states are those of a forward over the text alone, and answers are its best tokens."""
    for own in written:
        tokens = own.tokens.long()
        truth = model(tokens[None, :-1], use_cache=False, output_hidden_states=True)
        close(own.hidden, truth.hidden_states[-1][0])
        answered = own.parts[1:] == int(Part.ANSWER)
        assert torch.equal(truth.logits[0].argmax(-1)[answered], tokens[1:][answered])


@pytest.mark.parametrize(("kind", "changes"), FAMILIES.values(), ids=FAMILIES)
def test_answers_of_a_ragged_batch_equal_generate(tiny, writer, ragged, hf_tokens, close, kind, changes):
    model = tiny(kind, **changes)

    written = writer(model).write(questions(ragged), seed=0)

    check_answers(model, written, ragged, hf_tokens)
    check_signals(model, written, close)


@pytest.mark.parametrize(("kind", "changes"), FAMILIES.values(), ids=FAMILIES)
def test_signals_of_several_turns_are_those_of_a_forward_over_the_text(tiny, writer, ragged, close, kind, changes):
    model = tiny(kind, **changes)

    written = writer(model).write(talks(ragged), seed=0)

    check_signals(model, written, close)
    assert sum((own.parts == int(Part.SAMPLED)).any() for own in written) > 8
    assert sum(own.tokens.tolist()[-1] not in ENDS for own in written) > 0  # some were cut short
    assert len({len(own.tokens) for own in written}) > 8


@pytest.fixture
def left(monkeypatch):
    """Record how many sequences stay whenever some leave the batch."""
    sizes, select = [], KVCache.select

    def record(self, sequences):
        sizes.append(len(sequences))
        select(self, sequences)

    monkeypatch.setattr(KVCache, "select", record)
    return sizes


def test_finished_sequences_leave_the_batch(llama, writer, ragged, left):
    writer(llama).write(questions(ragged), seed=0)

    assert len(left) > 2
    assert left == sorted(left, reverse=True)
    assert left[0] < len(ragged)


def wrong_rows(monkeypatch):
    """The mutant: the rows of the first sequences are kept, whichever leave."""
    select = KVCache.select
    monkeypatch.setattr(KVCache, "select", lambda self, kept: select(self, torch.arange(len(kept))))


def positions_from_nought(monkeypatch):
    """The mutant: every step stands at the first position."""
    forward = Writer._forward

    def without(self, tokens, start, cache):
        base = self._model.base_model
        handle = base.register_forward_pre_hook(
            lambda _, args, inputs: (args, {**inputs, "position_ids": inputs["position_ids"] * 0}), with_kwargs=True
        )
        try:
            return forward(self, tokens, start, cache)
        finally:
            handle.remove()

    monkeypatch.setattr(Writer, "_forward", without)


def first_head_of_each_group(monkeypatch):
    """The mutant: heads are grouped the other way round."""
    group = batched_generation._grouped_attention

    def crossed(module, query, key, value, mask, **options):
        if query.shape[2] == 1:
            query = query.unflatten(1, (-1, key.shape[1])).transpose(1, 2).flatten(1, 2)
        return group(module, query, key, value, mask, **options)

    monkeypatch.setitem(batched_generation.AttentionInterface._global_mapping, batched_generation._GROUPED, crossed)


@pytest.mark.parametrize("mutate", [wrong_rows, positions_from_nought, first_head_of_each_group])
def test_the_check_of_answers_fails_on_a_mutant(llama, writer, ragged, hf_tokens, monkeypatch, mutate):
    mutate(monkeypatch)
    written = writer(llama).write(questions(ragged), seed=0)

    with pytest.raises(AssertionError):
        check_answers(llama, written, ragged, hf_tokens)


def test_the_check_of_signals_fails_on_shifted_hidden_states(llama, writer, ragged, close, monkeypatch):
    finished = batched_generation._finished
    monkeypatch.setattr(batched_generation, "_finished", lambda own, hidden: finished(own, hidden.roll(-1, dims=0)))
    written = writer(llama).write(questions(ragged), seed=0)

    with pytest.raises(AssertionError):
        check_signals(llama, written, close)


def test_the_last_few_of_many_are_cut_short(llama, writer, prompts, hf_tokens):
    written = writer(llama).write(questions(prompts), seed=0)  # 50, so the last three

    truths = [[*prompt, *hf_tokens(llama, prompt, COUNT, tuple(sorted(ENDS)))] for prompt in prompts]
    texts = [own.tokens.tolist() for own in written]
    assert all(text == truth[: len(text)] for text, truth in zip(texts, truths, strict=True))
    assert 0 < sum(text != truth for text, truth in zip(texts, truths, strict=True)) <= 3


def test_a_writer_leaves_the_models_weights_and_answers_alone(llama, writer, ragged, fresh, close):
    one = writer(llama)
    one.write(questions(ragged), seed=0)

    assert all(map(torch.equal, one._model.state_dict().values(), llama.state_dict().values()))
    close(fresh(one._model, ragged[0]), fresh(llama, ragged[0]))


@torch.no_grad()
def check_draws(model, written):
    """Each sampled token is in the nucleus of 0.7 among the best five; return how many were, and were not the best."""
    drawn, others = 0, 0
    for own in written:
        tokens = own.tokens.long()
        best = model(tokens[None, :-1], use_cache=False).logits[0].topk(5)
        probabilities = best.values.softmax(-1)
        for place in (own.parts == int(Part.SAMPLED)).nonzero()[:, 0].tolist():
            rank = (
                best.indices[place - 1].tolist().index(tokens[place]) if tokens[place] in best.indices[place - 1] else 9
            )
            assert probabilities[place - 1, :rank].sum() < 0.7
            drawn, others = drawn + 1, others + (rank > 0)
    return drawn, others


@pytest.fixture(scope="module")
def flat(tiny):
    """A model that often has several tokens in its nucleus."""
    return tiny(initializer_range=0.2)


def test_sampled_tokens_come_from_the_nucleus(flat, writer, ragged):
    drawn, others = check_draws(flat, writer(flat, top_k=5, top_p=0.7).write(talks(ragged), seed=0))

    assert drawn > 50
    assert others > 15


@pytest.mark.parametrize("options", [{"top_k": 5, "top_p": 1.0}, {"top_k": 64, "top_p": 0.7}])
def test_the_check_of_draws_fails_on_a_wider_nucleus(flat, writer, ragged, options):
    with pytest.raises(AssertionError):
        check_draws(flat, writer(flat, **options).write(talks(ragged), seed=0))


def test_draws_follow_the_probabilities(flat, writer):
    count, start = 2000, random.Random(0).choices(range(64), k=5)
    written = writer(flat, frozenset(), top_k=4, top_p=1.0).write(
        [[Segment(Part.GIVEN, tuple(start)), Segment(Part.SAMPLED, limit=1)]] * count, seed=0
    )
    with torch.no_grad():
        best = flat(torch.tensor([start])).logits[0, -1].topk(4)

    drawn = torch.tensor([(torch.stack([own.tokens[-1] for own in written]) == token).sum() for token in best.indices])

    expected = best.values.softmax(-1)
    assert expected[3] > 0.01
    torch.testing.assert_close(drawn / count, expected, rtol=0.0, atol=4 * 0.5 / count**0.5)


def test_the_same_seed_gives_the_same_text_and_another_gives_another(flat, writer, ragged):
    one = writer(flat)
    texts = [[own.tokens.tolist() for own in one.write(talks(ragged), seed)] for seed in (3, 3, 4)]

    assert texts[0] == texts[1] != texts[2]
