"""Padded forwards: fixed places in memory, one for each size, and outputs that outlive the next forward."""

import numpy as np
import pytest
import torch

from methods.core.engines.padded import PaddedForwards

pytestmark = pytest.mark.torch


@pytest.fixture
def asked():
    return []


@pytest.fixture
def forwards(asked):
    """As a CUDA graph does, the computation gives the same memory every time."""
    places = {}

    def compute(inputs):
        asked.append(inputs)
        output = places.setdefault(len(inputs.tokens), torch.zeros(len(inputs.tokens), 1, dtype=torch.int64))
        output[:, 0] = inputs.tokens + 100 * inputs.positions
        return [output]

    return PaddedForwards(compute, [None], torch.device("cpu"))


def run(forwards, tokens, start=0):
    count = len(tokens)
    visible = {None: np.tri(count, start + count, start, dtype=np.bool_)}
    (output,) = forwards.run(tokens, range(start, start + count), start, visible)
    return output[:, 0].tolist()


def test_an_output_outlives_the_next_forward_of_its_size(forwards):
    visible = {None: np.ones((1, 1), dtype=np.bool_)}
    (first,) = forwards.run([5], [0], 0, visible)
    forwards.run([6], [0], 0, visible)

    assert first.tolist() == [[5]]


def test_a_size_has_one_place_and_padding_is_cut_off(forwards, asked):
    assert run(forwards, [7, 8, 9], start=2) == [207, 308, 409]
    assert run(forwards, [1, 2, 3, 4], start=2) == [201, 302, 403, 504]
    assert asked[0] is asked[1]
    assert run(forwards, [7], start=2) == [207]
    assert asked[2] is not asked[0]


def test_padding_writes_behind_the_forward_and_nobody_sees_it(forwards, asked):
    run(forwards, [7, 8, 9], start=4)
    (inputs,) = asked

    assert inputs.rows.tolist() == [4, 5, 6, 7]
    assert not inputs.visible[None][:3, 7:].any()
    assert inputs.visible[None][:3, :7].tolist() == np.tri(3, 7, 4, dtype=bool).tolist()
    assert inputs.visible[None][3].any()  # a row that sees nothing would be NaN


def test_sizes_are_made_anew_once_forgotten(forwards, asked):
    run(forwards, [7])
    forwards.forget()
    run(forwards, [7])

    assert asked[0] is not asked[1]
