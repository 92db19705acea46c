"""A head over a part of the vocabulary: which tokens, which columns, and what the others count as."""

import numpy as np
import pytest
import torch

from harness.distil.student import limited_vocabulary
from methods.core.limited_head import LimitedHead
from methods.core.model import TreeModel
from methods.drafters.vocabulary_map import UNKNOWN_TOKEN_SCORE, TokenColumns

pytestmark = pytest.mark.torch

COUNTS = np.array([0, 5, 1, 0, 7, 5, 2])
TOKENS = [2, 3, 7]
FLOOR = -30.0


@pytest.mark.parametrize(
    ("size", "always", "tokens"),
    [
        (2, [], [1, 4]),  # 1 and 5 tie: the lower token stays
        (3, [], [1, 4, 5]),
        (2, [0, 4], [0, 1, 4]),
        (9, [3], [1, 2, 3, 4, 5, 6]),  # what the text never holds is kept only where it is asked for
        (0, [], [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_the_tokens_that_the_text_holds_most_are_known(size, always, tokens):
    known = limited_vocabulary(COUNTS, size, always)

    assert known.tolist() == tokens
    assert known.dtype == torch.int64


@pytest.fixture
def whole():
    return torch.randn(10, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def head(whole):
    return LimitedHead(whole[TOKENS], torch.tensor(TOKENS), 10, FLOOR)


@pytest.fixture
def hidden():
    return torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))


def test_known_tokens_have_the_logits_of_the_whole_head(head, whole, hidden):
    limited, full = head.limited(hidden), head(hidden)

    assert full.shape == (2, 3, 10)
    torch.testing.assert_close(limited, (hidden @ whole.T)[..., TOKENS])
    assert torch.equal(full[..., TOKENS], limited)
    assert torch.equal(full.argmax(-1), torch.tensor(TOKENS)[limited.argmax(-1)])


def test_every_other_token_has_the_floor_as_its_log_probability(head, hidden):
    others = [token for token in range(10) if token not in TOKENS]

    scores = head(hidden).log_softmax(-1)

    torch.testing.assert_close(scores[..., TOKENS], head.limited(hidden).log_softmax(-1))
    torch.testing.assert_close(scores[..., others], torch.full((2, 3, len(others)), FLOOR))


def test_a_half_precision_head_gives_half_precision_logits(whole, hidden):
    head = LimitedHead(whole[TOKENS].bfloat16(), torch.tensor(TOKENS), 10, FLOOR)

    assert head(hidden.bfloat16()).dtype == torch.bfloat16


@pytest.fixture
def columns(tiny):
    """Build the columns of a tiny model whose head knows some tokens, or all of its 64."""

    def build(vocabulary, tokens=None):
        model = TreeModel(tiny())
        if tokens is not None:
            model.limited_head = LimitedHead(torch.zeros(len(tokens), 32), torch.tensor(tokens), 64, -6.5)
        return TokenColumns.of(model, vocabulary)

    return build


def test_the_columns_of_a_whole_head_are_its_common_tokens(columns):
    whole = columns(50)

    assert (whole.count, whole.floor) == (50, UNKNOWN_TOKEN_SCORE)
    assert [whole.column(token) for token in (0, 49, 50, 99)] == [0, 49, None, None]
    assert whole.tokens(torch.tensor([3, 49])) == [3, 49]


def test_the_columns_of_a_limited_head_are_the_common_ones_of_its_tokens(columns):
    limited = columns(50, [4, 30, 49, 50, 63])

    assert (limited.count, limited.floor) == (3, -6.5)
    assert [limited.column(token) for token in (4, 30, 49, 0, 50, 63)] == [0, 1, 2, None, None, None]
    assert limited.tokens(torch.tensor([2, 0])) == [49, 4]


def test_a_tree_models_head_is_limited_only_where_it_is_one(tiny, head):
    from harness.models.shared_layers import sharing_layers

    target = tiny()
    drafter = sharing_layers(target, [0], "layers")
    drafter.set_output_embeddings(head)

    assert TreeModel(drafter).limited_head is head
    assert TreeModel(target).limited_head is None
