"""A run whose GPUs are watched, as a small libnvidia-ml tells them; on a real one: tests/gpu."""

import json
from collections import Counter

import pytest

from hardware_profiles import gpu
from hardware_profiles.profile import write_profile
from harness.models import gpus
from harness.records.manifest import read_manifest
from harness.records.rows import read_rows
from harness.run.block_runner import BlockRunner
from harness.run.execution import run
from reports.tables import render_report

KEYS = {"pair": "toy", "data": "embedded", "tasks": ["nq"], "limit": 3, "max_new_tokens": 64, "threads": 1}
METHODS = ["autoregressive", "all-small"]


@pytest.fixture
def on_gpus(nvml, monkeypatch):
    """Let runs believe that the toy pair lies on GPUs of the small libnvidia-ml."""
    nvml.plant(instant_mw=250_000, sm_mhz=1755, memory_mhz=2619, celsius=48, busy_pct=80, memory_b=2**30)
    nvml.plant(limit_mw=700_000)
    monkeypatch.setattr(gpus, "_indices", lambda models: {0})
    monkeypatch.setattr(gpus, "_uuid", lambda index: nvml.UUIDS[index])
    monkeypatch.setattr(gpu, "PERIOD_S", 0.002)
    return nvml


@pytest.fixture
def go(tmp_path):
    def go(**changes):
        run(out=str(tmp_path / "run"), **{**KEYS, "methods": METHODS, **changes})
        return tmp_path / "run"

    return go


def answers_meanwhile(monkeypatch, act):
    """Call `act(number)` before each answer, those of the warm-up aside."""
    answer, seen = BlockRunner._answer, []

    def acting(self, method, prompt, params):
        if self._counting:
            act(len(seen))
            seen.append(method)
        return answer(self, method, prompt, params)

    block = BlockRunner.run_block

    def counting(self, *arguments):
        self._counting = True
        return block(self, *arguments)

    monkeypatch.setattr(BlockRunner, "_counting", False, raising=False)
    monkeypatch.setattr(BlockRunner, "run_block", counting)
    monkeypatch.setattr(BlockRunner, "_answer", acting)


def test_rows_manifest_and_report_show_the_numbers_planted(on_gpus, go):
    folder = go()
    rows = list(read_rows(folder))

    assert len(rows) == 6
    for row in rows:
        (device,) = row.telemetry["gpus"]
        assert (device["sm_mhz"]["min"], device["celsius"], device["memory_mib"]) == (1755, 48, 1024)
        assert row.telemetry["gpu_joules"] == pytest.approx(250 * device["seconds"], abs=1e-3)
        assert device["seconds"] >= row.e2e_s
        assert "gpu-throttled" not in row.marks
    (start,) = read_manifest(folder).starts
    assert start.machine["nvml"]["gpus"][0]["power_limit_w"] == 700.0
    report = json.loads(render_report(folder, "json"))
    assert {(line["watts"], line["sm_mhz"], line["celsius"]) for line in report["gpus"]} == {(250, 1755, 48)}
    for line in report["gpus"]:
        own = [row for row in rows if row.method == line["method"]]
        product = 1.0
        for row in own:
            product *= row.telemetry["gpu_joules"] / row.committed
        assert line["joules_per_token"] == pytest.approx(product ** (1 / len(own)))


def test_a_throttled_window_marks_exactly_the_rows_inside_it(on_gpus, go, monkeypatch):
    answers_meanwhile(monkeypatch, lambda number: on_gpus.plant(reasons=0x40 if 1 <= number <= 3 else 0))
    folder = go()

    assert ["gpu-throttled" in row.marks for row in read_rows(folder)] == [False, True, True, True, False, False]
    report = json.loads(render_report(folder, "json"))
    assert sum(line["throttled"] for line in report["gpus"]) == 3


def test_a_driver_that_dies_in_mid_run_costs_telemetry_and_no_row(on_gpus, go, monkeypatch):
    answers_meanwhile(monkeypatch, lambda number: on_gpus.driver(15 if number >= 2 else 0))
    folder = go()
    rows = list(read_rows(folder))

    assert Counter(row.status for row in rows) == {"ok": 6}
    assert ["gpu_joules" in row.telemetry for row in rows] == [True, True, False, False, False, False]
    assert {row.telemetry.get("gpu_problem") for row in rows[2:]} == {"NVML: GPU is lost"}
    report = json.loads(render_report(folder, "json"))
    assert sum(line["lacking"] for line in report["gpus"]) == 4


def test_a_run_without_a_driver_says_so_once_in_the_manifest_and_goes_on(on_gpus, go):
    on_gpus.driver(9)
    folder = go()

    assert [start.machine["nvml"] for start in read_manifest(folder).starts] == [{"problem": "NVML: Driver Not Loaded"}]
    assert all("gpus" not in row.telemetry and "gpu_problem" not in row.telemetry for row in read_rows(folder))
    assert "J/token" not in render_report(folder, "table")


def test_a_profile_clock_keeps_no_telemetry_of_the_machine_that_it_ran_on(on_gpus, go, profile, tmp_path):
    write_profile(profile, tmp_path / "plain.yaml")
    rows = list(read_rows(go(clock=f"profile:{tmp_path / 'plain.yaml'}")))

    assert all(row.telemetry == {} for row in rows)


def test_a_run_on_a_cpu_asks_nvml_nothing(nvml, go):
    folder = go()

    assert nvml.calls == 0
    assert "nvml" not in read_manifest(folder).starts[0].machine
    assert all("gpus" not in row.telemetry for row in read_rows(folder))
