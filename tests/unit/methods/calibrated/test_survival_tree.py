"""Trees grown by survival."""

import math
import random

import pytest

from harness.training.edge_regression import LONGEST, PRIOR
from methods.calibrated.edge_model import NOTHING, Recent
from methods.calibrated.survival_tree import SurvivalTree
from methods.drafters.ngram_index import NgramIndex

FLOOR = math.log(0.02)


def tree_of(context, *, floor=FLOOR, sent=40, most=160, deepest=12, width=10):
    index = NgramIndex(LONGEST)
    index.extend(context)
    grown = SurvivalTree(
        context, index, PRIOR, Recent(), floor=floor, sent=sent, most=most, deepest=deepest, width=width
    )
    grown.grow()
    return grown


def contexts(count=30, vocabulary=6):
    rng = random.Random(3)
    return [[rng.randrange(vocabulary) for _ in range(rng.randint(1, 60))] for _ in range(count)]


@pytest.mark.parametrize("context", contexts())
def test_a_node_is_never_likelier_than_its_parent_and_never_below_the_floor(context):
    tree = tree_of(context).tree
    for node in range(1, len(tree)):
        assert FLOOR <= tree.scores[node] <= tree.scores[tree.parents[node]]


@pytest.mark.parametrize("context", contexts(8))
def test_any_number_of_the_likeliest_nodes_hangs_together(context):
    grown = tree_of(context)
    order = grown.by_survival()
    for size in range(len(order)):
        kept = {0, *order[:size]}
        assert all(grown.tree.parents[node] in kept for node in order[:size])


MANY = [token for number in range(40) for token in (1, 2, 100 + number % 17)] + [1, 2]


def test_what_is_less_likely_than_as_many_as_are_sent_has_no_place():
    few, many = (tree_of(MANY, floor=-50.0, sent=sent, most=500) for sent in (5, 400))
    assert len(few.tree) < len(many.tree)
    best = sorted(many.tree.scores[1:], reverse=True)[:5]
    assert sorted(few.tree.scores[1:], reverse=True)[:5] == pytest.approx(best)


def test_what_both_drafters_tell_of_is_known_from_what_look_up_alone_adds():
    grown = tree_of([1, 2, 3, 9, 1, 2, 3, 9, 1, 2])
    (copied,) = grown.found[0].logits
    grown.fuse(0, [(7, math.log(0.6)), (copied, math.log(0.3))], fusion=True)
    grown.settle()
    grown.grow()
    tree = grown.tree
    told = {node for node in range(1, len(tree)) if node in tree.scored_by_middle}
    assert told == {tree.children[0][7], tree.children[0][copied]}
    assert tree.origins[tree.children[0][copied]] == "small"


def test_what_the_middle_drafter_finds_has_a_place_whatever_look_up_had_filled():
    grown = tree_of(MANY, floor=-50.0, sent=5, most=500)
    grown.fuse(0, [(7, math.log(0.6)), *((token, math.log(0.02)) for token in grown.found[0].logits)], fusion=True)
    grown.settle()
    first, *_ = grown.by_survival()
    assert (grown.tree.tokens[first], grown.tree.origins[first]) == (7, "middle")


def called(context, nodes=3, seed=0, **limits):
    """A tree at some of whose nodes the middle drafter was called, and that grew on."""
    rng, grown = random.Random(seed), tree_of(context, **limits)
    for node in sorted(grown.found)[:nodes]:
        tokens = {*grown.found[node].logits, *rng.sample(range(50, 90), 8)}
        shares = [rng.random() for _ in range(2 * len(tokens))]
        grown.fuse(
            node,
            [(token, math.log(share / sum(shares))) for token, share in zip(tokens, shares, strict=False)],
            bool(seed % 2),
        )
    grown.settle()
    grown.grow()
    return grown


@pytest.mark.parametrize("seed", range(20))
def test_behind_a_call_too_scores_fall_the_likeliest_hang_together_and_limits_hold(seed):
    for context in contexts(6):
        grown = called(context, seed=seed, most=25, deepest=4, sent=6)
        tree = grown.tree
        assert len(tree) <= 25
        assert max(tree.depths) <= 4
        assert all(tree.scores[node] <= tree.scores[tree.parents[node]] for node in range(1, len(tree)))
        order = grown.by_survival()
        for size in range(len(order)):
            assert all(grown.tree.parents[node] in {0, *order[:size]} for node in order[:size])


def test_the_unlikely_finds_of_one_node_take_no_place_from_the_likely_ones_of_another():
    grown = tree_of([1, 2, 3, 1, 2], most=8, sent=8, deepest=4, floor=-50.0)
    first, second = sorted(grown.found)[:2]
    free = 8 - len(grown.tree)
    assert free > 1
    grown.fuse(first, [(50 + one, -5.0 - one) for one in range(9)], fusion=False)
    grown.fuse(second, [(70, -0.1)], fusion=False)
    grown.settle()
    assert 70 in grown.tree.tokens
    assert [token for token in range(50, 59) if token in grown.tree.tokens] == [*range(50, 50 + free - 1)]


def test_a_token_that_look_up_knew_is_never_the_middles():
    grown = tree_of(MANY, floor=math.log(0.3), sent=40)
    known = next(token for token in grown.found[0].logits if token not in grown.tree.children[0])
    grown.fuse(0, [(known, math.log(0.9)), (7, math.log(0.8))], fusion=False)
    grown.settle()
    origins = {token: grown.tree.origins[node] for token, node in grown.tree.children[0].items()}
    assert (origins[known], origins[7]) == ("small", "middle")


def test_nobody_is_called_deeper_than_the_middle_drafter_can_look():
    grown = tree_of([5, 9, 2, 7, 1, 8, 3] * 3, floor=math.log(0.005))
    depths = [grown.tree.depths[node] for _, node in grown.calls_for((), 99)]
    assert max(depths) > 2
    assert [depth for depth in depths if depth <= 2] == [grown.tree.depths[node] for _, node in grown.calls_for((), 2)]
    assert grown.calls_for((), -1) == []


def test_a_text_that_repeats_itself_is_copied_far_beyond_five_tokens():
    text = [5, 9, 2, 7, 1, 8, 3, 6, 4, 11, 12, 13]
    grown = tree_of(text * 3 + text[:3], floor=math.log(0.005))
    assert grown.tree.follow(text[3:10])[1:] != []
    assert max(grown.tree.depths) > 5


def test_the_limits_on_depth_and_size_hold():
    text = [1, 2, 3, 1, 2, 4, 1, 3, 2] * 4
    assert max(tree_of(text, deepest=2, floor=math.log(1e-6)).tree.depths) == 2
    assert len(tree_of(text, most=5, floor=math.log(1e-6)).tree) == 5
    assert len(tree_of(text, deepest=0).tree) == 1


def test_both_drafters_evidence_moves_an_edge_and_all_that_hangs_on_it():
    grown = tree_of([1, 2, 3, 9, 1, 2, 3, 8, 1, 2], floor=math.log(0.001))
    tree = grown.tree
    child = tree.children[0][3]
    below = [node for node in range(1, len(tree)) if child in tree.path(node)]
    assert len(below) > 1
    before = list(tree.scores)
    others = [(token, -9.0) for token in grown.found[0].logits if token != 3]
    grown.fuse(0, [(3, math.log(0.99)), (50, math.log(0.05)), *others], True)
    grown.settle()
    gained = tree.scores[child] - before[child]
    assert gained > 0
    for node in below:
        assert tree.scores[node] - before[node] == pytest.approx(gained)
    assert tree.origins[tree.children[0][50]] == "middle"
    assert tree.scores[tree.children[0][50]] < tree.scores[child]


def test_without_fusion_look_up_has_no_say_in_what_the_middle_scored():
    scores = []
    for context in ([1, 2, 3, 9, 1, 2], [7, 7, 7, 7, 1, 2]):
        grown = tree_of(context, floor=math.log(1e-4))
        grown.fuse(0, [(3, math.log(0.3)), *((token, -5.0) for token in grown.found[0].logits if token != 3)], False)
        grown.settle()
        scores.append(grown.tree.scores[grown.tree.children[0][3]])
    assert scores[0] == pytest.approx(scores[1])


def test_a_call_promises_most_where_look_up_found_nothing():
    lost, sure = tree_of([1, 2, 3, 4]), tree_of([1, 2] * 10)
    assert lost.found[0].best == NOTHING
    promised = [{node: gain for gain, node in grown.calls_for((), 99)}[0] for grown in (lost, sure)]
    assert promised[0] > promised[1]
    assert 0 not in [node for _, node in lost.calls_for({0}, 99)]


def test_the_first_call_is_offered_at_the_root_alone_where_nothing_was_found():
    assert [node for _, node in tree_of([1, 2, 3, 4]).calls_for((), 99)] == [0]
