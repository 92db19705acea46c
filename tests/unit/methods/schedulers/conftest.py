"""Draft states by hand."""

import pytest

from methods.core.tree import DraftTree
from methods.schedulers.scheduler import DraftState


@pytest.fixture
def state():
    """Build the state before a step: the root's children with their scores are the frontier."""

    def build(scores, step=2, calls=None, shares=()):
        tree = DraftTree(0)
        frontier = [tree.add(0, token, score) for token, score in enumerate(scores, start=1)]
        calls = [0] * (step - 1) if calls is None else calls
        return DraftState(tree, frontier if step > 1 else [0], step, calls, root_shares=lambda: shares)

    return build
