import dataclasses

import pytest

from methods.core import stopwatch
from methods.core.stopwatch import Stopwatch

MS = 1_000_000


class Machine:
    """A clock that work moves on, and a device that works behind the caller's back until it is waited for."""

    def __init__(self):
        self.now = 5 * MS
        self.queued = 0

    def perf_counter_ns(self):
        return self.now

    def work(self, ms):
        self.now += ms * MS

    def launch(self, ms):
        self.queued += ms * MS

    def synchronise(self):
        self.now += self.queued
        self.queued = 0


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(stopwatch, "perf_counter_ns", machine.perf_counter_ns)
    return machine


def decode(machine, watch):
    """Two rounds with known costs, 30 ms in all."""
    machine.launch(50)  # prefill still at work on the device
    watch.start()
    for _ in range(2):
        machine.work(1)
        with watch.span("small"):
            machine.work(2)
        with watch.span("scheduler"):
            machine.work(1)
        with watch.span("middle"):
            machine.launch(3)
        with watch.span("verify"):
            machine.launch(5)
            machine.work(1)
        machine.work(2)
    return watch.stop()


def check_phases(machine, synchronise):
    watch = Stopwatch(synchronise)
    assert decode(machine, watch) == pytest.approx(0.030)
    spans = dataclasses.asdict(watch.spans())
    expected = {"small_s": 0.004, "middle_s": 0.006, "scheduler_s": 0.002, "verify_s": 0.012, "other_s": 0.006}
    assert spans == pytest.approx(expected)
    assert sum(spans.values()) == pytest.approx(0.030)


def test_every_moment_is_charged_to_one_phase_and_the_parts_add_up_to_the_whole(machine):
    check_phases(machine, machine.synchronise)


def test_the_phase_check_fails_where_the_device_is_not_waited_for(machine):
    with pytest.raises(AssertionError):
        check_phases(machine, lambda: None)


def test_a_watch_without_spans_tells_the_same_whole(machine):
    watch = Stopwatch(machine.synchronise, spans=False)

    assert decode(machine, watch) == pytest.approx(0.030)
    assert watch.spans() is None


def test_a_span_that_fails_is_charged_all_the_same(machine):
    watch = Stopwatch(machine.synchronise)
    watch.start()

    def fail():
        with watch.span("small"):
            machine.work(4)
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    assert watch.stop() == pytest.approx(0.004)
    assert watch.spans().small_s == pytest.approx(0.004)
