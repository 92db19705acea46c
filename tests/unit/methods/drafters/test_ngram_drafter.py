import math

import pytest

from methods.core.tree import DraftTree
from methods.drafters.ngram import NgramDrafter, counts_estimate

# Positions:  0123456789abc   The root is the last b; matches of at most 3, width 2. A continuation's estimate is
CONTEXT = "abcxabdyabcab"  # minus its position, so that a score tells which occurrences it was made of.


def test_a_draft_worked_by_hand_under_release(drafting):
    draft = drafting(CONTEXT, longest=3, width=2, exhaustion="release")

    # Step 1, room 3. "cab" recurs at the end only. "ab" is followed by cab (position 10), dya (6) and cxa (2), of
    # which the two most recent count. Two first tokens cover the width, so the search ends before n = 1.
    assert draft.step() == ["d", "c"]  # both matched 2; -6 before -10
    assert draft.nodes == ["c", "ca", "cab", "d", "dy", "dya"]
    assert draft.scores == {"c": -10, "d": -6}

    # Step 2, room 2. "abd" is followed by ya: one first token, so d is exhausted and its child leaves. "abc" is
    # followed by ab (11) and xa (3): "ca" and "cab" are shared, "cx" and "cxa" are new.
    assert draft.step() == ["cx", "ca"]  # both matched 3; -10-3 before -10-11
    assert draft.nodes == ["c", "ca", "cab", "d", "dy", "dya", "cx", "cxa"]
    assert draft.scores == {"c": -10, "d": -6, "ca": -21, "cx": -13, "dy": -13}

    # Step 3, room 1. "bcx" is followed by a alone, "bca" and, at n = 1, the two latest "a" by b: all exhausted.
    assert draft.step() == []
    assert draft.scores == {"c": -10, "d": -6, "ca": -21, "cx": -13, "dy": -13, "cxa": -17, "cab": -33}


def test_the_same_draft_goes_on_from_exhausted_nodes_under_continue(drafting):
    draft = drafting(CONTEXT, longest=3, width=2, exhaustion="continue")

    assert draft.step() == ["d", "c"]
    assert draft.step() == ["dy", "cx"]  # all three matched 3: -13 twice, the older node first, and -21 is cut
    assert draft.step() == ["cxa", "dya"]  # -13-4 before -13-8
    assert draft.scores == {"c": -10, "d": -6, "ca": -21, "cx": -13, "dy": -13, "cxa": -17, "dya": -21}
    # Step 4, room 1. "cxa" is followed by b (5), "dya" by b (9): two new nodes, ten in all.
    assert draft.step() == ["cxab", "dyab"]
    assert len(draft.nodes) == 10


def test_a_longer_match_goes_before_a_more_recent_and_a_better_one(drafting):
    draft = drafting("abcdezbfghab", 3, 2, estimate=lambda position, match, count, total: -10.0 * match)

    assert draft.step() == ["c", "f"]  # "ab" is followed by c, only "b" by f; their scores are -20 and -10
    assert draft.nodes == ["c", "cd", "cde", "f", "fg", "fgh"]


def test_a_child_found_twice_counts_at_its_longest_match(drafting):
    draft = drafting("xabpyabqzacrxa", 2, 5, estimate=lambda position, match, count, total: -10.0 * match)

    assert draft.step() == ["b", "c"]  # "xa" is followed by bp, only "a" by cr and bq
    assert draft.nodes == ["b", "bp", "c", "cr", "bq"]


def test_the_first_frontier_is_whole_and_later_ones_are_cut_to_the_width(drafting):
    draft = drafting("abacada", longest=1, width=3)
    draft.tree.add(0, ord("z"), -0.5, "middle")

    assert draft.step() == ["b", "c", "d", "z"]  # z was not matched in this step
    draft.tree.add(draft.frontier[0], ord("z"), -0.5, "middle")
    assert draft.step() == ["ba", "ca", "da"]


def test_existing_children_count_as_covered_and_keep_their_score(drafting):
    draft = drafting("abqqqaba", longest=2, width=2, exhaustion="release")
    draft.tree.add(0, ord("b"), -0.25, "middle")
    draft.tree.add(0, ord("z"), -0.5, "middle")

    # "ba" recurs at the end only, and two children cover the width already: n = 1 is not looked up.
    assert draft.step() == ["b", "z"]
    assert draft.nodes == ["b", "z"]

    draft = drafting("abqqqaba", longest=2, width=3, exhaustion="continue")
    draft.tree.add(0, ord("b"), -0.25, "middle")
    assert draft.step() == ["b"]
    assert draft.scores["b"] == -0.25


def test_a_child_of_an_unscored_node_stays_unscored(drafting):
    draft = drafting("xyzxyzx", longest=2, width=1)
    hidden = draft.tree.add(0, ord("y"))

    draft.frontier = [hidden]
    draft.step()

    assert draft.scores == {}


def test_drafting_stops_adding_at_the_cap(drafting):
    draft = drafting(CONTEXT, 3, 2, cap=5)

    assert draft.step() == ["d", "c"]
    assert draft.nodes == ["c", "ca", "cab", "d"]
    draft.step(3)
    assert len(draft.tree) == 5


@pytest.mark.parametrize(
    ("context", "guess"),
    [("cabcdb", "b"), ("abba", "a"), ("abab", "b"), ("q", "q")],
    ids=["more frequent than c", "tied, most recent", "tied, most recent again", "a single token"],
)
def test_a_draft_that_finds_nothing_guesses_the_most_frequent_token_under_release(drafting, context, guess):
    draft = drafting(context, longest=5, width=2, exhaustion="release")

    assert draft.step() == []
    assert draft.nodes == [guess]
    assert draft.tree.origins == ["root", "small"]


@pytest.mark.parametrize("longest", [3, 5])
@pytest.mark.parametrize("context", ["a", "aa", "ab"])
def test_a_prompt_shorter_than_the_longest_match_drafts_nothing_under_continue(drafting, context, longest):
    draft = drafting(context, longest, width=2)

    assert draft.step() == []
    assert draft.nodes == []


def test_two_continuations_are_both_drafted_most_recent_first(drafting):
    draft = drafting("abcabdab", longest=1, width=5)

    draft.step()

    assert draft.nodes == ["d", "c"]


def test_counts_become_a_share_discounted_by_a_short_match():
    assert counts_estimate(9, 2, 3, 4) == pytest.approx(math.log(3 / 4 * 0.12 * 2))
    assert counts_estimate(9, 5, 1, 1) == pytest.approx(math.log(0.12 * 5))


class Leaky(NgramDrafter):
    """The mutant: a new prompt is indexed behind the last one."""

    def begin(self, context):
        self.advance(context)


def check_forgets(kind):
    def draft(drafter, context):
        drafter.begin(context)
        tree = DraftTree(context[-1])
        drafter.extend(tree, [0], 1, 99)
        return tree.tokens, tree.parents, tree.scores

    first, second = [1, 2, 3, 4, 1, 2, 9, 9, 1, 2], [5, 1, 2, 7, 7, 1, 2]
    one, other = kind(2, 3, "continue", counts_estimate), kind(2, 3, "continue", counts_estimate)
    assert [draft(one, first), draft(one, second)] == [draft(other, second), draft(other, first)][::-1]


def test_nothing_is_carried_over_from_one_prompt_to_the_next():
    check_forgets(NgramDrafter)

    with pytest.raises(AssertionError):
        check_forgets(Leaky)


def test_an_advanced_drafter_equals_one_begun_with_the_whole_context():
    whole, grown = (NgramDrafter(3, 3, "continue", counts_estimate) for _ in range(2))
    context = [ord(letter) for letter in CONTEXT]
    whole.begin(context)
    grown.begin(context[:4])
    grown.advance(context[4:9])
    grown.advance(context[9:])
    trees = []
    for drafter in (whole, grown):
        tree = DraftTree(context[-1])
        frontier, _ = drafter.extend(tree, [0], 1, 99)
        drafter.extend(tree, frontier, 2, 99)
        trees.append((tree.tokens, tree.parents, tree.scores))

    assert trees[0] == trees[1]
