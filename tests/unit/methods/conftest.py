"""Trees over letters: a context is a string, a node is the string that leads to it from the root."""

import itertools
import math

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
            self.frontier, _ = self.drafter.extend(self.tree, self.frontier, self.taken, self.cap)
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


class TableModel:
    """A language model over letters in a `TreeModel`'s place: probabilities by the letters behind the first `start`.

    It keeps texts instead of KV rows, so that wrong positions, visibility or commits give it another text.
    """

    vocab_size, max_positions, limited_head = 128, 999, None

    def __init__(self, table, start):
        self.table, self.start = table, start
        self.evaluated = []  # for each forward, the letters behind the first `start` of each of its texts
        self.begin(0)

    @property
    def length(self):
        return len(self.committed)

    @property
    def pending(self):
        return len(self.rows)

    def begin(self, capacity):
        self.committed, self.rows = [], []

    def prefill(self, tokens):
        self.committed += tokens

    def synchronise(self):
        pass

    def evaluate(self, tokens, depths, visible):
        import torch

        self.rows += tokens
        texts = [[*self.committed, *itertools.compress(self.rows, row)] for row in visible]
        assert [len(text) for text in texts] == [self.length + depth + 1 for depth in depths]
        self.evaluated.append(["".join(map(chr, text[self.start :])) for text in texts])
        return torch.stack([self.logits(text) for text in self.evaluated[-1]])

    def logits(self, text):
        """Log-probabilities, a constant added: what is not in the table's line goes to the letters behind z."""
        import torch

        line = self.table.get(text, self.table.get("else", {}))
        rest = (1.0 - sum(line.values())) / 5
        probabilities = [rest if token > ord("z") else 1e-30 for token in range(self.vocab_size)]
        for letter, probability in line.items():
            probabilities[ord(letter)] = probability
        return torch.tensor(probabilities, dtype=torch.float64).log() + 7.0

    def commit(self, rows):
        self.committed += [self.rows[row] for row in rows]
        self.rows = []


class Grafting:
    """Middle steps of one round, below the last letter of a context."""

    def __init__(self, table, context="r", kind=None, width=2, vocabulary=128, cap=99, **options):
        from methods.drafters.middle import MiddleDrafter

        kind = kind or MiddleDrafter
        tokens = [ord(letter) for letter in context]
        self.model = TableModel(table, len(context))
        self.middle = kind(self.model, width=width, vocabulary=vocabulary, **options)
        self.middle.begin(tokens, cap)
        self.middle.begin_round(tokens)
        self.tree = DraftTree(tokens[-1])
        self.cap = cap

    def plant(self, *names, score=UNSCORED, origin="small"):
        """Add nodes in this order."""
        for name in names:
            self.tree.add(self.node(name[:-1]), ord(name[-1]), score, origin)
        return self

    def node(self, name):
        nodes = self.tree.follow([ord(letter) for letter in name])
        assert len(nodes) == len(name) + 1, f"no node {name}"
        return nodes[-1]

    def name(self, node):
        return "".join(chr(self.tree.tokens[step]) for step in self.tree.path(node)[1:])

    def step(self, *frontier, step=2):
        """Take a middle step from nodes named; return the next frontier."""
        nodes, _ = self.middle.extend(self.tree, [self.node(name) for name in frontier], step, self.cap)
        return [self.name(node) for node in nodes]

    @property
    def nodes(self):
        """Names of the nodes held, in creation order, the root left out."""
        return [self.name(node) for node in self.tree.alive() if node]

    @property
    def probabilities(self):
        """What the scores of the nodes held stand for, by name."""
        return {name: math.exp(self.tree.scores[self.node(name)]) for name in self.nodes}


@pytest.fixture(scope="session")
def grafting():
    return Grafting


@pytest.fixture(scope="session")
def table_model():
    return TableModel
