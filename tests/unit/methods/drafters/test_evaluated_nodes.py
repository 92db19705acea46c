"""What a drafter remembers of a round: who sees whom, which rows are kept, what was most probable."""

import numpy as np
import pytest
import torch

from methods.core.tree import DraftTree
from methods.drafters.evaluated_nodes import EvaluatedNodes
from methods.drafters.vocabulary_map import TokenColumns

pytestmark = pytest.mark.torch


def tree_of(*paths):
    """A tree whose paths are inserted in this order."""
    tree = DraftTree(0)
    for path in paths:
        tree.insert_path(0, path, 99)
    return tree


def seen(visible):
    return ["".join("x" if cell else "." for cell in row) for row in visible]


def remembered(unseen, tree, *forwards, logits=None):
    """Nodes after some forwards, and what each forward's tokens see."""
    logits = torch.zeros(len(tree), 4) if logits is None else logits
    nodes, views = EvaluatedNodes(unseen, TokenColumns(logits.shape[1])), []
    for forward in forwards:
        visible = nodes.visibility(tree, forward)
        views.append(seen(visible))
        nodes.add(forward, visible, logits[list(forward)])
    return nodes, views


TREE = tree_of([1, 2, 3], [1, 4], [5])  # nodes 1 to 5: 1 and its children 2 and 4, 3 below 2, and 5


def test_a_node_sees_the_unseen_chain_its_ancestors_and_itself_over_several_forwards():
    nodes, views = remembered(2, TREE, [0, 1, 2], [4, 5], [3])

    assert views[0] == [
        "x....",  # the chain
        "xx...",
        "xxx..",  # root
        "xxxx.",  # 1
        "xxxxx",  # 2, below 1
    ]
    assert views[1] == [
        "xxxx.x.",  # 4 sees the chain, root, 1 and itself
        "xxx...x",  # 5 sees the chain, root and itself
    ]
    assert views[2] == ["xxxxx..x"]  # 3 sees the chain, root, 1, 2 and itself
    assert nodes.rows == {0: 2, 1: 3, 2: 4, 4: 5, 5: 6, 3: 7}


def test_without_unseen_tokens_the_root_sees_itself_alone():
    _, views = remembered(0, TREE, [0], [5, 1])

    assert views == [["x"], ["xx.", "x.x"]]


@pytest.mark.parametrize("unseen", [0, 3])
def test_a_visibility_in_parts_is_the_trees_own(unseen):
    order = [0, 1, 4, 2, 5, 3]
    for first in range(1, len(order)):
        _, views = remembered(unseen, TREE, order[:first], order[first:])
        whole = TREE.visibility()[np.ix_(order, order)]
        assert [row[unseen : unseen + first] for row in views[0][unseen:]] == seen(whole[:first, :first])
        assert [row[unseen:] for row in views[1]] == seen(whole[first:])
        assert all(row[:unseen] == "x" * unseen for row in views[0][unseen:] + views[1])


@pytest.mark.parametrize(
    ("accepted", "rows"),
    [
        ([0], [0, 1, 2]),
        ([0, 5], [0, 1, 2, 6]),
        ([0, 1, 2, 3], [0, 1, 2, 3, 4]),  # 3 was not evaluated
        ([0, 1, 4], [0, 1, 2, 3, 5]),
    ],
)
def test_the_chain_and_the_accepted_path_are_kept_as_far_as_it_was_evaluated(accepted, rows):
    nodes, _ = remembered(2, TREE, [0, 1, 2], [4, 5])

    assert nodes.kept_rows(accepted) == rows


def check_best(kind):
    """Rows of logits in which more than two tie for the second place, or all do."""
    rows = [[0.0, 1, 2, 1, 1, 0], [3, 3, 3, 3, 3, 3], [0, 0, 1, 5, 0, 1], [1, 2, 3, 4, 5, 6]]
    logits = torch.tensor(rows, dtype=torch.float64)
    tree = tree_of([1], [2], [3])
    nodes = kind(0, TokenColumns(6))
    for forward in ([0, 2], [1, 3]):
        nodes.add(forward, nodes.visibility(tree, forward), logits[list(forward)])
    exact = logits.log_softmax(-1)

    best = nodes.best([3, 0, 2, 1], 2)

    assert [[token for token, _ in pairs] for pairs in best] == [[5, 4], [2, 1], [3, 2], [0, 1]]
    for node, pairs in zip([3, 0, 2, 1], best, strict=True):
        assert [value for _, value in pairs] == pytest.approx([float(exact[node, token]) for token, _ in pairs])


class AnyOfTheTied(EvaluatedNodes):
    """Ties as a sort from the end leaves them; `topk` promises no order."""

    def best(self, nodes, count):
        pairs = super().best(nodes, 99)
        return [sorted(row, key=lambda pair: (pair[1], pair[0]))[::-1][:count] for row in pairs]


class RawLogits(EvaluatedNodes):
    """Forgets the sum."""

    def add(self, nodes, visible, logits):
        super().add(nodes, visible, logits)
        self._chunks[-1] = (logits, torch.zeros(len(nodes)))


def test_the_best_tokens_of_each_node_come_in_order_ties_by_token_id():
    check_best(EvaluatedNodes)


@pytest.mark.parametrize("mutant", [AnyOfTheTied, RawLogits])
def test_the_check_of_the_best_fails_on_a_mutant(mutant):
    with pytest.raises(AssertionError):
        check_best(mutant)


def test_no_more_than_the_whole_vocabulary_is_best():
    nodes, _ = remembered(0, TREE, [0])

    assert [token for token, _ in nodes.best([0], 10)[0]] == [0, 1, 2, 3]


def test_pairs_of_node_and_token_get_log_probabilities_and_unknown_tokens_the_floor():
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = logits.log_softmax(-1).tolist()
    nodes, _ = remembered(1, TREE, [0, 1], [5], [2, 4], logits=logits)

    found = nodes.log_probabilities([4, 0, 5, 5, 0, 1], [2, 4, 5, 0, 99, 3])

    known = [exact[4][2], exact[0][4], -20.0, exact[5][0], -20.0, exact[1][3]]
    assert found == pytest.approx(known, abs=1e-12)
    assert nodes.log_probabilities([0], [7]) == [-20.0]
    assert nodes.log_probabilities([], []) == []


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_summed_in_fp32(kind):
    logits = torch.randn(1, 4096, generator=torch.Generator().manual_seed(1)).to(kind)
    nodes = EvaluatedNodes(0, TokenColumns(4096))
    nodes.add([0], np.ones((1, 1), dtype=np.bool_), logits)
    exact = logits.double().log_softmax(-1)[0]

    best = nodes.best([0], 5)[0]

    assert [value for _, value in best] == pytest.approx([float(exact[token]) for token, _ in best], abs=1e-5)


def test_columns_of_a_limited_head_stand_for_its_tokens():
    logits = torch.tensor([[1.0, 3.0, 2.0]], dtype=torch.float64)
    exact = logits.log_softmax(-1)[0].tolist()
    nodes = EvaluatedNodes(0, TokenColumns(3, -6.5, ids=(4, 70, 900), places={4: 0, 70: 1, 900: 2}))
    nodes.add([0], np.ones((1, 1), dtype=np.bool_), logits)

    assert nodes.log_probabilities([0, 0, 0], [900, 5, 4]) == pytest.approx([exact[2], -6.5, exact[0]])
    assert [token for token, _ in nodes.best([0], 2)[0]] == [70, 900]
