import random

import pytest
from hypothesis import given, strategies as st

from methods.drafters.ngram_index import NgramIndex

CONTEXTS = st.lists(st.integers(0, 2), max_size=25)


def index_of(tokens, longest=5, kind=NgramIndex):
    index = kind(longest)
    index.extend(tokens)
    return index


def scanned(tokens, ngram, room, limit):
    """Every place in `tokens`, from the end backwards, that follows `ngram` and has `room` tokens from there on."""
    size = len(ngram)
    places = [place for place in range(len(tokens) + 1) if place >= size and tokens[place - size : place] == ngram]
    return [place for place in reversed(places) if len(tokens) - place >= room][:limit]


@given(CONTEXTS, st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(1, 6), st.integers(1, 4))
def test_continuations_equal_a_scan_of_the_context(tokens, ngram, room, limit):
    assert index_of(tokens).continuations(ngram, room, limit) == scanned(tokens, ngram, room, limit)


@given(st.lists(CONTEXTS, max_size=5), st.integers(1, 4))
def test_an_index_that_grows_with_the_context_equals_one_built_at_once(parts, longest):
    whole = [token for part in parts for token in part]
    grown, built = NgramIndex(longest), index_of(whole, longest)
    for part in parts:
        grown.extend(part)

    assert grown.tokens == built.tokens == whole
    ngrams = {tuple(whole[end - size : end]) for size in range(1, longest + 1) for end in range(size, len(whole) + 1)}
    for ngram in ngrams:
        assert grown.continuations(ngram, 1, 99) == built.continuations(ngram, 1, 99)


class EndMatchesItself(NgramIndex):
    """The mutant: no token need stand behind an occurrence."""

    def continuations(self, ngram, room, limit):
        return super().continuations(ngram, 0, limit)


def check_end_is_excluded(kind):
    index = index_of([1, 2, 3, 1, 2], kind=kind)
    found = index.continuations([1, 2], 1, 9)
    assert found == [2]
    assert all(index.tokens[place : place + 1] for place in found)


def test_the_contexts_own_end_never_matches_itself():
    check_end_is_excluded(NgramIndex)
    assert index_of([1, 2, 3]).continuations([3], 1, 9) == []

    with pytest.raises(AssertionError):
        check_end_is_excluded(EndMatchesItself)


def test_two_continuations_come_most_recent_first():
    tokens = [1, 2, 7, 1, 2, 8, 1, 2]

    found = index_of(tokens).continuations([1, 2], 1, 9)

    assert [tokens[place] for place in found] == [8, 7]
    assert index_of(tokens).continuations([1, 2], 1, 1) == found[:1]


def test_occurrences_that_overlap_the_end_still_count():
    assert index_of([4, 4, 4]).continuations([4, 4], 1, 9) == [2]
    assert index_of([4, 4, 4]).continuations([4], 1, 9) == [2, 1]
    assert index_of([4, 4, 4]).continuations([4], 2, 9) == [1]


def plain_evidence(tokens, longest, window, limit):
    """What followed the window's n-grams, word by word of the definition."""
    found = {}
    for match in range(min(longest, len(window)), 0, -1):
        ngram = window[len(window) - match :]
        ends = [end for end in range(match, len(tokens)) if tokens[end - match : end] == ngram][::-1][:limit]
        behind = [tokens[end] for end in ends]
        ages = {token: len(tokens) - ends[behind.index(token)] for token in behind}
        for token in sorted(set(behind), key=lambda token: (-behind.count(token), ages[token])):
            found.setdefault(token, (token, match, behind.count(token), len(ends), ages[token]))
        if len(found) >= limit:
            break
    return list(found.values())


@pytest.mark.parametrize("seed", range(60))
def test_evidence_is_what_a_plain_search_of_the_context_finds(seed):
    rng = random.Random(seed)
    vocabulary, longest, limit = rng.randint(1, 9), rng.randint(1, 5), rng.randint(1, 8)
    tokens = [rng.randrange(vocabulary) for _ in range(rng.randint(1, 60))]
    index = NgramIndex(longest)
    index.extend(tokens)
    for window in (tokens[-longest:], *([rng.randrange(vocabulary) for _ in range(longest)] for _ in range(5))):
        plain = plain_evidence(tokens, longest, window, limit)
        assert [tuple(one) for one in index.evidence(window, limit)] == plain
        before = plain_evidence(tokens, longest, window[:-1], limit)
        assert index.evidence(window, limit, before[0][1] if before else 0) == plain
