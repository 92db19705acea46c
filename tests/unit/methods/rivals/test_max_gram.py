"""Max-Gram by hand, and against a slow second version of it."""

import random

import pytest
from hypothesis import given, settings, strategies as st

from methods.rivals.csd import max_gram
from methods.rivals.csd.max_gram import MaxGram


def proposed(text, count, draft="", bigrams=None):
    """Propose behind letters."""
    table = {ord(one): ord(other) for one, other in (bigrams or {}).items()}
    drafter = MaxGram(table)
    drafter.begin([ord(letter) for letter in text])
    return "".join(map(chr, drafter.propose([ord(letter) for letter in draft], count)))


@pytest.mark.parametrize(
    ("text", "count", "copy"),
    [
        ("abcxabcyab", 3, "cxa"),  # ab occurs twice before: the earlier one is copied
        ("bc1abc2abc", 4, "2abc"),  # abc is longer than bc, though bc occurs earlier
        ("abcd", 5, ""),  # d does not recur
        ("aaa", 4, "aaaa"),  # occurrences may overlap
        ("abab", 5, "ababa"),  # the copy reaches the end of the text, and is found again
        ("xab-ab-cab-", 6, "ab-cab"),  # ab- is continued by ab-cab-
        ("a", 3, ""),
        ("abcxabc", 0, ""),
    ],
)
def test_the_longest_suffix_that_recurs_is_continued_from_its_earliest_occurrence(text, count, copy):
    assert proposed(text, count) == copy
    assert proposed(text[:1], count, draft=text[1:]) == copy


def test_a_token_that_does_not_recur_is_followed_by_its_bigram_until_something_recurs():
    assert proposed("abc", 6, bigrams={"c": "d", "d": "a"}) == "dabcda"
    assert proposed("abc", 6, bigrams={"c": "d"}) == "d"
    assert proposed("abab", 2, bigrams={"b": "z"}) == "ab"


def slow(text, count, bigrams):
    """The same, word by word."""
    found = []
    while len(found) < count:
        whole = [*text, *found]
        place = next(
            (
                start + size
                for size in range(len(whole) - 1, 0, -1)
                for start in range(len(whole) - size)
                if whole[start : start + size] == whole[-size:]
            ),
            None,
        )
        new = whole[place:] if place is not None else [bigrams[last] for last in whole[-1:] if last in bigrams]
        if not new:
            break
        found += new
    return found[:count]


def check(context, rounds, bigrams, kind=MaxGram):
    """Rounds of several drafts, each with tokens that are committed at its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(max_gram, "_GROW_BY", 4)
        drafter = kind(bigrams)
    drafter.begin(context)
    text = [*context]
    for drafts, new in rounds:
        for draft, count in drafts:
            assert drafter.propose(draft, count) == slow([*text, *draft], count, bigrams)
        drafter.advance(new)
        text += new


@st.composite
def decodings(draw):
    token = st.integers(0, draw(st.integers(0, 4)))
    draft = st.tuples(st.lists(token, max_size=6), st.integers(0, 12))
    one = st.tuples(st.lists(draft, max_size=4), st.lists(token, max_size=4))
    context = draw(st.lists(token, min_size=1, max_size=30))
    return context, draw(st.lists(one, max_size=4)), draw(st.dictionaries(token, token, max_size=3))


@settings(max_examples=300)
@given(decodings())
def test_proposals_are_those_of_a_search_through_the_whole_text(decoding):
    check(*decoding)


def random_decodings(count):
    rng = random.Random(0)

    def tokens(most):
        return rng.choices(range(3), k=rng.randint(1, most))

    def rounds():
        return [([(tokens(6), 8) for _ in range(3)], tokens(3)) for _ in range(4)]

    return [(tokens(30), rounds(), {}) for _ in range(count)]


def check_all(cases, kind=MaxGram):
    for case in cases:
        check(*case, kind)


class TakesTheLatest(MaxGram):
    """Copies the latest of the longest."""

    def _continuation(self, count):
        matches = self._matches[-1]
        if not matches.any():
            return []
        source = len(matches) - int(matches[::-1].argmax())
        return self._tokens[source : min(self._length, source + count)].tolist()


class KeepsDrafts(MaxGram):
    """Reads each draft behind what was proposed before."""

    def _read(self, draft):
        for token in draft:
            self._append(token)


class ForgetsToCommit(MaxGram):
    """Takes committed tokens for a draft."""

    def advance(self, tokens):
        if self._committed:
            self._read(tokens)
        else:
            super().advance(tokens)


@pytest.mark.parametrize("mutant", [TakesTheLatest, KeepsDrafts, ForgetsToCommit])
def test_the_comparison_fails_on_a_mutant(mutant):
    cases = random_decodings(20)
    check_all(cases)

    with pytest.raises(AssertionError):
        check_all(cases, mutant)


def test_another_prompt_leaves_nothing_of_the_one_before():
    drafter = MaxGram()
    drafter.begin([1, 2, 3, 1, 2])
    drafter.propose([3, 1], 5)

    drafter.begin([4, 1, 5, 4, 1])

    assert drafter.propose([], 3) == [5, 4, 1]
    drafter.begin([3, 1])
    assert drafter.propose([], 3) == []
