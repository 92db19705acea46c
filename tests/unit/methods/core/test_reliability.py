"""Edges of verified trees are counted once, where the target's text reached them, by what was believed of them."""

from math import exp, inf, log

import pytest

from methods.core.edge_tally import tally_edges
from methods.core.reliability import BINS, Bin, added, bin_of, expected_error
from methods.core.tree import DraftTree


def told(**shares):
    """A tally with these edges, believed probabilities and acceptances, one edge a pair."""
    tally = {}
    for origin, edges in shares.items():
        bins = [Bin()] * BINS
        for believed, accepted in edges:
            one = bins[bin_of(believed)]
            bins[bin_of(believed)] = Bin(one.edges + 1, one.believed + believed, one.accepted + accepted)
        tally[origin] = bins
    return tally


@pytest.fixture
def tree():
    """A root with three children, and two below the first, which the middle drafter scored too."""
    tree = DraftTree(0)
    first = tree.add(0, 1, log(0.6))
    tree.add(0, 2, log(0.3), "middle")
    tree.add(0, 3, -inf)  # nobody scored it
    tree.add(first, 4, log(0.6 * 0.9))
    tree.add(first, 5, log(0.6 * 0.05))
    tree.scored_by_middle.add(first)
    return tree


def test_edges_behind_accepted_nodes_count_and_no_others(tree):
    expected = told(both=[(0.6, True)], middle=[(0.3, False)], small=[(0.9, True), (0.05, False)])
    found = tally_edges([(tree, [1, 4, 9])])
    assert found.keys() == expected.keys()
    for origin, bins in expected.items():
        assert [one.edges for one in found[origin]] == [one.edges for one in bins]
        assert [one.accepted for one in found[origin]] == [one.accepted for one in bins]
        assert [one.believed for one in found[origin]] == pytest.approx([one.believed for one in bins], abs=1e-5)


def test_where_the_root_alone_is_accepted_its_edges_count(tree):
    found = tally_edges([(tree, [7])])
    assert sum(one.edges for bins in found.values() for one in bins) == 2
    assert sum(one.accepted for bins in found.values() for one in bins) == 0


def test_beyond_what_was_committed_nothing_counts(tree):
    found = tally_edges([(tree, [1])])  # an answer that ended there
    assert sum(one.edges for bins in found.values() for one in bins) == 2
    assert sum(one.accepted for one in found["both"]) == 1


def test_where_nothing_is_drafted_or_scored_there_is_no_tally():
    bare = DraftTree(0)
    assert tally_edges([(bare, [1])]) is None
    bare.add(0, 1)
    assert tally_edges([(bare, [1])]) is None


def test_who_knew_of_an_edge_survives_a_cut(tree):
    cut = tree.prune(2)
    assert len(cut) == 3
    assert tally_edges([(cut, [1])]).keys() == {"both"}


def test_a_score_above_its_parents_is_certain_and_no_more(tree):
    tree.scores[4] = 0.0
    assert tally_edges([(tree, [1, 8])])["small"][BINS - 1] == Bin(1, 1.0, 0)


def test_tallies_add_up():
    one = told(small=[(0.05, False), (0.55, True)])
    other = told(small=[(0.55, False)], middle=[(1.0, True)])
    total = added([one, other])
    assert total["small"][5] == Bin(2, pytest.approx(1.1), 1)
    assert total["small"][0] == Bin(1, 0.05, 0)
    assert total["middle"] == other["middle"]
    assert added([]) == {}


def test_the_error_is_the_mean_distance_weighted_by_edges():
    bins = told(x=[(0.1, False)] * 3 + [(0.1, True)] + [(0.95, True)] * 6)["x"]
    assert expected_error(bins) == pytest.approx((abs(0.4 - 1) + abs(5.7 - 6)) / 10)
    # Of one bin the mean counts: what is right on average in a bin is no error.
    assert expected_error(told(x=[(0.5, True), (0.5, False)])["x"]) == 0
    assert expected_error(told(x=[(exp(-20), False)])["x"]) == pytest.approx(0, abs=1e-6)
