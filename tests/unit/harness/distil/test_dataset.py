"""Self-written text as training batches: the row at position i is about the token at i + 1, padding about none."""

import pytest
import torch

from harness.distil.batched_generation import Written
from harness.distil.dataset import Dataset
from harness.distil.shards import TextFolder

pytestmark = pytest.mark.torch

GIVEN, SAMPLED, ANSWER = 0, 1, 2
PARTS = [
    [[GIVEN, GIVEN, ANSWER, ANSWER], [GIVEN, SAMPLED]],
    [[GIVEN, ANSWER, GIVEN, ANSWER, ANSWER, ANSWER], [GIVEN, GIVEN, SAMPLED]],
]


def sequence(number, parts):
    """Token i of sequence n is 10 n + i + 1, and the hidden state that predicts it holds that number."""
    tokens = torch.tensor([10 * number + place + 1 for place in range(len(parts))], dtype=torch.int32)
    hidden = tokens[1:, None].float() * torch.tensor([1.0, -1.0])
    return Written(tokens, torch.tensor(parts, dtype=torch.uint8), hidden.to(torch.bfloat16))


@pytest.fixture
def text(tmp_path):
    """Write batches of sequences as a `TextFolder` does; each sequence is its parts."""

    def write(batches):
        number = 0
        for index, batch in enumerate(batches):
            written = [sequence(number + place, parts) for place, parts in enumerate(batch)]
            TextFolder._save(tmp_path / f"{index:05d}.safetensors", "free", written)
            number += len(batch)
        return sorted(tmp_path.glob("*.safetensors"))

    return write


def check_rows(kind, files):
    padded = kind(files).padded_batch([2, 1, 3, 0])
    assert padded.tokens.tolist() == [[21, 22, 23, 24, 25], [11, 0, 0, 0, 0], [31, 32, 0, 0, 0], [1, 2, 3, 0, 0]]
    predicted = [[22, 23, 24, 25, 26], [12, 0, 0, 0, 0], [32, 33, 0, 0, 0], [2, 3, 4, 0, 0]]
    assert padded.hidden[..., 0].tolist() == predicted
    assert torch.equal(padded.hidden[..., 1], -padded.hidden[..., 0])
    assert padded.hidden.dtype == torch.bfloat16


def test_a_hidden_state_stands_where_the_next_token_is_predicted(text):
    check_rows(Dataset, text(PARTS))


class OneLater(Dataset):
    """The mutant: a position is given the state behind the token that it should predict."""

    def padded_batch(self, batch):
        padded = super().padded_batch(batch)
        padded.hidden[:, :-1] = padded.hidden[:, 1:].clone()
        return padded


class ForgetsTheMissingRow(Dataset):
    """The mutant: takes a sequence to have as many hidden states as tokens, so that later ones are off."""

    def _index(self, file):
        begun = len(self._hidden)
        super()._index(file)
        for place in range(begun, len(self._hidden)):
            hidden, start = self._hidden[place]
            self._hidden[place] = (hidden, start + place - begun)


@pytest.mark.parametrize("mutant", [OneLater, ForgetsTheMissingRow])
def test_the_check_of_rows_fails_on_a_mutant(text, mutant):
    files = text(PARTS)
    with pytest.raises((AssertionError, RuntimeError)):
        check_rows(mutant, files)


def test_predictions_of_an_answer_count_one_of_sampled_text_less_of_given_text_and_padding_nothing(text):
    padded = Dataset(text(PARTS), elsewhere=0.25).padded_batch([2, 1, 0])

    assert padded.weights.tolist() == [[1, 0, 1, 1, 1], [0.25, 0, 0, 0, 0], [0, 1, 1, 0, 0]]


def test_sequences_are_cut_at_the_longest(text):
    padded = Dataset(text(PARTS), longest=2, elsewhere=0.25).padded_batch([2, 0])

    assert padded.tokens.tolist() == [[21, 22], [1, 2]]
    assert padded.hidden[..., 0].tolist() == [[22, 23], [2, 3]]
    assert padded.weights.tolist() == [[1, 0], [0, 1]]


def test_a_batch_is_as_long_as_its_longest_sequence(text):
    assert Dataset(text(PARTS)).padded_batch([1, 3]).tokens.tolist() == [[11, 0], [31, 32]]


def test_tokens_are_counted(text):
    counts = Dataset(text(PARTS)).counts(40)

    assert counts.shape == (40,)
    assert {*counts.nonzero()[0].tolist()} == {1, 2, 3, 4, 11, 12, *range(21, 27), 31, 32, 33}
    assert counts.sum() == 15


@pytest.fixture
def many(text):
    return Dataset(text([[[SAMPLED] * (2 + number * 7 % 30) for number in range(60)]] * 2))


@pytest.mark.parametrize("budget", [31, 64, 500])
def test_an_epoch_holds_every_sequence_once_within_the_budget(many, budget):
    batches = many.batches(budget, seed=1)

    assert sorted(index for batch in batches for index in batch) == [*range(120)]
    assert max(many.padded_batch(batch).tokens.numel() for batch in batches) <= budget


def test_batches_pad_little(many):
    batches = [many.padded_batch(batch) for batch in many.batches(200, seed=1)]

    padding = sum(int((padded.weights == 0).sum()) for padded in batches)

    assert padding < 0.1 * sum(padded.weights.numel() for padded in batches)


def test_a_sequence_longer_than_the_budget_has_a_batch_of_its_own(text):
    assert sorted(Dataset(text(PARTS)).batches(1, seed=0)) == [[0], [1], [2], [3]]


def test_the_order_of_an_epoch_is_its_seeds(many):
    assert many.batches(64, seed=5) == many.batches(64, seed=5)
    assert many.batches(64, seed=5) != many.batches(64, seed=6)
