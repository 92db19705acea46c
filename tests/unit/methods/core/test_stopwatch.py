"""Phases of a decoding loop on a CPU and on a GPU, whose events and waits are made up here."""

import dataclasses

import pytest
import torch

from methods.core import stopwatch, timeline
from methods.core.stopwatch import Stopwatch
from methods.core.timeline import CudaTimeline

MS = 1_000_000
GPU = torch.device("cuda:1")


class Machine:
    """A clock that the host's work moves on, and a device that works behind the host's back."""

    def __init__(self):
        self.now = 5 * MS
        self.free = 0  # when the device has done all that was queued
        self.waits = 0

    def work(self, ms):
        self.now += round(ms * MS)

    def launch(self, ms):
        self.free = max(self.now, self.free) + round(ms * MS)

    def synchronize(self, device):
        assert device == GPU
        self.waits += 1
        self.now = max(self.now, self.free)

    def read(self):
        """Read a result, which waits for the device."""
        self.now = max(self.now, self.free)


@pytest.fixture
def machine(monkeypatch):
    """Put a machine under the stopwatch and, at torch's border, under its CUDA timeline."""
    machine = Machine()

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self, stream):
            assert stream == ("stream of", GPU)
            self.at = max(machine.now, machine.free)

        def elapsed_time(self, end):
            assert machine.now >= end.at, "the device has not got there yet"
            return (end.at - self.at) / MS

    for module in (stopwatch, timeline):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: machine.now)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", machine.synchronize)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream of", device))
    return machine


@pytest.fixture
def cpu_only(monkeypatch):
    """Let anything of CUDA fail."""

    def touched(*arguments, **keywords):
        raise AssertionError("CUDA was touched")

    for name in ("Event", "Stream", "synchronize", "current_stream", "init", "_lazy_init"):
        monkeypatch.setattr(torch.cuda, name, touched)
    monkeypatch.setattr(torch.Tensor, "pin_memory", touched)


def watched(machine, watch, wait):
    """Two rounds with known costs, 30 ms in all; `wait` is how the host learns what the device found."""
    watch.start()
    for _ in range(2):
        machine.work(1)
        with watch.span("small"):
            machine.work(2)
        with watch.span("scheduler"):
            machine.work(1)
        with watch.span("middle"):
            machine.launch(3)
            wait()
        with watch.span("verify"):
            machine.launch(5)
            wait()
            machine.work(1)
        machine.work(2)
    return watch.stop()


EXPECTED = {"small_s": 0.004, "middle_s": 0.006, "scheduler_s": 0.002, "verify_s": 0.012, "other_s": 0.006}


def test_on_a_cpu_every_moment_is_charged_to_one_phase_and_the_parts_add_up(machine, cpu_only):
    watch = Stopwatch()
    machine.launch = machine.work  # a CPU's call returns when its work is done

    assert watched(machine, watch, lambda: None) == pytest.approx(0.030)
    spans = dataclasses.asdict(watch.spans())
    assert spans == pytest.approx(EXPECTED)
    assert sum(spans.values()) == pytest.approx(0.030)


def check_phases_on_a_gpu(machine, watch):
    machine.launch(50)  # prefill still at work on the device
    assert watched(machine, watch, machine.read) == pytest.approx(0.030)
    spans = dataclasses.asdict(watch.spans())
    assert spans == pytest.approx(EXPECTED)
    assert sum(spans.values()) == pytest.approx(0.030)


def test_on_a_gpu_phases_are_the_same_and_only_the_ends_of_the_whole_wait_for_it(machine):
    check_phases_on_a_gpu(machine, Stopwatch(CudaTimeline(GPU)))
    assert machine.waits == 2


def test_the_phase_check_fails_where_the_host_clock_times_a_gpu(machine):
    with pytest.raises(AssertionError):
        check_phases_on_a_gpu(machine, Stopwatch())


def test_a_gpu_that_works_on_after_a_phase_is_charged_to_that_phase(machine):
    watch = Stopwatch(CudaTimeline(GPU))
    watch.start()
    with watch.span("verify"):
        machine.launch(6)  # the commit, which nobody waits for
    with watch.span("scheduler"):
        machine.work(2)  # hidden behind it
    with watch.span("small"):
        machine.work(5)  # a millisecond longer than the commit

    assert watch.stop() == pytest.approx(0.007)
    spans = dataclasses.asdict(watch.spans())
    assert spans == pytest.approx({"small_s": 0.001, "middle_s": 0, "scheduler_s": 0, "verify_s": 0.006, "other_s": 0})


def test_a_watch_without_spans_tells_the_same_whole(machine):
    watch = Stopwatch(CudaTimeline(GPU), spans=False)
    machine.launch(50)

    assert watched(machine, watch, machine.read) == pytest.approx(0.030)
    assert watch.spans() is None


def test_a_span_that_fails_is_charged_all_the_same(machine):
    watch = Stopwatch()
    watch.start()

    def fail():
        with watch.span("small"):
            machine.work(4)
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    assert watch.stop() == pytest.approx(0.004)
    assert watch.spans().small_s == pytest.approx(0.004)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["autoregressive", "all-small", "all-mid", "treegraft-fixed", "csd"])
def test_decoding_on_a_cpu_touches_nothing_of_cuda(cpu_only, method, llama, name):
    from methods.core.sampling import DecodingParams

    answer = method(name, llama, middle=llama).generate([3, 9, 27, 3, 9], DecodingParams(12))

    assert len(answer.token_ids) == 12
    assert sum(dataclasses.astuple(answer.spans)) == pytest.approx(answer.decode_s, rel=0.02)
