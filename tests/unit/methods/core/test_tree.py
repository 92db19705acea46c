import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from methods.core.tree import UNSCORED, DraftTree

SCORES = st.sampled_from([UNSCORED, -7.5, -2.0, -2.0, -1.0, 0.0, 3.0])  # no order along a path, many ties


@st.composite
def trees(draw, most=14):
    """Any tree of up to `most` nodes beside the root, with scores that need not fall along a path."""
    tree = DraftTree(draw(st.integers(0, 3)))
    for _ in range(draw(st.integers(0, most))):
        tree.add(draw(st.integers(0, len(tree) - 1)), draw(st.integers(0, 3)), draw(SCORES))
    return tree


def rows(tree, nodes=None):
    """What each node is, without its id: the tokens that lead to it, its score and origin."""
    nodes = range(len(tree)) if nodes is None else nodes
    return [
        (tuple(tree.tokens[step] for step in tree.path(node)), tree.scores[node], tree.origins[node]) for node in nodes
    ]


def kept_by_the_algorithm(tree, budget, max_depth):
    """Algorithm 3 word by word: by (score, depth, id), each with its missing ancestors if the whole chain fits."""
    order = [node for node in range(1, len(tree)) if max_depth is None or tree.depths[node] <= max_depth]
    order.sort(key=lambda node: (-tree.scores[node], tree.depths[node], node))
    kept = set()
    for node in order:
        chain = {step for step in tree.path(node) if step and step not in kept}
        if len(kept | chain) <= budget:
            kept |= chain
    return [0, *sorted(kept)]


def check_prune(prune, tree, budget, max_depth=None):
    pruned = prune(tree, budget, max_depth)
    assert rows(pruned) == rows(tree, kept_by_the_algorithm(tree, budget, max_depth))
    eligible = [node for node in range(1, len(tree)) if max_depth is None or tree.depths[node] <= max_depth]
    assert len(pruned) - 1 == min(budget, len(eligible))


@given(trees(), st.integers(1, 16), st.none() | st.integers(0, 5))
def test_prune_keeps_the_best_nodes_with_all_their_ancestors_in_creation_order(tree, budget, max_depth):
    before = rows(tree)

    check_prune(DraftTree.prune, tree, budget, max_depth)

    assert rows(tree) == before


@pytest.mark.slow
@settings(max_examples=5000)
@given(trees(most=40), st.integers(1, 45), st.none() | st.integers(0, 9))
def test_prune_keeps_the_same_of_larger_trees(tree, budget, max_depth):
    check_prune(DraftTree.prune, tree, budget, max_depth)


def chosen(order):
    """A prune that keeps the first `budget` nodes of an order, and nothing else."""

    def prune(tree, budget, max_depth):
        kept = {0, *sorted(range(1, len(tree)), key=order(tree))[:budget]}
        smaller, renumbered = DraftTree(tree.tokens[0]), {0: 0}
        for node in sorted(kept - {0}):
            parent = renumbered.get(tree.parents[node], 0)  # an orphan hangs on the root
            renumbered[node] = smaller.add(parent, tree.tokens[node], tree.scores[node])
        return smaller

    return prune


WITHOUT_CLOSURE = chosen(lambda tree: lambda node: (-tree.scores[node], tree.depths[node], node))
TIES_BY_LATEST = chosen(lambda tree: lambda node: (-tree.scores[node], tree.depths[node], -node))
TIES_BY_DEEPEST = chosen(lambda tree: lambda node: (-tree.scores[node], -tree.depths[node], node))


def child_better_than_parent():
    tree = DraftTree(0)
    poor = tree.add(0, 1, -9.0)
    tree.add(poor, 2, -1.0)
    tree.add(0, 3, -2.0)
    tree.add(0, 4, -3.0)
    return tree


def tied_siblings():
    tree = DraftTree(0)
    for token in (1, 2, 3):
        tree.add(0, token, -1.0)
    return tree


def tied_chain_and_sibling():
    tree = DraftTree(0)
    tree.add(tree.add(0, 1, -1.0), 2, -1.0)
    tree.add(0, 3, -1.0)
    return tree


@pytest.mark.parametrize(
    ("mutant", "tree"),
    [
        pytest.param(WITHOUT_CLOSURE, child_better_than_parent(), id="a child is kept while its parent is dropped"),
        pytest.param(TIES_BY_LATEST, tied_siblings(), id="ties go to the latest node"),
        pytest.param(TIES_BY_DEEPEST, tied_chain_and_sibling(), id="ties go to the deepest node"),
    ],
)
def test_the_prune_check_fails_on_a_mutant(mutant, tree):
    check_prune(DraftTree.prune, tree, 2)

    with pytest.raises(AssertionError):
        check_prune(mutant, tree, 2)


def test_a_chain_that_does_not_fit_is_passed_over_for_a_shorter_one():
    tree = child_better_than_parent()

    assert rows(tree.prune(1)) == rows(tree, [0, 3])
    assert rows(tree.prune(2)) == rows(tree, [0, 1, 2])


def test_unscored_nodes_go_last_and_by_depth():
    tree = DraftTree(0)
    deep = tree.insert_path(0, [1, 2, 3], cap=9)
    tree.add(0, 4, -100.0)
    tree.add(0, 5)
    tree.scores[deep] = -1.0

    assert rows(tree.prune(3)) == rows(tree, [0, 1, 4, 5])


def test_a_tree_within_budget_and_depth_is_left_alone():
    tree = tied_siblings()

    assert tree.prune(3) is tree
    assert len(tree.prune(3, max_depth=0)) == 1


@given(trees())
def test_ids_are_creation_order_parents_come_first_and_siblings_differ(tree):
    assert tree.parents[0] == -1
    assert tree.depths[0] == 0
    assert all(0 <= parent < node for node, parent in enumerate(tree.parents) if node)
    assert all(tree.depths[node] == tree.depths[tree.parents[node]] + 1 for node in range(1, len(tree)))
    assert len({tokens for tokens, _, _ in rows(tree)}) == len(tree)
    children = [{tree.tokens[node]: node for node in range(1, len(tree)) if tree.parents[node] == parent}
                for parent in range(len(tree))]  # fmt: skip
    assert tree.children == children


def test_adding_an_existing_child_returns_it_unchanged():
    tree = DraftTree(7)
    node = tree.add(0, 1, -0.5, "middle")
    below = tree.add(node, 2)

    assert tree.add(0, 1, -0.1, "small") == node
    assert tree.scores[node] == -0.5
    assert tree.origins == ["root", "middle", "small"]
    assert tree.children[node] == {2: below}
    assert tree.scores[below] == UNSCORED


@given(trees(most=6), st.data(), st.integers(1, 12))
def test_inserted_paths_share_nodes_and_stop_at_the_cap(tree, data, cap):
    for tokens in data.draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=5)):
        start = data.draw(st.integers(0, len(tree) - 1))
        before = rows(tree)
        lead = before[start][0]
        wanted = [(*lead, *tokens[: size + 1]) for size in range(len(tokens))]
        known = {path for path, _, _ in before}
        missing = [path for path in wanted if path not in known][: max(0, cap - len(tree))]

        first = tree.insert_path(start, tokens, cap)

        after = rows(tree)
        assert after[: len(before)] == before
        assert after[len(before) :] == [(path, UNSCORED, "small") for path in missing]
        assert (None if first is None else after[first][0]) == (wanted[0] if wanted[0] in known or missing else None)


@given(trees())
def test_a_node_sees_its_ancestors_and_itself(tree):
    visible = tree.visibility()

    assert visible.dtype == np.bool_
    assert visible.shape == (len(tree), len(tree))
    for node in range(len(tree)):
        path = tree.path(node)
        assert path[0] == 0
        assert path[-1] == node
        assert all(tree.parents[child] == parent for parent, child in itertools.pairwise(path))
        assert np.flatnonzero(visible[node]).tolist() == sorted(path)
