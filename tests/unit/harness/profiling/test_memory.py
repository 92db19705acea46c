"""Memory's speed and the forward that is held against it, with clocks that the tests move."""

from types import SimpleNamespace

import pytest

from harness.profiling import memory
from methods.core.model import TreeModel

pytestmark = pytest.mark.torch


@pytest.fixture
def clock(monkeypatch):
    """Every piece of work takes the next of these seconds, the last one again and again."""
    seconds = [1.0]

    def timed(work):
        work()
        return seconds.pop(0) if len(seconds) > 1 else seconds[0]

    monkeypatch.setattr(memory, "_seconds", timed)
    return seconds


@pytest.fixture
def free(monkeypatch):
    """Set the bytes of memory that are free; a little is enough to measure with."""
    monkeypatch.setattr(memory, "_BUFFER", 4_000_000)
    monkeypatch.setattr(memory, "_LEAST", 1_000_000)
    return lambda size: monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=size))


@pytest.mark.parametrize(("available", "gigabytes"), [(10**9, 0.004), (8_000_000, 0.002)])
def test_memory_is_as_fast_as_its_best_read_of_a_buffer_that_fits(clock, free, available, gigabytes):
    free(available)
    clock[:] = [0.5, 0.25, 2.0]

    assert memory.memory_gb_s() == pytest.approx(gigabytes / 0.25)


def test_memory_too_short_to_tell_it_from_the_caches_is_not_measured(free):
    free(3_999_999)

    assert memory.memory_gb_s() is None


def test_a_forward_is_the_median_behind_the_warm_up_and_leaves_nothing_pending(clock, llama):
    model = TreeModel(llama)
    clock[:] = [0.5, 0.5, 0.001, 0.009, 0.002]  # two of warm-up; the last repeats

    assert memory.one_token_ms(model) == pytest.approx(2.0)
    assert model.pending == 0


def test_slow_forwards_are_few(clock, llama):
    clock[:] = [1.0, 1.0, 7.0, 9.0]

    assert memory.one_token_ms(TreeModel(llama)) == 7000.0


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_are_read_only_where_they_are_the_head(tiny, tied):
    model = tiny(tie_word_embeddings=tied)
    layers = sum(parameter.nbytes for name, parameter in model.named_parameters() if ".layers." in name)
    norm, head = (weight.nbytes for weight in (model.model.norm.weight, model.lm_head.weight))

    assert memory.bytes_read(TreeModel(model)) == layers + norm + head
