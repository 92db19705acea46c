"""What the CPU did while a row was timed: others' load, memory, frequency."""

import subprocess
import sys
import time
from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest

from hardware_profiles.cpu import CONTENTION_MARK, SLOWED_MARK, CpuWatch


@pytest.fixture
def times(monkeypatch):
    """The machine's and the process's times, as the test moves them; a hundredth of a second passes a reading."""
    clock = SimpleNamespace(user=0.0, own=0.0, idle=0.0, now=0.0, mhz=3000.0)
    machine = namedtuple("machine", "user idle")
    monkeypatch.setattr(psutil, "cpu_times", lambda: machine(clock.user, clock.idle))
    monkeypatch.setattr(
        psutil.Process,
        "cpu_times",
        lambda self: SimpleNamespace(user=clock.own, system=0.0, children_user=0.0, children_system=0.0),
    )
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: [])
    monkeypatch.setattr(psutil, "cpu_freq", lambda: SimpleNamespace(current=clock.mhz))
    monkeypatch.setattr("hardware_profiles.cpu.perf_counter", lambda: clock.now)
    return clock


def reading(watch, times, *, own=0.0, others=0.0, seconds=1.0):
    watch.start()
    times.now += seconds
    times.own += own
    times.user += own + others
    return watch.stop()


@pytest.mark.parametrize(("others", "marked"), [(0.0, False), (0.09, False), (0.11, True), (1.0, True)])
def test_a_tenth_of_a_core_in_others_hands_is_marked(times, others, marked):
    found = reading(CpuWatch(), times, own=1.9, others=others)

    assert found.telemetry["others_cores"] == pytest.approx(others)
    assert (CONTENTION_MARK in found.marks) == marked


def test_ones_own_load_is_none_of_others(times):
    assert reading(CpuWatch(), times, own=2.0).marks == []


def test_two_ticks_of_accounting_in_a_short_row_are_nothing(times):
    assert reading(CpuWatch(), times, others=0.02, seconds=0.05).marks == []


def test_cores_that_fall_behind_the_highest_frequency_are_marked(times):
    watch = CpuWatch()
    assert reading(watch, times).marks == []
    times.mhz = 2750.0
    assert reading(watch, times).marks == []
    times.mhz = 2650.0
    slow = reading(watch, times)

    assert slow.marks == [SLOWED_MARK]
    assert slow.telemetry["mhz"] == 2650.0


@pytest.mark.parametrize("answer", [None, SimpleNamespace(current=0.0), NotImplementedError()])
def test_a_system_that_tells_no_frequency_is_left_in_peace(times, monkeypatch, answer):
    def cpu_freq():
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(psutil, "cpu_freq", cpu_freq)

    assert "mhz" not in reading(CpuWatch(), times).telemetry


BUSY = "import os, sys; sys.stdout.write(f'{os.getpid()}\\n'); sys.stdout.flush()\nwhile True: pass"


@pytest.fixture(params=["alone", "a child"])
def hog(request):
    """A busy process: whether it is a child of this one, as outside engines are."""
    command = [sys.executable, "-c", BUSY]
    if request.param == "alone":  # its parent ends at once
        command = [sys.executable, "-c", f"import subprocess; subprocess.Popen({command!r})"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process = psutil.Process(int(started.stdout.readline()))
    yield request.param == "a child"
    process.kill()
    started.wait()
    started.stdout.close()


def test_a_busy_process_is_another_unless_it_is_a_child(hog):
    watch = CpuWatch()
    watch.start()
    own = watch._own_seconds()
    time.sleep(0.6)

    assert (watch._own_seconds() - own > 0.2) == hog  # on a busy machine, too
    assert hog or watch.stop().telemetry["others_cores"] > 0.2


def test_a_child_that_ended_counts_as_own():
    watch = CpuWatch()
    own = watch._own_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(2 * 10**7))"], check=True)

    assert watch._own_seconds() - own > 0.1
