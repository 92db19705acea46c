"""What a tree remembers of where it came from, and of what was taken out of it."""

import pytest

from methods.core.tree import UNSCORED, DraftTree


def grown(*nodes):
    """A tree of (path, score) in creation order; a path is its letters."""
    tree = DraftTree(0)
    for path, score in nodes:
        tree.add(named(tree, path[:-1]), ord(path[-1]), score)
    return tree


def named(tree, path):
    nodes = tree.follow([ord(letter) for letter in path])
    assert len(nodes) == len(path) + 1
    return nodes[-1]


def names(tree):
    return ["".join(chr(tree.tokens[step]) for step in tree.path(node)[1:]) for node in tree.alive() if node]


# Twelve nodes whose scores fall along no path: small steps estimate what the middle has not scored, and raise scores.
TWELVE = [
    ("a", -3.0), ("ab", UNSCORED), ("abc", -0.5), ("b", -1.0), ("bc", -0.9), ("bcd", -4.0),
    ("c", UNSCORED), ("cd", -0.2), ("cde", -0.3), ("d", -1.0), ("e", -2.0), ("abd", -2.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        # By score: cd, cde, abc, bc, then b and d, then e and abd, a, bcd, ab, c.
        (1, ["b"]),  # of the first ones none fits with its ancestors; of b and d the older is taken
        (2, ["c", "cd"]),
        (3, ["c", "cd", "cde"]),
        (4, ["b", "c", "cd", "cde"]),  # abc would need three places, bc two
        (5, ["b", "bc", "c", "cd", "cde"]),
        (6, ["a", "ab", "abc", "c", "cd", "cde"]),
        (7, ["a", "ab", "abc", "b", "c", "cd", "cde"]),  # bc would need two
        (8, ["a", "ab", "abc", "b", "bc", "c", "cd", "cde"]),
        (9, ["a", "ab", "abc", "b", "bc", "c", "cd", "cde", "d"]),
        (10, ["a", "ab", "abc", "b", "bc", "c", "cd", "cde", "d", "e"]),
        (11, ["a", "ab", "abc", "b", "bc", "c", "cd", "cde", "d", "e", "abd"]),
    ],
)
def test_a_prune_with_scores_that_rise_along_paths_worked_by_hand(budget, kept):
    assert names(grown(*TWELVE).prune(budget)) == kept


def check_sources(source):
    tree = grown(*TWELVE)
    for budget in range(1, 12):
        pruned = tree.prune(budget)
        for node in range(len(pruned)):
            origin = source(pruned, node)
            assert pruned.tokens[node] == tree.tokens[origin]
            assert pruned.scores[node] == tree.scores[origin]
            assert len(pruned.path(node)) == len(tree.path(origin))


def test_a_pruned_trees_nodes_know_which_nodes_they_were():
    check_sources(DraftTree.source)

    with pytest.raises(AssertionError):
        check_sources(lambda pruned, node: node)


def test_a_tree_that_was_not_cut_is_its_own_source():
    tree = grown(*TWELVE)

    assert tree.prune(12) is tree
    assert [tree.source(node) for node in range(len(tree))] == [*range(13)]
    assert [tree.prune(12, max_depth=0).source(node) for node in (0,)] == [0]


def test_a_removed_node_goes_with_its_subtree_and_the_others_keep_their_ids():
    tree = grown(*TWELVE)
    abd, e = named(tree, "abd"), named(tree, "e")

    tree.remove(named(tree, "ab"))

    assert names(tree) == ["a", "b", "bc", "bcd", "c", "cd", "cde", "d", "e"]
    assert (len(tree), tree.held) == (13, 10)
    assert tree.is_held(e)
    assert not tree.is_held(abd)
    assert tree.children[named(tree, "a")] == {}
    assert tree.follow([ord("a"), ord("b")]) == [0, named(tree, "a")]


def test_a_removed_node_is_never_kept_however_few_there_are():
    tree = grown(*TWELVE)
    tree.remove(named(tree, "c"))
    tree.remove(named(tree, "ab"))

    pruned = tree.prune(99)

    assert names(pruned) == ["a", "b", "bc", "bcd", "d", "e"]
    assert pruned.held == len(pruned) == 7
    assert [pruned.source(node) for node in range(7)] == [0, 1, 4, 5, 6, 10, 11]


def test_a_token_that_was_removed_can_come_back_as_another_node():
    tree = grown(("a", -1.0), ("ab", -2.0), ("b", -3.0))
    tree.remove(1)

    again = tree.insert_path(0, [ord("a"), ord("c")], cap=4)

    assert again == 4
    assert names(tree) == ["b", "a", "ac"]
    assert tree.insert_path(0, [ord("d")], cap=4) is None
    assert tree.held == 4
