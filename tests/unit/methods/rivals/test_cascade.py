"""Who writes which tokens of a draft, by hand over letters, and how long a draft can get."""

import pytest
from hypothesis import given, settings, strategies as st

from foundation.errors import UserError
from methods.catalog import resolve
from methods.rivals.csd.cascade import CascadeOptions, Drafted, cascade, longest_draft, most_proposed
from methods.settings import Settings

PUBLISHED = [[5, 10], [0, 10]]
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class Desk:
    """Notes who did what: reviewers know a text of their own, copies are given by the draft that they stand behind."""

    def __init__(self, copies, **texts):
        self.copies = copies
        self.reviews = [self.reviewer(name, text) for name, text in texts.items()]
        self.done = []

    def reviewer(self, name, text):
        def review(draft, start):
            kept = start
            while kept < len(draft) and draft[kept].token == text[kept]:
                kept += 1
            self.done.append((name, spelled(draft[start:])))
            return [*draft[:kept], Drafted(text[kept], 0.0)]

        return review

    def propose(self, draft, count):
        copied = self.copies.get(spelled(draft), "")[:count]
        self.done.append(("copies", copied))
        return [*draft, *(Drafted(letter, 0.0) for letter in copied)]

    def draft(self, k=PUBLISHED, limit=99):
        return spelled(cascade(self.reviews, self.propose, [], k, limit))


def spelled(draft):
    return "".join(one.token for one in draft)


def test_the_middle_reviews_what_comes_early_and_copies_stand_alone_behind():
    desk = Desk({"": "abXXXXXXXX", "abc": "deXXXXXXXX", "abcdef": "ghijXXXXXX"}, middle=ALPHABET)

    assert desk.draft() == "abcdef" + "ghijXXXXXX"
    assert desk.done == [
        ("copies", "abXXXXXXXX"),
        ("middle", "abXXXXXXXX"),
        ("copies", "deXXXXXXXX"),
        ("middle", "deXXXXXXXX"),
        ("copies", "ghijXXXXXX"),
    ]


def test_the_bounds_are_those_of_the_loops_and_a_draft_may_be_longer():
    desk = Desk({"": "abX", "abc": "defghijklm", ALPHABET[:14]: "opqrstuvwx"}, middle=ALPHABET)

    assert desk.draft() == ALPHABET[:24]
    assert longest_draft(PUBLISHED) == 24


def test_where_nothing_can_be_copied_the_middle_writes_token_by_token_and_the_draft_ends_there():
    desk = Desk({}, middle=ALPHABET)

    assert desk.draft() == "abcde"
    assert desk.done == [("copies", ""), ("middle", "")] * 5 + [("copies", "")]


@pytest.mark.parametrize(
    ("limit", "drafted", "done"),
    [
        (-3, "", []),
        (0, "", []),
        (1, "a", [("middle", "")]),
        (4, "abcd", [("copies", "abX"), ("middle", "abX"), ("middle", "")]),
        (
            8,
            "abcdeXXX",
            [
                ("copies", "abXXXXX"),
                ("middle", "abXXXXX"),
                ("copies", "dXXX"),
                ("middle", "dXXX"),
                ("copies", "XXX"),
            ],
        ),
    ],
)
def test_no_draft_outgrows_its_limit_and_a_review_has_room_for_its_own_token(limit, drafted, done):
    desk = Desk({"": "abXXXXXXXX", "abc": "dXXXXXXXXX", "abcde": "XXXXXXXXXX"}, middle=ALPHABET)

    assert desk.draft(limit=limit) == drafted
    assert desk.done == done


def test_three_drafters_worked_by_hand():
    """Big reviews what small and copies wrote; then small reviews copies; then copies go on alone."""
    copies = {"": "aY", "ab": "c", "abcd": "ZZ", "abcdef": "gh"}
    desk = Desk(copies, big=ALPHABET, small="abXdefghij")

    assert desk.draft([[2, 4, 1], [0, 2, 1], [0, 0, 2]]) == "abcdefgh"
    assert desk.done == [
        ("copies", "aY"),  # small is to leave two tokens,
        ("small", "aY"),
        ("copies", "c"),  # and one more is copied
        ("big", "abc"),
        ("copies", "ZZ"),  # six are wanted before copies go on alone
        ("small", "ZZ"),
        ("copies", ""),
        ("small", ""),
        ("copies", "gh"),
    ]


def test_without_bounds_nothing_is_drafted():
    desk = Desk({"": "abc"}, middle=ALPHABET)

    assert desk.draft([[0, 0], [0, 0]]) == ""
    assert longest_draft([[0, 0], [0, 0]]) == most_proposed([[0, 0], [0, 0]]) == 0


@st.composite
def bounds(draw):
    size = draw(st.integers(1, 3))
    return [[draw(st.integers(0, 6)) if column >= row else 0 for column in range(size)] for row in range(size)]


@settings(max_examples=200)
@given(bounds(), st.integers(0, 40), st.randoms(use_true_random=False))
def test_no_cascade_writes_more_than_it_says(k, limit, rng):
    written, stuck = 0, None

    def review(draft, start):
        nonlocal written, stuck
        written, stuck = written + 1, None
        return [*draft[: rng.randint(start, len(draft))], Drafted(0, 0.0)]

    def propose(draft, count):
        """Copy as much as is wanted, or until nothing recurs; then there is nothing to copy behind it either."""
        nonlocal written, stuck
        copied = 0 if stuck == len(draft) else rng.choice([0, count, rng.randint(0, count)])
        if copied < count:
            stuck = len(draft) + copied
        written += copied
        return [*draft, *[Drafted(0, 0.0)] * copied]

    draft = cascade([review] * (len(k) - 1), propose, [], k, limit)

    assert len(draft) <= min(limit, longest_draft(k))
    assert written <= most_proposed(k)


def test_the_published_bounds_take_75_tokens_at_most():
    assert most_proposed(PUBLISHED) == 5 * (10 + 1) + 2 * 10


def test_the_catalogue_pins_the_published_values():
    spec = resolve("csd", definitions={}, pair={}, config={}, flags={})

    assert (
        spec.settings.options_as(CascadeOptions, "csd")
        == CascadeOptions()
        == Settings().options_as(CascadeOptions, "csd")
    )
    assert CascadeOptions().k == ((5, 10), (0, 10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": [[5, 10]]}, "options: k: give 2 rows of 2: the middle's and Max-Gram's (given: [[5, 10]])"),
        ({"k": [[5, 10], [1, 10]]}, "options: k: what stands below the diagonal must be 0"),
        ({"k": [[5, -1], [0, 10]]}, "options: k.0.1: Input should be greater than or equal to 0 (given: -1)"),
        ({"k": [[5, 65], [0, 10]]}, "options: k.0.1: Input should be less than or equal to 64"),
        ({"k": "5,10"}, "options: k: "),
        ({"k": None}, "options: k: "),
        ({"leniency": 0.9}, "options: leniency: Input should be greater than or equal to 1"),
        ({"leniency": float("nan")}, "options: leniency: "),
        ({"leniency": float("inf")}, "options: leniency: "),
        ({"leniency": "very"}, "options: leniency: "),
        ({"lenience": 2}, "unknown option of csd 'lenience'; did you mean leniency"),
    ],
)
def test_an_unusable_option_is_refused_in_one_line(options, message):
    with pytest.raises(UserError) as caught:
        Settings(options=options).options_as(CascadeOptions, "csd")

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
