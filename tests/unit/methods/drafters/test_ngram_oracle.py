"""The small step against a slow oracle that follows its description word by word."""

import math

import pytest
from hypothesis import given, settings, strategies as st

from methods.core.tree import UNSCORED, DraftTree
from methods.drafters.ngram import NgramDrafter, counts_estimate


class Node:
    def __init__(self, name, score):
        self.name = name  # tokens from the root, which it includes
        self.score = score


class Oracle:
    """A tree as a list of nodes in creation order."""

    def __init__(self, context, longest, width, exhaustion, estimate, cap):
        self.c, self.m, self.w, self.cap = tuple(context), longest, width, cap
        self.release = exhaustion == "release"
        self.estimate = estimate
        self.nodes = [Node(self.c[-1:], 0.0)]

    def find(self, name):
        return next((node for node in self.nodes if node.name == name), None)

    def children(self, v):
        return [node for node in self.nodes if node.name[:-1] == v.name]

    def occurrences(self, ngram, room):
        """Where the W most recent ones that have enough tokens behind them are continued."""
        places = [p for p in range(len(ngram), len(self.c)) if self.c[p - len(ngram) : p] == ngram]
        return [p for p in reversed(places) if len(self.c) - p >= room][: self.w]

    def suffixes(self, v, room):
        window = self.c[:-1] + v.name
        first_tokens = {child.name[-1] for child in self.children(v)}
        found = {}
        for n in range(min(self.m, len(window)), 0, -1):
            places = self.occurrences(window[len(window) - n :], room)
            for p in places:
                suffix = self.c[p : p + room]
                count = sum(self.c[q] == suffix[0] for q in places)
                found.setdefault(suffix, (n, p, self.estimate(p, n, count, len(places))))
                first_tokens.add(suffix[0])
            if len(first_tokens) >= self.w:
                break
        ordered = sorted(found, key=lambda suffix: (-found[suffix][0], -found[suffix][1], suffix))
        return [(suffix, *found[suffix]) for suffix in ordered], len(first_tokens) < self.w

    def insert(self, v, suffix):
        for size in range(1, len(suffix) + 1):
            name = v.name + suffix[:size]
            if self.find(name) is None:
                if len(self.nodes) >= self.cap:
                    break
                self.nodes.append(Node(name, -math.inf))
        return self.find(v.name + suffix[:1])

    def step(self, frontier, k):
        room = max(1, self.m - (k - 1))
        following, nothing = [], True
        for v in frontier:
            ordered, exhausted = self.suffixes(v, room)
            nothing = nothing and not ordered
            matches = {}
            for suffix, n, _, estimate in ordered:
                first = self.insert(v, suffix)
                if first is not None:
                    if first.score == -math.inf:
                        first.score = v.score + estimate
                    matches[first] = max(n, matches.get(first, 0))
            if not exhausted or not self.release:
                following += [(child, matches.get(child, 0)) for child in self.children(v)]
        if k == 1 and nothing and self.release and len(self.nodes) == 1:
            token = max(self.c, key=lambda t: (self.c.count(t), max(i for i, u in enumerate(self.c) if u == t)))
            self.nodes.append(Node((*self.c[-1:], token), 0.0))
            return []
        ids = {id(node): number for number, node in enumerate(self.nodes)}
        following.sort(key=lambda item: (-item[1], -item[0].score, ids[id(item[0])]))
        return [node for node, _ in following][: len(following) if k == 1 else self.w]


def by_position(position, match, count, total):
    return -float(position % 5)


def name(tree, node):
    return tuple(tree.tokens[step] for step in tree.path(node))


@st.composite
def drafts(draw):
    letters = draw(st.integers(1, 4))
    options = {
        "context": draw(st.lists(st.integers(0, letters), min_size=1, max_size=40)),
        "longest": draw(st.integers(1, 5)),
        "width": draw(st.integers(1, 4)),
        "exhaustion": draw(st.sampled_from(["release", "continue"])),
        "estimate": draw(st.sampled_from([by_position, counts_estimate])),
        "cap": draw(st.sampled_from([2, 5, 12, 99])),
    }
    grafted = draw(st.lists(st.tuples(st.integers(0, letters), st.sampled_from([-0.5, -1.5])), max_size=3))
    return options, grafted, draw(st.booleans())


def check_draft(options, grafted, unscored):
    """Grow both trees from the same start: a root with children that another drafter gave it."""
    oracle = Oracle(**options)
    cap, context = options.pop("cap"), options.pop("context")
    drafter = NgramDrafter(**options)
    drafter.begin(context)
    tree = DraftTree(context[-1])
    for token, score in grafted[: cap - 1]:
        given_score = UNSCORED if unscored else score
        if oracle.find((context[-1], token)) is None:
            oracle.nodes.append(Node((context[-1], token), given_score))
        tree.add(0, token, given_score, "middle")
    frontier, expected = [0], [oracle.nodes[0]]
    for step in range(1, 5):
        (frontier, _), expected = drafter.extend(tree, frontier, step, cap), oracle.step(expected, step)
        assert [name(tree, node) for node in range(len(tree))] == [node.name for node in oracle.nodes]
        assert tree.scores == [node.score for node in oracle.nodes]
        assert [name(tree, node) for node in frontier] == [node.name for node in expected]
        assert set(tree.tokens) <= {*context, *(token for token, _ in grafted)}


@settings(max_examples=200)
@given(drafts())
def test_small_steps_grow_the_tree_that_their_description_says(draft):
    check_draft(*draft)


@pytest.mark.slow
@settings(max_examples=5000)
@given(drafts())
def test_small_steps_grow_the_described_tree_in_many_more_contexts(draft):
    check_draft(*draft)
