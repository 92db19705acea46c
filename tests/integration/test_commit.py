"""A commit keeps exactly the accepted rows; what was evaluated since the last one may be built upon."""

import itertools
import random

import numpy as np
import pytest

from methods.core.model import TreeModel

pytestmark = pytest.mark.torch


def check_rounds(model, path_logits, close, random_tree, kind=TreeModel, parts=1):
    """Rounds of random trees and random accepted paths: every node's logits equal a fresh forward's, every round."""
    rng = random.Random(1)
    wrapped = kind(model)
    for prompt in ([6], [3, 9, 27, 4]):
        context = list(prompt)
        wrapped.begin(200)
        wrapped.prefill(context[:-1])
        for _ in range(4):
            tree = random_tree(rng, context[-1])
            truth, visible = path_logits(model, context, tree), tree.visibility()
            bounds = np.linspace(0, len(tree), parts + 1).astype(int)
            for start, end in itertools.pairwise(bounds):
                part = slice(start, end)
                close(wrapped.evaluate(tree.tokens[part], tree.depths[part], visible[part, :end]), truth[part])
            path = tree.path(rng.randrange(len(tree)))
            wrapped.commit(path)
            context += [*(tree.tokens[node] for node in path[1:]), rng.randrange(64)]
            assert wrapped.pending == 0
            assert wrapped.length == len(context) - 1


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_cached_logits_equal_a_fresh_forward_at_every_round(tiny, path_logits, close, random_tree, attention, parts):
    check_rounds(tiny(attention=attention), path_logits, close, random_tree, parts=parts)


class OneRowTooFew(TreeModel):
    """Drops the last accepted row with the rejected ones."""

    def commit(self, rows):
        super().commit(rows[:-1])


class FirstRows(TreeModel):
    """Keeps as many rows as were accepted, but the first ones."""

    def commit(self, rows):
        super().commit(range(len(rows)))


class KeepsRejected(TreeModel):
    """Keeps all rows up to the last accepted one."""

    def commit(self, rows):
        super().commit(range(rows[-1] + 1))


class SeesAllPending(TreeModel):
    """Later evaluations see every row of earlier ones."""

    def evaluate(self, tokens, depths, visible):
        return super().evaluate(tokens, depths, visible | (np.arange(visible.shape[1]) < self.pending))


class SeesNoPending(TreeModel):
    """Later evaluations see no row of earlier ones."""

    def evaluate(self, tokens, depths, visible):
        return super().evaluate(tokens, depths, visible & (np.arange(visible.shape[1]) >= self.pending))


@pytest.mark.parametrize(
    ("mutant", "parts"),
    [(OneRowTooFew, 1), (FirstRows, 1), (KeepsRejected, 1), (SeesAllPending, 2), (SeesNoPending, 2)],
)
def test_the_round_check_fails_on_a_mutant(llama, path_logits, close, random_tree, mutant, parts):
    with pytest.raises(AssertionError):
        check_rounds(llama, path_logits, close, random_tree, mutant, parts)


def check_rejecting_everything(model, kind, fresh, close):
    wrapped = kind(model)
    wrapped.begin(64)
    wrapped.prefill([3, 9, 27])
    for rows in ([], [0]):
        wrapped.evaluate([4, 8, 15], [0, 1, 1], np.tri(3, dtype=np.bool_))
        wrapped.commit(rows)
        context = [3, 9, 27, 4][: 3 + len(rows)]
        assert wrapped.pending == 0
        close(wrapped.evaluate([5], [0], np.ones((1, 1), dtype=np.bool_))[0], fresh(model, [*context, 5]))
        wrapped.commit([])


class CropZeroDoesNothing(TreeModel):
    """Keeping nothing is taken for having nothing to do."""

    def commit(self, rows):
        if rows:
            super().commit(rows)


def test_a_commit_of_no_rows_drops_them_all(llama, fresh, close):
    check_rejecting_everything(llama, TreeModel, fresh, close)

    with pytest.raises((AssertionError, ValueError, RuntimeError)):
        check_rejecting_everything(llama, CropZeroDoesNothing, fresh, close)


def test_rows_far_apart_move_together_in_order(llama, fresh, close):
    model = TreeModel(llama)
    model.begin(64)
    model.prefill([3, 9])
    visible = np.eye(6, dtype=np.bool_)
    visible[:, 0] = True
    visible[5, 2] = True
    model.evaluate([4, 10, 11, 12, 13, 14], [0, 1, 1, 1, 1, 2], visible)  # 14 stands under 11

    model.commit([0, 2, 5])

    close(model.evaluate([7], [0], np.ones((1, 1), dtype=np.bool_))[0], fresh(llama, [3, 9, 4, 11, 14, 7]))


def test_beginning_anew_forgets_everything_and_makes_room(llama, fresh, close):
    model = TreeModel(llama)
    one = np.ones((1, 1), dtype=np.bool_)
    for length in (5, 3, 490):
        model.begin(length + 1)
        assert (model.length, model.pending) == (0, 0)
        tokens = [(7 * place) % 64 for place in range(length)]
        model.prefill(tokens)
        close(model.evaluate([5], [0], one)[0], fresh(llama, [*tokens, 5]))
