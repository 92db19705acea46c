"""Which nodes a middle step evaluates: just those that its tree depends on, each once a round."""

import pytest

from methods.drafters.middle import MiddleDrafter

pytestmark = pytest.mark.torch

TABLE = {
    "": {"a": 0.5, "b": 0.2, "c": 0.1},
    "a": {"b": 0.35, "a": 0.3},
    "aa": {"b": 0.5, "a": 0.1},
    "ab": {"a": 0.5, "b": 0.4},
    "b": {"a": 0.9, "b": 0.05},
    "ba": {"a": 0.6, "b": 0.2},
    "else": {"a": 0.5, "b": 0.25},
}


def test_a_round_of_three_middle_steps_evaluates_eleven_of_fourteen_nodes(grafting):
    draft = grafting(TABLE, width=2, look_back=0).plant("a", "aa", "aab", "b", "ba", "c")

    # Step 1, nothing known. With a child: root, a, aa, b. Candidates whose parent is unknown: a, b, c.
    assert draft.step("b", "c", step=1) == ["ba", "ab", "aa", "bb"]
    assert draft.model.evaluated.pop() == ["", "a", "aa", "b", "c"]
    # Chosen: a .5 and b .2.
    assert draft.nodes == ["a", "aa", "aab", "b", "ba", "c", "ab", "bb"]

    # Step 2, depth 2: ba .18, ab .175 are the two best; aa .15 and bb .01 cannot win. Nothing else has a child.
    assert draft.step("ba", "ab", "aa", "bb", step=2) == ["baa", "aba"]
    assert draft.model.evaluated.pop() == ["ba", "ab"]
    assert draft.nodes[8:] == ["baa", "bab", "aba", "abb"]

    # Step 3, after a small step that put two nodes under "abb": its parent's line is known, its own is not, so
    # "abba" is scored by evaluating "abb", and "abbab" by evaluating "abba". At depth 3, with their parents known:
    # baa .108, aba .0875, aab .075, abb .07, bab .036; at depth 4 "abba" has no known parent.
    draft.plant("abba", "abbab")
    assert draft.step("baa", "abba", step=3) == ["baaa", "abaa"]  # .054 and .04375
    assert draft.model.evaluated.pop() == ["baa", "aba", "abb", "abba"]
    assert draft.probabilities["abbab"] == pytest.approx(0.07 * 0.5 * 0.25)


def test_where_nothing_is_reselected_the_frontier_and_all_parents_are_evaluated(grafting):
    draft = grafting(TABLE, width=2, reselect="off").plant("a", "aa", "b", "c", "d")

    draft.step("b", "c")

    assert draft.model.evaluated == [["", "a", "b", "c"]]


def test_what_is_known_is_not_evaluated_again(grafting):
    draft = grafting(TABLE, width=2, reselect="off").plant("a")
    draft.step("a")

    nodes, work = draft.middle.extend(draft.tree, [draft.node("a")], 2, 99)

    assert [draft.name(node) for node in nodes] == ["ab", "aa"]
    assert work is None
    assert len(draft.model.evaluated) == 1


def test_the_cost_of_a_step_is_the_number_of_tokens_in_its_forward(grafting):
    draft = grafting(TABLE, width=2, look_back=0).plant("a", "aa", "b")

    works = [draft.middle.extend(draft.tree, [draft.node(name)], 2, 99)[1] for name in ("b", "aa")]

    assert [work.tokens for work in works] == [len(texts) for texts in draft.model.evaluated] == [3, 2]


def rounds(grafting, kind=MiddleDrafter, called=(True, True, True, True)):
    """Rounds of one middle step each, where it is called, over a text that grows; return drafts and forwards."""
    draft = grafting({"else": {"a": 0.5, "b": 0.3}}, kind=kind, width=2)
    text = "r"
    drafts = []
    for call, (accepted, bonus) in zip(called, [("a", "b"), ("", "d"), ("b", "c"), ("b", "e")], strict=True):
        draft.tree = type(draft.tree)(ord(text[-1]))
        draft.middle.begin_round([ord(letter) for letter in text])
        if call:
            draft.step("", step=1)
            drafts.append(draft.nodes)
        nodes = [0, draft.node(accepted)][: 1 + len(accepted)] if call else [0]
        draft.middle.advance([ord(letter) for letter in accepted + bonus], nodes)
        text += accepted + bonus
    return drafts, draft.model


def test_committed_tokens_that_the_drafter_has_not_seen_join_its_next_forward_as_a_chain(grafting):
    _, model = rounds(grafting)
    # The root's row is kept each round; what was accepted below it was never evaluated. The model starts at "r".
    assert model.evaluated == [[""], ["a", "ab"], ["abd"], ["abdb", "abdbc"]]
    assert bytes(model.committed).decode() == "rabdbc"

    _, model = rounds(grafting, called=(True, False, False, True))
    assert model.evaluated == [[""], ["a", "ab", "abd", "abdb", "abdbc"]]


def test_rounds_without_a_call_leave_the_drafter_where_a_fresh_one_would_be(grafting):
    every, _ = rounds(grafting)
    seldom, _ = rounds(grafting, called=(False, True, False, True))

    assert seldom == [every[1], every[3]]


class CommitsWithoutRows(MiddleDrafter):
    """Takes the accepted path for evaluated, whether it was or not."""

    def advance(self, new, accepted):
        self.model.commit(range(min(self.model.pending, self.nodes.unseen + len(accepted) - 1)))


def test_the_chain_check_fails_on_a_drafter_that_commits_one_row_too_few(grafting):
    _, model = rounds(grafting, CommitsWithoutRows)

    assert model.evaluated != [[""], ["a", "ab"], ["abd"], ["abdb", "abdbc"]]


@pytest.mark.parametrize(("length", "fits"), [(38, True), (39, True), (40, False), (41, False)])
def test_a_tree_fits_as_long_as_its_deepest_node_has_a_position(grafting, length, fits):
    draft = grafting({}, context="q" * length).plant("a")
    draft.model.max_positions = 40
    draft.middle.begin([ord("q")] * length, 99)

    assert draft.middle.fits(draft.tree, [0]) == fits
    assert draft.model.length == (length - 1 if length <= 40 else 0)
