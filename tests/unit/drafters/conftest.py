"""Trees over letters: a context is a string, a node is the string that leads to it from the root."""

import pytest

from methods.core.tree import UNSCORED, DraftTree
from methods.drafters.ngram import NgramDrafter


class Drafting:
    """One draft over a context of letters."""

    def __init__(self, context, longest, width, exhaustion="continue", cap=99, estimate=None):
        self.drafter = NgramDrafter(longest, width, exhaustion, estimate or (lambda position, *_: -float(position)))
        self.drafter.begin([ord(letter) for letter in context])
        self.tree = DraftTree(ord(context[-1]))
        self.cap = cap
        self.frontier = [0]
        self.taken = 0

    def step(self, times=1):
        """Take small steps; return the frontier."""
        for _ in range(times):
            self.taken += 1
            self.frontier = self.drafter.extend(self.tree, self.frontier, self.taken, self.cap)
        return [self.name(node) for node in self.frontier]

    def name(self, node):
        return "".join(chr(self.tree.tokens[step]) for step in self.tree.path(node)[1:])

    @property
    def nodes(self):
        """Names in creation order."""
        return [self.name(node) for node in range(1, len(self.tree))]

    @property
    def scores(self):
        """Scores by name, where there are any."""
        scores = {self.name(node): self.tree.scores[node] for node in range(1, len(self.tree))}
        return {name: score for name, score in scores.items() if score != UNSCORED}


@pytest.fixture
def drafting():
    return Drafting
