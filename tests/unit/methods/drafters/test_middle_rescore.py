"""Rescoring and reselection worked by hand on one tree of twelve nodes."""

import math

import pytest

from methods.core.tree import UNSCORED
from methods.drafters import neural
from methods.drafters.middle import MiddleDrafter
from methods.drafters.vocabulary_map import TokenColumns

pytestmark = pytest.mark.torch

# What the model gives behind each path; behind any other one, "else".
TABLE = {
    "": {"a": 0.5, "b": 0.2, "c": 0.1, "d": 0.05},
    "a": {"b": 0.35, "a": 0.3, "c": 0.2},
    "aa": {"b": 0.5, "a": 0.4},
    "ab": {"c": 0.1, "a": 0.8},
    "b": {"a": 0.9},
    "ba": {"b": 0.5, "a": 0.3},
    "c": {"a": 0.8},
    "ca": {"b": 0.25, "a": 0.6},
    "else": {"a": 0.5, "b": 0.25},
}
# In creation order, so that depths are mixed. By hand, parent times child:
SCORES = {
    "a": 0.5,
    "aa": 0.5 * 0.3,  # .15
    "aab": 0.15 * 0.5,  # .075
    "b": 0.2,
    "ba": 0.2 * 0.9,  # .18
    "bab": 0.18 * 0.5,  # .09
    "c": 0.1,
    "ab": 0.5 * 0.35,  # .175
    "ca": 0.1 * 0.8,  # .08
    "cab": 0.08 * 0.25,  # .02
    "abc": 0.175 * 0.1,  # .0175
    "d": 0.05,
}


def planted(grafting, kind=MiddleDrafter, **options):
    return grafting(TABLE, kind=kind, **options).plant(*SCORES)


def check_scores(grafting, kind=MiddleDrafter):
    draft = planted(grafting, kind, reselect="off")
    draft.tree.scores[draft.node("a")] = math.log(0.99)  # an estimate of the small drafter's
    draft.tree.scores[draft.node("d")] = math.log(0.01)

    draft.step("bab")

    assert UNSCORED not in draft.tree.scores
    assert {name: draft.probabilities[name] for name in SCORES} == pytest.approx(SCORES)
    assert draft.tree.scores[0] == 0.0
    assert draft.nodes[: len(SCORES)] == [*SCORES]


class KeepsEstimates(MiddleDrafter):
    """Scores only what nobody scored."""

    def _rescore(self, tree):
        before = [*tree.scores]
        super()._rescore(tree)
        for node, score in enumerate(before):
            tree.scores[node] = tree.scores[node] if score == UNSCORED else score


class LeavesLeavesUnscored(MiddleDrafter):
    """Evaluates what it grafts onto, and not what has a child."""

    def needed(self, tree, candidates):
        inside = {node for candidate in candidates for node in tree.path(candidate)}
        return sorted(inside - self.nodes.rows.keys())


class OwnProbability(MiddleDrafter):
    """Scores a node by its own probability, not its path's."""

    def _rescore(self, tree):
        super()._rescore(tree)
        for node in list(tree.alive())[1:]:
            if node in self._scores and tree.parents[node] in self._scores:
                tree.scores[node] -= self._scores[tree.parents[node]]


def test_every_node_is_scored_by_the_model_along_its_path_and_none_stays_unscored(grafting):
    check_scores(grafting)


@pytest.mark.parametrize("mutant", [KeepsEstimates, LeavesLeavesUnscored, OwnProbability])
def test_the_score_check_fails_on_a_mutant(grafting, mutant):
    with pytest.raises(AssertionError):
        check_scores(grafting, mutant)


def check_floor(grafting):
    """é is no token of the model's; behind it the model sees its token 0 instead."""
    table = {**TABLE, "b\0": {"a": 0.5, "b": 0.3}}
    draft = grafting(table, reselect="off").plant("a", "b", "é", "bé", "béa", "béaé")

    draft.step("b")

    floor = math.exp(-20)
    expected = {"a": 0.5, "b": 0.2, "é": floor, "bé": 0.2 * floor, "béa": 0.1 * floor, "béaé": 0.1 * floor * floor}
    assert all(math.isfinite(score) for score in draft.tree.scores)
    assert {name: draft.probabilities[name] for name in expected} == pytest.approx(expected, rel=1e-9, abs=0)


def test_a_token_outside_the_models_vocabulary_scores_the_floor(grafting, monkeypatch):
    check_floor(grafting)

    monkeypatch.setattr(neural.TokenColumns, "of", lambda model, count: TokenColumns(count, float("-inf")))
    with pytest.raises(AssertionError):
        check_floor(grafting)


def test_a_token_of_the_models_that_is_not_common_scores_the_floor_and_is_never_grafted(grafting):
    draft = grafting({"": {"a": 0.1, "b": 0.2, "z": 0.7}}, vocabulary=ord("z"), width=3).plant("z", "a")

    draft.step("", step=1)

    # Without z, whose 0.7 is shared out: a third and two thirds. The letter behind them is any of the others.
    assert draft.nodes[:3] == ["z", "a", "b"]
    assert draft.probabilities["z"] == pytest.approx(math.exp(-20), rel=1e-9)
    assert draft.probabilities["a"] == pytest.approx(1 / 3)
    assert draft.probabilities["b"] == pytest.approx(2 / 3)


# frontier, expanded before, look-back, whom: the two best, and by hand from SCORES, where the root has 1
CASES = [
    (["ba", "ca"], ["", "a"], 0, "unexpanded", ["ba", "ab"]),  # depth 2: ba .18, ab .175, aa .15, ca .08
    (["ba", "ca"], ["", "a"], 1, "unexpanded", ["b", "ba"]),  # and depth 1 without a: b .2
    (["ba", "ca"], ["", "a"], 5, "unexpanded", ["b", "ba"]),  # and depth 0 without the root
    (["ba", "ca"], ["a"], 1, "unexpanded", ["b", "ba"]),  # the root lies two layers above
    (["ba", "ca"], ["a"], 2, "unexpanded", ["", "b"]),
    (["ba", "ca"], ["", "a"], 1, "all", ["a", "b"]),  # an expanded node wins again
    (["ba", "ca"], ["", "a"], 5, "all", ["", "a"]),  # and so does the root
    (["ba", "ca"], ["", "a"], 0, "all", ["ba", "ab"]),
    (["ba", "ca"], ["", "a"], 5, "off", ["ba", "ca"]),
    (["d", "bab"], ["", "a"], 0, "unexpanded", ["b", "c"]),  # depths 1 and 3: b .2, c .1, bab .09
    (["d", "bab"], ["", "a"], 1, "unexpanded", ["b", "ba"]),  # depths 0 to 3
    (["cab"], ["", "a"], 0, "unexpanded", ["bab", "aab"]),  # depth 3: .09 and .075
    ([], ["", "a"], 0, "unexpanded", ["b", "ba"]),  # no frontier: the whole tree, whatever the look-back
    ([], ["", "a"], 0, "all", ["", "a"]),
    ([], ["", "a"], 0, "off", []),
    (["d"], ["", "a", "b", "c", "d"], 0, "unexpanded", []),  # nobody is left
]


def check_reselection(grafting, cases, kind=MiddleDrafter):
    for frontier, expanded, look_back, reselect, chosen in cases:
        draft = planted(grafting, kind, look_back=look_back, reselect=reselect)
        draft.tree.expanded.update(draft.node(name) for name in expanded)
        children = draft.step(*frontier, step=1)  # the first step's frontier is whole
        assert {name[:-1] for name in children} == {*chosen}
        assert len(children) == 2 * len(chosen)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}, L={case[2]}, {case[3]}, {case[1]} expanded")
def test_the_best_nodes_within_reach_become_the_frontier(grafting, case):
    check_reselection(grafting, [case])


class LooksAtFrontierLayersAlone(MiddleDrafter):
    """Its look-back is 0."""

    def __init__(self, model, **options):
        super().__init__(model, **{**options, "look_back": 0})


class LooksBelowToo(MiddleDrafter):
    """Takes any node, at any depth."""

    def candidates(self, tree, frontier):
        return super().candidates(tree, [] if self._reselect != "off" else frontier)


class LetsExpandedNodesIn(MiddleDrafter):
    """Reselects among all."""

    def __init__(self, model, **options):
        super().__init__(model, **{**options, "reselect": options["reselect"].replace("unexpanded", "all")})


@pytest.mark.parametrize("mutant", [LooksAtFrontierLayersAlone, LooksBelowToo, LetsExpandedNodesIn])
def test_the_reselection_check_fails_on_a_mutant(grafting, mutant):
    with pytest.raises(AssertionError):
        check_reselection(grafting, CASES, mutant)


@pytest.mark.parametrize(("first", "second"), [("e", "d"), ("d", "e")])
def test_equal_scores_are_reselected_by_creation_order_and_not_by_token(grafting, first, second):
    draft = grafting({"": {"d": 0.3, "e": 0.3, "f": 0.4}, "else": {"a": 0.9}}, width=1, look_back=0)
    draft.plant(first, second)

    assert draft.step(first, second) == [first + "a"]


def test_what_was_rescored_is_the_middle_drafter_s_word_and_what_look_up_adds_later_is_not(grafting):
    draft = planted(grafting, reselect="off")
    draft.step("bab")
    assert {draft.node(name) for name in SCORES} <= draft.tree.scored_by_middle
    assert draft.tree.add(draft.node("a"), ord("z")) not in draft.tree.scored_by_middle
