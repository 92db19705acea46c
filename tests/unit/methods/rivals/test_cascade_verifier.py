"""A review, worked by hand over letters: what is kept, what is added, what is evaluated."""

import math

import pytest

from methods.core.tree import UNSCORED, DraftTree
from methods.rivals.csd.cascade import Drafted
from methods.rivals.csd.verifier import CascadeVerifier

pytestmark = pytest.mark.torch

TABLE = {
    "": {"a": 0.6, "b": 0.3},
    "a": {"b": 0.5, "c": 0.4},
    "ab": {"d": 0.9},
    "abd": {"e": 0.8},
    "ac": {"y": 0.7, "x": 0.2},
    "z": {"b": 0.9},
}


@pytest.fixture
def review(table_model):
    """Review a draft of letters behind a root; each is a copy, or a letter with the probability that it was given."""

    def call(draft, start=0, *, context="r", **options):
        tokens = [ord(letter) for letter in context]
        call.model = table_model(TABLE, len(context))
        call.reviewer = CascadeVerifier(call.model, **{"vocabulary": 128, **options})
        call.reviewer.begin(tokens, 99)
        call.reviewer.begin_round(tokens)
        call.tree = DraftTree(tokens[-1])
        return again(draft, start)

    def again(draft, start=0):
        pairs = [(one, 1.0) if isinstance(one, str) else one for one in draft]
        written = [Drafted(ord(letter), math.log(probability)) for letter, probability in pairs]
        kept, call.tokens = call.reviewer.review(call.tree, written, start)
        call.kept = kept
        return "".join(chr(one.token) for one in kept)

    call.again = again
    return call


def scores(tree):
    names = {"".join(chr(tree.tokens[step]) for step in tree.path(node)[1:]): node for node in range(1, len(tree))}
    return {name: tree.scores[node] for name, node in names.items()}


@pytest.mark.parametrize(
    ("draft", "start", "kept"),
    [
        ("", 0, "a"),
        ("a", 0, "ab"),
        ("acx", 0, "ab"),
        ("abd", 0, "abde"),
        ("zbd", 0, "a"),
        ("z", 1, "zb"),  # what is not for review stays, whatever it is
        ("zc", 1, "zb"),
        ("acx", 2, "acy"),
    ],
)
def test_the_longest_prefix_of_its_own_choices_is_kept_and_one_token_added(review, draft, start, kept):
    assert review(draft, start) == kept


@pytest.mark.parametrize(
    ("draft", "leniency", "kept"),
    [
        ("acx", 1, "ab"),
        ("acx", 2, "ab"),  # c has 0.4, under 1/2
        ("acx", 3, "acy"),  # c passes; x has 0.2, under 1/3
        ("ac", 3, "acy"),
        ([("a", 0.9), ("c", 0.9)], 2, "ab"),  # 0.4 is under 0.9/2
        ([("a", 0.9), ("c", 0.7)], 2, "acy"),
        ([("a", 0.9), ("c", 0.1)], 1, "ab"),  # at 1 nothing passes, however unsure the drafter was
    ],
)
def test_a_lenient_review_lets_pass_what_is_probable_enough(review, draft, leniency, kept):
    assert review(draft, leniency=leniency) == kept


def test_what_is_kept_has_the_reviewers_probabilities(review):
    review("acx", leniency=3)

    assert [math.exp(one.log_probability) for one in review.kept] == pytest.approx([0.6, 0.4, 0.7])


def test_the_tree_keeps_rejected_tokens_scored_beside_the_path(review):
    review("acx")

    found = {name: math.exp(score) for name, score in scores(review.tree).items()}
    assert found == pytest.approx({"a": 0.6, "ac": 0.24, "acx": 0.048, "ab": 0.3})
    assert review.tree.origins == ["root", "small", "small", "small", "middle"]


def test_only_what_is_new_is_evaluated_and_earlier_rows_are_seen(review):
    assert review("acx", context="pqr") == "ab"
    assert review.tokens == 4
    assert review.again("abd", 2) == "abde"
    assert review.tokens == 2
    assert review.model.evaluated == [["", "a", "ac", "acx"], ["ab", "abd"]]


def test_committed_tokens_that_it_has_not_seen_join_its_forward(review):
    review("a", context="pqr")
    path = review.tree.follow([ord("a")])
    review.reviewer.advance([ord(letter) for letter in "abd"], path)  # r and a
    context = [ord(letter) for letter in "pqrabd"]
    review.reviewer.begin_round(context)
    review.tree = DraftTree(ord("d"))

    assert review.again("e") == "e{"  # TABLE says nothing of what follows
    assert review.tokens == 3
    assert review.model.evaluated[-1] == ["ab", "abd", "abde"]


def test_a_token_that_is_not_common_is_neither_kept_nor_added(review):
    assert review("ab", vocabulary=ord("b")) == "a\0"  # all that is common is improbable there, so the first token
    assert scores(review.tree)["ab"] == pytest.approx(-20.0)


def test_a_copy_that_was_not_reviewed_has_no_score(review):
    from methods.rivals.csd.verifier import drafted_path

    review("a")
    path = drafted_path(review.tree, [Drafted(ord("a"), 0.0), Drafted(ord("q"), 0.0)])

    assert review.tree.scores[path[-1]] == UNSCORED
    assert [review.tree.tokens[node] for node in path] == [ord("r"), ord("a"), ord("q")]
