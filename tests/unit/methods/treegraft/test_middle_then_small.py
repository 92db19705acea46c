"""Steps of both drafters in one round, worked by hand, and where a round's drafting ends."""

import math

import pytest

from methods.core.stopwatch import Stopwatch
from methods.core.tree import DraftTree
from methods.drafters.ngram import NgramDrafter
from methods.method import Models
from methods.settings import Settings

pytestmark = pytest.mark.torch


class Drafted:
    """The drafting of one round below a context's last letter, by stand-ins for target and middle."""

    def __init__(self, table_model, table, context, schedule, remaining=99, positions=999, **settings):
        from methods.treegraft.method import TreeGraft

        middle = table_model(table, len(context))
        middle.max_positions = positions
        given = {"steps": len(schedule), "width": 2, "longest_match": 2, "scheduler": "fixed", "look_back": 0}
        method = TreeGraft(
            Models(table_model({}, 0), None, middle=middle),
            Settings(**{**given, "schedule": schedule, **settings}),
        )
        tokens = [ord(letter) for letter in context]
        method.begin(tokens, 99)
        self.forwards = []
        self.tree = method.draft(tokens, remaining, Stopwatch(), self.forwards)
        self.schedule = method.schedule()

    @property
    def nodes(self):
        paths = (self.tree.path(node)[1:] for node in range(1, len(self.tree)))
        return ["".join(chr(self.tree.tokens[step]) for step in path) for path in paths]

    @property
    def probabilities(self):
        return dict(zip(self.nodes, map(math.exp, self.tree.scores[1:]), strict=True))

    @property
    def work(self):
        """Role, step and tokens of each forward."""
        return [(forward.role, forward.step, forward.tokens) for forward in self.forwards]


@pytest.fixture
def drafted(table_model):
    return lambda *arguments, **settings: Drafted(table_model, *arguments, **settings)


CONTEXT = "abcabdabr"
TABLE = {
    "": {"a": 0.6, "b": 0.3},
    "a": {"c": 0.7, "b": 0.1},
    "b": {"d": 0.5, "r": 0.05},
    "ab": {"x": 0.4, "y": 0.3},
    "bd": {"x": 0.8, "y": 0.1},
    "else": {"x": 0.6, "y": 0.2},
}


def test_a_middle_a_small_and_a_middle_step_worked_by_hand(drafted):
    # Step 1: the root gets a .6 and b .3.
    # Step 2, one token each: "a" is always followed by b, estimated at 1/1 of .12: "ab" .072. "b" was last followed
    # by r and d, at 1/2 of .12: "br" and "bd" .018. All matched one token; the two first of "ab", "br", "bd" go on.
    two = drafted(TABLE, CONTEXT, [1, 0])
    assert two.nodes == ["a", "b", "ab", "br", "bd"]
    expected = {"a": 0.6, "b": 0.3, "ab": 0.072, "br": 0.018, "bd": 0.018}
    assert two.probabilities == pytest.approx(expected)
    assert two.work == [("middle", 1, 1), ("small", 2, 2)]

    # Step 3 rescores "ab" .06, "br" .015, "bd" .15: of depth 2 "bd" and "ab" are drafted from, though "bd" was cut.
    # Evaluated: a and b, which have children, and all of depth 2, whose parents' lines were not known.
    three = drafted(TABLE, CONTEXT, [1, 0, 1])
    assert three.nodes == ["a", "b", "ab", "br", "bd", "bdx", "bdy", "abx", "aby"]
    assert three.probabilities == pytest.approx(
        {"a": 0.6, "b": 0.3, "ab": 0.06, "br": 0.015, "bd": 0.15, "bdx": 0.12, "bdy": 0.015, "abx": 0.024, "aby": 0.018}
    )
    assert three.work == [("middle", 1, 1), ("small", 2, 2), ("middle", 3, 5)]
    assert three.schedule == [1, 0, 1]

    # The four best; and the four best that two more tokens can still reach.
    assert drafted(TABLE, CONTEXT, [1, 0, 1], budget=4).nodes == ["a", "b", "bd", "bdx"]
    shallow = drafted(TABLE, CONTEXT, [1, 0, 1], budget=4, remaining=3)
    assert shallow.nodes == ["a", "b", "ab", "bd"]
    assert [shallow.tree.source(node) for node in range(5)] == [0, 1, 2, 3, 5]


def test_exhausted_nodes_children_leave_the_frontier_under_release_and_stay_under_continue(drafted):
    # After step 2, "a" had one continuation of two: under `release` step 3 drafts from "br" and "bd". "bd" was once
    # followed by a. Under `continue` it drafts from "ab" and "br", and "ab" was last followed by r and d.
    assert drafted(TABLE, CONTEXT, [1, 0, 0], exhaustion="release").nodes[5:] == ["bda"]
    assert drafted(TABLE, CONTEXT, [1, 0, 0], exhaustion="continue").nodes[5:] == ["abr", "abd"]


@pytest.mark.parametrize("expanded", [False, True])
def test_a_node_that_the_middle_expanded_is_never_exhausted(drafting, expanded):
    draft = drafting("abr", longest=2, width=3, exhaustion="release")
    child = draft.tree.add(0, ord("a"), -0.5, "middle")
    if expanded:
        draft.tree.expanded.add(0)

    assert draft.step() == (["a"] if expanded else [])
    assert draft.tree.children[0] == {ord("a"): child}


def raised(raise_scores, kind=NgramDrafter):
    """Below r, a has .25 and b .75 from the middle; x has nothing. The small drafter puts all three at .5."""
    drafter = kind(1, 3, "continue", lambda *_: math.log(0.5), raise_scores=raise_scores)
    drafter.begin([ord(letter) for letter in "raqrbqrxqr"])
    tree = DraftTree(ord("r"))
    tree.add(0, ord("a"), math.log(0.25), "middle")
    tree.add(0, ord("b"), math.log(0.75), "middle")
    drafter.extend(tree, [0], 1, 99)
    return {chr(token): round(math.exp(score), 9) for token, score in zip(tree.tokens, tree.scores, strict=True)}


def test_a_small_step_estimates_only_what_is_unscored_or_takes_the_better_score():
    assert raised(False) == {"r": 1, "a": 0.25, "b": 0.75, "x": 0.5}
    assert raised(True) == {"r": 1, "a": 0.5, "b": 0.75, "x": 0.5}


def test_a_middle_step_puts_its_own_scores_back_where_a_small_one_raised_them(grafting):
    draft = grafting({"": {"b": 0.7, "a": 0.2}}, context="rarar", reselect="off")
    small = NgramDrafter(1, 2, "continue", lambda *_: math.log(0.5), raise_scores=True)
    small.begin([ord(letter) for letter in "rarar"])
    seen = []

    for take in (draft.middle, small, draft.middle):
        take.extend(draft.tree, [0], 2, 99)
        seen.append(draft.probabilities)

    assert seen == [pytest.approx({"b": 0.7, "a": probability}) for probability in (0.2, 0.5, 0.2)]


@pytest.mark.parametrize(
    ("exhaustion", "reselect", "schedule", "taken", "nodes"),
    [
        # Nothing is found at step 1. `release` guesses the latest of the most frequent tokens and is done.
        ("release", "all", [0, 1, 1], [0], ["r"]),
        ("continue", "unexpanded", [0, 1, 1], [0, 1, 1], ["x", "y", "xx", "xy", "yx", "yy"]),
        ("continue", "off", [0, 1, 1], [0, 1, 1], []),
        # Nothing is found at step 2: no guess there.
        ("release", "all", [1, 0, 1], [1, 0], ["x", "y"]),
        ("continue", "unexpanded", [1, 0, 1], [1, 0, 1], ["x", "y", "xx", "xy", "yx", "yy"]),
        ("continue", "off", [1, 0, 1], [1, 0, 1], ["x", "y"]),
        ("release", "all", [1, 1, 0], [1, 1, 0], ["x", "y", "xx", "xy"]),  # the root won a place again
    ],
)
def test_where_a_draft_ends_when_its_frontier_is_empty(drafted, exhaustion, reselect, schedule, taken, nodes):
    draft = drafted(
        {"else": {"x": 0.6, "y": 0.3}}, "abcdr", schedule, exhaustion=exhaustion, reselect=reselect, look_back=5
    )

    assert draft.nodes == nodes
    assert draft.schedule == taken


def test_a_step_without_a_forward_records_none(drafted):
    steps = drafted({"else": {"x": 0.6, "y": 0.3}}, "abcdr", [1, 0, 1], reselect="off").work

    assert steps == [("middle", 1, 1), ("small", 2, 2)]  # step 3 has no frontier, and knows all it would rescore


@pytest.mark.parametrize(
    ("exhaustion", "taken"), [("release", [0]), ("continue", [0, 1, 0])], ids=["release", "continue"]
)
def test_at_the_cap_a_draft_ends_under_release_and_adds_nothing_under_continue(drafted, exhaustion, taken):
    settings = {"width": 1, "budget": 1, "longest_match": 5, "exhaustion": exhaustion}

    draft = drafted({"else": {"x": 0.9}}, "abcdefga", [0, 1, 0], **settings)  # five nodes at most

    assert draft.schedule == taken
    assert draft.nodes == ["b"]  # of b to bcde, which one step found
    assert draft.probabilities["b"] == pytest.approx(0.12 if exhaustion == "release" else 1e-30)


def test_without_a_middle_a_draft_ends_where_its_frontier_does(drafted):
    assert drafted({}, "abcdr", [0, 0, 0], scheduler="never").schedule == [0]
    assert drafted({}, "rar", [0, 0, 0], scheduler="never").schedule == [0, 0, 0]


@pytest.mark.parametrize(
    ("positions", "taken"), [(10, [0, 1, 1, 1, 1]), (9, [0, 1, 1, 1]), (8, [0, 1, 1]), (7, [0]), (5, [0])]
)
def test_a_draft_ends_where_the_middle_has_no_position_for_the_deepest_node(drafted, positions, taken):
    """The context has six tokens; the small step reaches two deeper, and middle steps from the second on one each."""
    table = {"else": {"x": 0.6, "y": 0.3}, "": {"a": 0.9, "b": 0.01}, "a": {"x": 0.6, "b": 0.35}}

    draft = drafted(table, "rabcdr", [0, 1, 1, 1, 1], positions=positions, budget=99)

    assert draft.schedule == taken
    assert draft.nodes[:2] == ["a", "ab"]
    assert max(draft.tree.depths) == 1 + max(1, len(taken) - 1)
