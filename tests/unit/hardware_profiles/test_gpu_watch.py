"""What the GPUs did while a row was timed, read through the real pynvml from a small libnvidia-ml."""

import os
import subprocess
import sys
import threading
import time

import pytest

from hardware_profiles import gpu, nvml as nvml_module
from hardware_profiles.gpu import CONTENTION_MARK, THROTTLED_MARK, GpuWatch
from hardware_profiles.nvml import THROTTLE_REASONS, NvmlError, describe, names_and_driver
from hardware_profiles.watch import Watch

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST, UNKNOWN = 3, 4, 9, 13, 15, 999
OWN_PERIOD_S = gpu.PERIOD_S
SENSORS = {"sm_mhz", "memory_mhz", "celsius", "busy_pct", "memory_mib", "throttled", "others", "watts"}


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Read so often that short spans have samples inside; call a tenth of a second long enough for the counter."""
    monkeypatch.setattr(gpu, "PERIOD_S", 0.005)
    monkeypatch.setattr(gpu, "_COUNTER_WINDOW_S", 0.1)


@pytest.fixture
def planted(nvml):
    """Plant sensible values on the first device, others on the second."""
    nvml.plant(0, sm_mhz=1980, memory_mhz=3201, celsius=61, busy_pct=97, memory_b=5 * 2**30, instant_mw=350_000)
    nvml.plant(0, power_mw=340_000, energy_mj=10_000_000, limit_mw=700_000)
    nvml.plant(1, sm_mhz=1410, memory_mhz=1593, celsius=44, busy_pct=3, memory_b=2**30, instant_mw=80_000)
    nvml.plant(1, power_mw=79_000, energy_mj=77, limit_mw=400_000)
    return nvml


def read(watch, seconds=0.03, meanwhile=lambda: None):
    watch.start()
    time.sleep(seconds / 2)
    meanwhile()
    time.sleep(seconds / 2)
    return watch.stop()


def between_readings(planted, act):
    """Return what acts with at least one whole reading of the sensors before and one after, inside the span."""

    def wait():
        enough = planted.calls + 30  # a reading of one device is ten
        while planted.calls < enough and planted.alive:
            time.sleep(0.001)

    def meanwhile():
        wait()
        act()
        wait()

    return meanwhile


def one_gpu(reading):
    (device,) = reading.telemetry["gpus"]
    return device


def test_the_numbers_shown_are_the_numbers_planted(planted):
    found = read(GpuWatch(planted.UUIDS[:1]))
    device = one_gpu(found)

    assert device["sm_mhz"] == {"mean": 1980, "min": 1980, "max": 1980}
    assert device["memory_mhz"] == {"mean": 3201, "min": 3201, "max": 3201}
    assert (device["celsius"], device["busy_pct"], device["memory_mib"]) == (61, 97, 5 * 1024)
    assert (device["throttled"], device["others"]) == ([], 0)
    assert device["watts"] == pytest.approx(350)
    assert device["samples"] >= 2
    assert device["seconds"] >= 0.03
    assert found.marks == []
    assert "gpu_problem" not in found.telemetry


def test_clocks_that_change_have_a_mean_and_both_ends_and_heat_and_memory_their_most(planted):
    def change():
        planted.plant(sm_mhz=1200, celsius=60, memory_b=7 * 2**30)

    device = one_gpu(read(GpuWatch(planted.UUIDS[:1]), meanwhile=between_readings(planted, change)))

    assert (device["sm_mhz"]["min"], device["sm_mhz"]["max"]) == (1200, 1980)
    assert 1200 < device["sm_mhz"]["mean"] < 1980
    assert (device["celsius"], device["memory_mib"]) == (61, 7 * 1024)


def test_a_long_span_takes_its_joules_from_the_counter(planted):
    found = read(GpuWatch(planted.UUIDS[:1]), 0.12, lambda: planted.plant(energy_mj=10_043_210))

    assert (one_gpu(found)["joules"], one_gpu(found)["joules_from"]) == (43.21, "counter")
    assert (found.telemetry["gpu_joules"], found.telemetry["gpu_joules_from"]) == (43.21, "counter")


def test_a_span_too_short_for_the_counter_integrates_power(planted):
    device = one_gpu(read(GpuWatch(planted.UUIDS[:1]), 0.03, lambda: planted.plant(energy_mj=10_090_000)))

    assert device["joules_from"] == "power"
    assert device["joules"] == pytest.approx(350 * device["seconds"], abs=1e-3)


@pytest.mark.parametrize("counter", [10_000_000, 5_000])
def test_a_counter_that_stands_still_or_begins_anew_is_not_believed(planted, counter):
    device = one_gpu(read(GpuWatch(planted.UUIDS[:1]), 0.12, lambda: planted.plant(energy_mj=counter)))

    assert device["joules_from"] == "power"
    assert device["joules"] == pytest.approx(350 * device["seconds"], abs=1e-3)


def test_power_that_steps_is_integrated_over_time(planted):
    step = between_readings(planted, lambda: planted.plant(instant_mw=50_000))
    began = time.perf_counter()
    device = one_gpu(read(GpuWatch(planted.UUIDS[:1]), meanwhile=step))
    most = time.perf_counter() - began

    assert 50 * device["seconds"] < device["joules"] < 350 * device["seconds"] < 350 * most
    assert device["watts"] == pytest.approx(device["joules"] / device["seconds"], rel=1e-3)


def test_power_of_the_last_second_stands_in_where_the_driver_tells_no_power_of_the_moment(planted, monkeypatch):
    planted.fail(NOT_SUPPORTED, "instant_mw")
    monkeypatch.setattr(nvml_module, "_MEAN_S", 0.02)

    assert one_gpu(read(GpuWatch(planted.UUIDS[:1])))["watts"] == pytest.approx(340)


def test_power_of_the_last_second_says_nothing_of_a_shorter_span(planted):
    planted.fail(NOT_SUPPORTED, "instant_mw")
    device = one_gpu(read(GpuWatch(planted.UUIDS[:1])))

    assert not {"watts", "joules", "joules_from"} & device.keys()
    assert device["sm_mhz"]["mean"] == 1980


def test_a_driver_that_knows_throttling_by_its_older_name_is_read_too(planted):
    planted.fail(FUNCTION_NOT_FOUND, "reasons")
    planted.plant(old_reasons=0x40)

    assert one_gpu(read(GpuWatch(planted.UUIDS[:1])))["throttled"] == ["hardware-thermal"]


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, UNKNOWN])
@pytest.mark.parametrize(
    ("sensors", "missing"),
    [
        (("sm_mhz",), {"sm_mhz"}),
        (("memory_mhz",), {"memory_mhz"}),
        (("celsius",), {"celsius"}),
        (("busy_pct",), {"busy_pct"}),
        (("memory_b",), {"memory_mib"}),
        (("reasons", "old_reasons"), {"throttled"}),
        (("processes",), {"others"}),
        (("instant_mw", "power_mw"), {"watts"}),
    ],
)
def test_a_sensor_that_does_not_answer_is_left_out_and_the_others_stay(planted, code, sensors, missing):
    planted.fail(code, *sensors)
    found = read(GpuWatch(planted.UUIDS[:1]))

    assert one_gpu(found).keys() & SENSORS == SENSORS - missing
    assert "gpu_problem" not in found.telemetry


def test_without_power_a_short_span_has_no_joules_and_a_long_one_the_counters(planted):
    planted.fail(NOT_SUPPORTED, "instant_mw", "power_mw")
    watch = GpuWatch(planted.UUIDS[:1])

    assert "gpu_joules" not in read(watch).telemetry
    assert read(watch, 0.12, lambda: planted.plant(energy_mj=10_001_500)).telemetry["gpu_joules"] == 1.5


def test_without_a_counter_and_power_there_are_no_joules(planted):
    planted.fail(NOT_SUPPORTED, "instant_mw", "power_mw", "energy_mj")

    assert "gpu_joules" not in read(GpuWatch(planted.UUIDS[:1]), 0.12).telemetry


def test_a_sensor_that_stops_answering_ends_nothing(planted):
    stop = between_readings(planted, lambda: planted.fail(NOT_SUPPORTED, "sm_mhz", "instant_mw"))
    found = read(GpuWatch(planted.UUIDS[:1]), meanwhile=stop)

    assert one_gpu(found)["sm_mhz"]["mean"] == 1980
    assert "watts" not in one_gpu(found)
    assert "gpu_problem" not in found.telemetry


def test_several_devices_are_read_in_the_order_given_and_their_energy_added(planted):
    def spend():
        planted.plant(0, energy_mj=10_002_000)
        planted.plant(1, energy_mj=577)

    found = read(GpuWatch([planted.UUIDS[1], planted.UUIDS[0]]), 0.12, spend)

    assert [device["sm_mhz"]["mean"] for device in found.telemetry["gpus"]] == [1410, 1980]
    assert [device["joules"] for device in found.telemetry["gpus"]] == [0.5, 2.0]
    assert found.telemetry["gpu_joules"] == 2.5


def test_a_device_is_found_by_its_uuid_whatever_place_cuda_gives_it(planted):
    assert one_gpu(read(GpuWatch(planted.UUIDS[1:2])))["sm_mhz"]["mean"] == 1410


def test_a_slice_of_a_device_is_found_and_tells_what_it_can(planted):
    planted.fail(NOT_SUPPORTED, device=2)
    planted.fail(0, "memory_b", device=2)
    planted.plant(2, memory_b=3 * 2**20)
    found = read(GpuWatch(planted.UUIDS[2:]))

    assert one_gpu(found).keys() & SENSORS == {"memory_mib"}
    assert one_gpu(found)["memory_mib"] == 3
    assert "gpu_joules" not in found.telemetry


def test_energy_is_given_only_where_every_device_has_it(planted):
    planted.fail(NOT_SUPPORTED, "instant_mw", "power_mw", "energy_mj", device=1)
    found = read(GpuWatch(planted.UUIDS[:2]))

    assert "joules" in found.telemetry["gpus"][0]
    assert "joules" not in found.telemetry["gpus"][1]
    assert "gpu_joules" not in found.telemetry


def test_two_sources_of_energy_are_both_named(planted):
    planted.fail(NOT_SUPPORTED, "energy_mj", device=1)
    found = read(GpuWatch(planted.UUIDS[:2]), 0.12, lambda: planted.plant(energy_mj=10_002_000))

    assert found.telemetry["gpu_joules_from"] == "counter and power"


@pytest.mark.parametrize(("bit", "reason"), THROTTLE_REASONS.items())
def test_what_slows_a_device_down_marks_the_row(planted, bit, reason):
    planted.plant(reasons=bit)
    found = read(GpuWatch(planted.UUIDS[:1]))

    assert (one_gpu(found)["throttled"], found.marks) == ([reason], [THROTTLED_MARK])


@pytest.mark.parametrize("bit", [0x1, 0x2, 0x10, 0x100, 0x400])
def test_idleness_set_clocks_displays_and_the_top_of_the_curve_are_no_throttling(planted, bit):
    planted.plant(reasons=bit)
    found = read(GpuWatch(planted.UUIDS[:1]))

    assert (one_gpu(found)["throttled"], found.marks) == ([], [])


def test_reasons_of_all_samples_are_told(planted):
    planted.plant(reasons=0x4)
    found = read(GpuWatch(planted.UUIDS[:1]), meanwhile=between_readings(planted, lambda: planted.plant(reasons=0x21)))

    assert one_gpu(found)["throttled"] == ["power-cap", "software-thermal"]


def test_a_throttled_window_marks_exactly_the_rows_inside_it(planted):
    watch = GpuWatch(planted.UUIDS[:2])
    marks = []
    for row in range(9):
        if row == 3:
            planted.plant(1, reasons=0x80)
        if row == 6:
            planted.plant(1, reasons=0x1)
        marks.append(read(watch, 0.01).marks)

    assert marks == [[]] * 3 + [[THROTTLED_MARK]] * 3 + [[]] * 3


def test_throttling_that_begins_and_ends_inside_a_row_marks_it(planted):
    watch = GpuWatch(planted.UUIDS[:1])

    def throttle():
        planted.plant(reasons=0x8)
        between_readings(planted, lambda: planted.plant(reasons=0))()

    assert read(watch, meanwhile=between_readings(planted, throttle)).marks == [THROTTLED_MARK]
    assert read(watch).marks == []


def test_another_process_on_the_device_marks_the_row(planted):
    planted.processes(0, 1, os.getpid(), 7)
    found = read(GpuWatch(planted.UUIDS[:1]))

    assert (one_gpu(found)["others"], found.marks) == (2, [CONTENTION_MARK])


@pytest.mark.parametrize("pids", [(), (4711,), (4711, 4712)])
def test_where_this_process_is_not_listed_nobody_is_called_a_stranger(planted, pids):
    planted.processes(0, *pids)
    found = read(GpuWatch(planted.UUIDS[:1]))

    assert "others" not in one_gpu(found)
    assert found.marks == []


def test_a_driver_that_dies_in_mid_row_ends_its_telemetry_and_not_the_run(planted):
    watch = GpuWatch(planted.UUIDS[:2])
    whole = read(watch)
    broken = read(watch, meanwhile=between_readings(planted, lambda: planted.driver(GPU_IS_LOST)))
    after = read(watch)

    assert "gpu_joules" in whole.telemetry
    assert broken.telemetry["gpu_problem"] == "NVML: GPU is lost"
    assert broken.telemetry["gpus"][0]["sm_mhz"]["mean"] == 1980
    assert "gpu_joules" not in broken.telemetry
    assert (after.telemetry, after.marks) == ({"gpus": [], "gpu_problem": "NVML: GPU is lost"}, [])


def test_a_driver_that_comes_back_is_read_again(planted):
    watch = GpuWatch(planted.UUIDS[:1])
    planted.driver(UNKNOWN)
    assert read(watch).telemetry["gpu_problem"] == "NVML: Unknown Error"
    planted.driver(0)

    assert one_gpu(read(watch))["celsius"] == 61


def test_a_driver_that_hangs_costs_its_patience_once(planted, monkeypatch):
    monkeypatch.setattr(gpu, "_PATIENCE_S", 0.5)
    watch = GpuWatch(planted.UUIDS[:1])
    first = read(watch, meanwhile=lambda: planted.hang(True))
    began = time.perf_counter()
    second = read(watch, 0.0)
    waited = time.perf_counter() - began
    planted.hang(False)

    assert first.telemetry["gpu_problem"] == second.telemetry["gpu_problem"] == "NVML: a call does not return"
    assert "gpu_joules" not in first.telemetry
    assert waited < 0.5
    time.sleep(0.1)
    assert "gpu_joules" in read(watch).telemetry


def test_a_driver_that_hangs_from_the_first_call_does_not_hang_the_run(planted, monkeypatch):
    monkeypatch.setattr(gpu, "_PATIENCE_S", 0.1)
    watch = GpuWatch(planted.UUIDS[:1])
    planted.hang(True)

    assert read(watch).telemetry == {"gpus": [], "gpu_problem": "NVML: a call does not return"}
    planted.hang(False)
    for thread in threading.enumerate():  # its one call returns before another test counts calls
        if thread.name == "gpu-watch":
            thread.join(0.5)


@pytest.mark.parametrize("code", [DRIVER_NOT_LOADED, UNKNOWN])
def test_without_a_driver_nothing_is_read_and_the_manifest_says_why(planted, code):
    planted.driver(code)
    calls = planted.calls

    assert read(GpuWatch(planted.UUIDS[:1])) == gpu.Reading({}, [])
    assert planted.calls == calls
    why = {DRIVER_NOT_LOADED: "Driver Not Loaded", UNKNOWN: "Unknown Error"}[code]
    assert describe(planted.UUIDS[:1]) == {"problem": f"NVML: {why}"}


def test_without_a_library_nothing_is_read_and_the_manifest_says_why(monkeypatch):
    import pynvml

    def no_library(name):
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "CDLL", no_library)

    assert read(GpuWatch(["a"])) == gpu.Reading({}, [])
    assert describe(["a"]) == {"problem": "NVML: NVML Shared Library Not Found"}


def test_without_pynvml_nothing_is_read_and_the_manifest_names_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert read(GpuWatch(["a"])) == gpu.Reading({}, [])
    assert describe(["a"]) == {"problem": "NVML: pynvml is not installed (package nvidia-ml-py)"}


def test_a_device_that_nvml_does_not_know_is_told(planted):
    assert read(GpuWatch(["dddd"])) == gpu.Reading({}, [])
    assert describe(["dddd"]) == {"problem": "NVML: no device has the UUID dddd"}


def test_a_device_without_a_sensor_that_answers_is_told(planted):
    planted.fail(NOT_SUPPORTED)

    assert describe(planted.UUIDS[:1]) == {"problem": f"NVML: no sensor of {planted.UUIDS[0]} answers"}


def test_the_manifest_gets_driver_and_power_limit_of_each_device(planted):
    planted.fail(NOT_SUPPORTED, "limit_mw", device=1)
    first, second = describe(planted.UUIDS[:2])["gpus"]

    uuid = f"GPU-{planted.UUIDS[0]}"
    assert first == {"name": "Paper 100", "uuid": uuid, "driver": "999.1", "power_limit_w": 700.0}
    assert second == {"name": "Paper 200", "uuid": f"GPU-{planted.UUIDS[1]}", "driver": "999.1"}


def test_all_devices_are_named_whichever_cuda_shows(planted):
    names, driver = names_and_driver()

    assert names == ["Paper 100", "Paper 200", "Paper 200 MIG 1g"]
    assert driver == "999.1"


def test_devices_of_a_driver_that_is_not_there_are_not_named(planted):
    planted.driver(DRIVER_NOT_LOADED)

    with pytest.raises(NvmlError, match="NVML: Driver Not Loaded"):
        names_and_driver()


def test_the_watch_of_a_run_reads_cpu_and_gpus_together(planted):
    planted.plant(reasons=0x4)
    watch = Watch(planted.UUIDS[:1])
    watch.start()
    found = watch.stop()

    assert {"others_cores", "gpus", "gpu_joules"} <= found.telemetry.keys()
    assert THROTTLED_MARK in found.marks


def test_at_its_own_pace_the_thread_takes_less_than_a_hundredth_of_the_time(planted, monkeypatch):
    monkeypatch.setattr(gpu, "PERIOD_S", OWN_PERIOD_S)
    found = read(GpuWatch(planted.UUIDS[:2]), 1.0)

    assert 0.0 < found.telemetry["gpu_watch_share"] < 0.01


def test_a_run_without_a_gpu_imports_neither_pynvml_nor_what_reads_it():
    script = (
        "import sys; from hardware_profiles.watch import Watch; watch = Watch(); watch.start(); watch.stop();"
        "assert not {'pynvml', 'hardware_profiles.nvml', 'hardware_profiles.gpu'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_pynvml_finds_the_library_by_its_own_search(nvml_library):
    script = (
        "import os; from hardware_profiles.gpu import GpuWatch; from hardware_profiles.nvml import describe;"
        "import pynvml; pynvml.nvmlInit(); pynvml.nvmlLib.fake_reset();"
        "print(describe(['aaaaaaaa-0000-0000-0000-000000000000'])['gpus'][0]['name']);"
        "watch = GpuWatch(['aaaaaaaa-0000-0000-0000-000000000000']); watch.start(); print(watch.stop().marks)"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nvml_library.parent)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "Paper 100\n[]\n"
