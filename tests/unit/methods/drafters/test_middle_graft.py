"""Grafting worked by hand: whom it adds, whom it keeps, where it stops, and what the next step drafts from."""

import pytest

from methods.drafters.middle import MiddleDrafter

pytestmark = pytest.mark.torch

# Root expanded; a .5, b .3, c .1 are the frontier. By hand, best first:
#   ab .25, aa .15, ac .05      ba .18, bb .06, bc .03      ca .08, cb .01, cc .005
TABLE = {
    "": {"a": 0.5, "b": 0.3, "c": 0.1},
    "a": {"b": 0.5, "a": 0.3, "c": 0.1},
    "b": {"a": 0.6, "b": 0.2, "c": 0.1},
    "c": {"a": 0.8, "b": 0.1, "c": 0.05},
}


def three(grafting, kind=MiddleDrafter, **options):
    draft = grafting(TABLE, kind=kind, width=3, **options).plant("a", "b", "c")
    draft.tree.expanded.add(0)
    return draft


def check_frontier(grafting, kind=MiddleDrafter):
    """Twelve nodes: from step 2 on the three best of nine are drafted from, in step 1 all are."""
    draft = three(grafting, kind)
    assert draft.step("a", "b", "c", step=2) == ["ab", "ba", "aa"]
    assert draft.nodes == ["a", "b", "c", "ab", "aa", "ac", "ba", "bb", "bc", "ca", "cb", "cc"]
    assert draft.probabilities["bb"] == pytest.approx(0.06)
    assert three(grafting, kind).step("a", "b", "c", step=1) == [
        "ab", "ba", "aa", "ca", "bb", "ac", "bc", "cb", "cc",
    ]  # fmt: skip


def test_the_next_frontier_is_the_grafted_children_best_first_cut_to_the_width_from_step_2_on(grafting):
    check_frontier(grafting)


class CutsTheFirstToo(MiddleDrafter):
    def extend(self, tree, frontier, step, cap):
        return super().extend(tree, frontier, 2, cap)


class NeverCuts(MiddleDrafter):
    def extend(self, tree, frontier, step, cap):
        return super().extend(tree, frontier, 1, cap)


class InOrderOfCreation(MiddleDrafter):
    def extend(self, tree, frontier, step, cap):
        nodes, evaluated = super().extend(tree, frontier, 1, cap)
        return sorted(nodes)[: len(nodes) if step == 1 else self._width], evaluated


@pytest.mark.parametrize("mutant", [CutsTheFirstToo, NeverCuts, InOrderOfCreation])
def test_the_frontier_check_fails_on_a_mutant(grafting, mutant):
    with pytest.raises(AssertionError):
        check_frontier(grafting, mutant)


def test_equal_children_are_grafted_by_token_and_drafted_from_by_creation_order(grafting):
    draft = grafting({"": {"d": 0.25, "c": 0.25, "b": 0.25, "a": 0.1}}, width=2).plant("c")

    assert draft.step("", step=1) == ["c", "b"]  # b and c are the two lowest of three that tie; c was there first

    assert draft.nodes == ["c", "b"]


def test_an_existing_child_keeps_its_place_origin_and_subtree(grafting):
    draft = grafting(TABLE, width=2).plant("c", "ca", "cab", "a", "ab", "aba")
    before, origins = draft.nodes, [*draft.tree.origins]

    draft.step("a", "c", step=2)

    # Chosen: the root and a. Of the root's a and b, a is there; of a's b and a, "ab" is there.
    assert draft.nodes == [*before, "b", "aa"]
    assert draft.tree.origins == [*origins, "middle", "middle"]
    assert draft.tree.expanded == {0, draft.node("a")}
    assert draft.name(draft.node("aba")) == "aba"


@pytest.mark.parametrize(
    ("cap", "added", "frontier"),
    [
        (7, ["ab", "aa"], ["ab", "aa", "ac"]),  # "ac" .05 was there
        (6, ["ab"], ["ab", "ac"]),
        (5, [], ["ac"]),
        (1, [], ["ac"]),
    ],
)
def test_at_the_cap_nothing_is_added_and_what_is_there_still_counts(grafting, cap, added, frontier):
    draft = three(grafting, cap=cap).plant("ac")

    assert draft.step("a", "b", step=2) == frontier
    assert draft.nodes == ["a", "b", "c", "ac", *added]


# The root is drafted from for the first time, below a frontier that a small step left:
#   x .1, y .05 and, deeper, xa .09, xab .045, ya .04. The three best are the root, x and xa.
BELOW = {
    "": {"a": 0.5, "b": 0.2, "c": 0.12, "x": 0.1, "y": 0.05},
    "x": {"a": 0.9, "b": 0.05, "c": 0.02},
    "xa": {"b": 0.5, "c": 0.3, "d": 0.1},
    "y": {"a": 0.8},
}
PLANTED = ["x", "xa", "xab", "y", "ya"]


def destroyed(grafting, kind=MiddleDrafter, **options):
    draft = grafting(BELOW, kind=kind, width=3, non_destructive=False, **options).plant(*PLANTED)
    frontier = draft.step("x", "xa", step=2)
    assert all(draft.tree.is_held(draft.tree.parents[node]) for node in draft.tree.alive() if node)
    assert len(draft.nodes) == draft.tree.held - 1
    return draft, frontier


def check_deletion(grafting, kind=MiddleDrafter):
    """The root's three best are a, b and c: x and y go with all below them, what was just grafted there included."""
    draft, frontier = destroyed(grafting, kind)
    assert draft.nodes == ["a", "b", "c"]
    assert frontier == ["a", "b", "c"]
    assert len(draft.tree) == 1 + len(PLANTED) + 3 + 2 + 2  # three below the root; xb, xc; xac, xad


def test_without_nd_what_the_middle_did_not_propose_is_deleted_with_its_subtree(grafting):
    check_deletion(grafting)


def test_with_nd_the_same_step_deletes_nothing(grafting):
    draft = grafting(BELOW, width=3).plant(*PLANTED)

    assert draft.step("x", "xa", step=2) == ["a", "b", "c"]
    assert draft.nodes == [*PLANTED, "a", "b", "c", "xb", "xc", "xac", "xad"]


class DeletesAsItGoes(MiddleDrafter):
    """Deletes below one frontier node before it grafts onto the next, which may just have gone."""

    def _graft(self, tree, frontier, cap):
        return [child for node in frontier for child in super(DeletesAsItGoes, self)._graft(tree, [node], cap)]


class LeavesSubtrees(MiddleDrafter):
    """Deletes nodes, and not what is below them."""

    def _graft(self, tree, frontier, cap):
        kept = tree.children
        grafted = super()._graft(tree, frontier, cap)
        tree._removed = {node for node in tree._removed if tree.is_held(tree.parents[node])}
        tree.children = kept
        return grafted


@pytest.mark.parametrize("mutant", [DeletesAsItGoes, LeavesSubtrees])
def test_the_deletion_check_fails_on_a_mutant(grafting, mutant):
    with pytest.raises(AssertionError):
        check_deletion(grafting, mutant)


def test_without_nd_only_children_of_the_frontier_are_deleted(grafting):
    draft = grafting(TABLE, width=2, reselect="off", non_destructive=False)
    draft.plant("a", "ac", "aca", "b", "bc", "bca", "c")

    # a's two best are b and a: "ac" goes, with "aca". Nobody asked about "bc" or about the root's c.
    assert draft.step("a", step=2) == ["ab", "aa"]
    assert draft.nodes == ["a", "b", "bc", "bca", "c", "ab", "aa"]


def test_deleted_nodes_make_room_below_the_cap(grafting):
    draft = grafting(TABLE, width=2, reselect="off", non_destructive=False, cap=6).plant("a", "ac", "aca", "b")

    assert draft.step("a", step=2) == ["ab"]  # six nodes with it; only then "ac" and "aca" go
    assert draft.step("b", step=3) == ["ba", "bb"]
    assert draft.nodes == ["a", "b", "ab", "ba", "bb"]


def test_a_deleted_token_can_be_added_again_as_another_node(grafting):
    draft = grafting(TABLE, width=2, reselect="off", non_destructive=False).plant("a", "ac")
    first = draft.node("ac")
    draft.step("a", step=2)

    draft.plant("ac")
    draft.step("ab", step=3)

    assert draft.node("ac") != first
    assert draft.probabilities["ac"] == pytest.approx(0.05)
