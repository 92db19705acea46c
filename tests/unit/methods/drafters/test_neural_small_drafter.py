"""A small neural model in the look-up drafter's place: its steps worked by hand."""

import pytest

from methods.drafters.neural import NeuralSmallDrafter

pytestmark = pytest.mark.torch

TABLE = {
    "": {"a": 0.5, "b": 0.3, "c": 0.1},
    "a": {"b": 0.4, "a": 0.4, "c": 0.1},
    "b": {"a": 0.9, "b": 0.05},
    "else": {"a": 0.6, "b": 0.3},
}


@pytest.fixture
def small(grafting):
    return grafting(TABLE, kind=NeuralSmallDrafter, width=2)


def test_each_frontier_node_gets_the_best_next_tokens_and_the_best_children_go_on(small):
    assert small.step("", step=1) == ["a", "b"]
    assert small.step("a", "b", step=1) == ["ba", "aa", "ab", "bb"]  # .27, .2 twice in order of creation, .015
    assert small.step("ba", "aa", step=2) == ["baa", "aaa"]  # .162, .12; "bab" .081 and "aab" .06 are cut
    assert small.nodes == ["a", "b", "aa", "ab", "ba", "bb", "baa", "bab", "aaa", "aab"]
    assert small.probabilities["bab"] == pytest.approx(0.3 * 0.9 * 0.3)
    assert set(small.tree.origins[1:]) == {"small"}


def test_it_evaluates_the_frontier_and_the_way_there_each_node_once(small):
    small.plant("a", "aa", "ab", "b")

    small.step("aa")
    small.step("ab", "aa")

    assert small.model.evaluated == [["", "a", "aa"], ["ab"]]


def test_it_rescores_nothing_and_marks_nothing_as_expanded(small):
    small.plant("a", "b", score=-9.0, origin="middle")

    small.step("")

    assert small.tree.scores == [0.0, -9.0, -9.0]
    assert small.tree.origins == ["root", "middle", "middle"]
    assert small.tree.expanded == set()


def test_at_the_cap_nothing_is_added_and_what_is_there_still_counts(grafting):
    small = grafting(TABLE, kind=NeuralSmallDrafter, width=3, cap=4).plant("a", "b", "ac", score=-1.0)

    assert small.step("a", step=1) == ["ac"]
    assert small.nodes == ["a", "b", "ac"]
