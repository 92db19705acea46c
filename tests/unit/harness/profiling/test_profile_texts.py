"""The texts of profiles whose models have nothing to say."""

import pytest

from harness.profiling.texts import ANSWER, random_texts
from methods.core.tree import DraftTree
from methods.drafters.ngram import NgramDrafter, counts_estimate

pytestmark = pytest.mark.torch


def test_random_texts_are_of_the_vocabulary_and_repeat_with_their_seed():
    texts = random_texts(300, 0)

    assert len(texts) == 4
    assert {token for text in texts for token in (*text.prompt, *text.answer)} <= {*range(300)}
    assert [len(text.answer) for text in texts] == [ANSWER] * 4
    assert random_texts(300, 0) == texts != random_texts(300, 1)


def test_they_fit_where_the_smallest_context_of_a_profile_fits():
    assert all(len(text.prompt) + ANSWER <= 64 + 64 for text in random_texts(150_000, 0))


def proposed_rightly(text):
    """How often look-up proposes the token that comes next in the answer."""
    whole, right = [*text.prompt, *text.answer], 0
    for place in range(len(text.prompt), len(whole)):
        drafter, tree = NgramDrafter(5, 10, "continue", counts_estimate), DraftTree(whole[place - 1])
        drafter.begin(whole[:place])
        drafter.extend(tree, [0], 1, 99)
        right += whole[place] in tree.children[0]
    return right


def test_look_up_finds_what_comes_next_in_about_half_of_the_places():
    shares = [proposed_rightly(text) / ANSWER for text in random_texts(150_000, 0)]

    assert min(shares) > 0.3
    assert max(shares) < 0.9
