"""Latency curves: through measured points, never falling with the size of a forward."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from foundation.errors import UserError
from hardware_profiles.curve import Curve

GRID = Curve(tokens=[1, 8, 32], contexts=[100, 300], ms=[[10.0, 12.0, 30.0], [20.0, 24.0, 50.0]])


def test_it_goes_through_what_was_measured():
    assert [GRID.at(tokens, context) for context in (100, 300) for tokens in (1, 8, 32)] == pytest.approx(
        [10, 12, 30, 20, 24, 50]
    )


def test_between_contexts_and_beyond_them_it_is_a_straight_line():
    assert GRID.at(8, 200) == pytest.approx(18)
    assert GRID.at(8, 400) == pytest.approx(30)
    assert GRID.at(8, 50) == pytest.approx(9)


def test_beyond_the_largest_size_it_goes_on_as_the_last_line():
    assert GRID.at(56, 100) == pytest.approx(30 + 24 * (30 - 12) / 24)


@pytest.mark.parametrize(
    ("curve", "place"),
    [
        (Curve(tokens=[64, 256], contexts=[0], ms=[[10.0, 100.0]]), (8, 0)),
        (Curve(tokens=[1], contexts=[64, 256], ms=[[1.0], [10.0]]), (1, 8)),
        (Curve(tokens=[1], contexts=[0, 10], ms=[[10.0], [5.0]]), (1, 20)),
    ],
)
def test_where_its_lines_have_fallen_to_nothing_it_gives_no_time(curve, place):
    with pytest.raises(UserError, match="beyond its grid; give it a point there"):
        curve.at(*place)


def test_a_larger_forward_that_looked_faster_is_levelled_with_its_neighbour():
    curve = Curve(tokens=[1, 2, 4], contexts=[0], ms=[[10.0, 14.0, 12.0]])

    assert [curve.at(tokens, 0) for tokens in (1, 2, 3, 4)] == pytest.approx([10, 13, 13, 13])


def test_one_point_is_a_constant():
    curve = Curve(tokens=[1], contexts=[64], ms=[[44.2]])

    assert {curve.at(tokens, context) for tokens in (1, 9) for context in (0, 700)} == {44.2}


@given(st.lists(st.floats(0.1, 100), min_size=4, max_size=4), st.integers(0, 500))
def test_it_never_falls_with_the_size(ms, context):
    curve = Curve(tokens=[1, 3, 9, 27], contexts=[50, 400], ms=[ms, [2 * value for value in ms]])
    line = [curve.at(tokens, context) for tokens in range(1, 40)]

    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(line))


BROKEN = {
    "sizes that do not ascend": {"tokens": [1, 1], "contexts": [0], "ms": [[1, 2]]},
    "a row too few": {"tokens": [1, 2], "contexts": [0, 9], "ms": [[1, 2]]},
    "a number too few": {"tokens": [1, 2], "contexts": [0], "ms": [[1]]},
    "no time": {"tokens": [1], "contexts": [0], "ms": [[0]]},
    "not a number": {"tokens": [1], "contexts": [0], "ms": [[float("nan")]]},
    "a negative context": {"tokens": [1], "contexts": [-1], "ms": [[1]]},
    "a size beyond all bounds": {"tokens": [1, 10**400], "contexts": [0], "ms": [[1, 2]]},
    "times beyond all bounds": {"tokens": [1, 2], "contexts": [0], "ms": [[1e308, 1e308]]},
    "a time that is no time": {"tokens": [1], "contexts": [0], "ms": [[1e-320]]},
    "a truth for a time": {"tokens": [1], "contexts": [0], "ms": [[True]]},
    "a text for a time": {"tokens": [1], "contexts": [0], "ms": [["1"]]},
}


@pytest.mark.parametrize("values", BROKEN.values(), ids=BROKEN)
def test_what_is_no_grid_is_refused(values):
    with pytest.raises(ValidationError):
        Curve(**values)
