"""Joules per committed token and the state of the GPUs in a report."""

import json
import math

import pytest

from hardware_profiles import gpu
from reports import gpu_use
from reports.tables import FORMATS, render_report

TITLE = "Energy and state of the GPUs"


def telemetry(joules, source="counter", watts=300.0, lowest=1900, celsius=60):
    device = {"watts": watts, "sm_mhz": {"mean": 1950.0, "min": lowest, "max": 1980}, "celsius": celsius}
    energy = {} if joules is None else {"gpu_joules": joules, "gpu_joules_from": source}
    return {"telemetry": {"gpus": [device], **energy}}


@pytest.fixture
def watched(row):
    """Eight prompts of ten tokens; the baseline takes 40 J each, the tree 10 J."""
    return [
        row(method, q, seconds, **telemetry(joules))
        for q in range(1, 9)
        for method, seconds, joules in (("autoregressive", 1.0, 40.0), ("tree", 0.5, 10.0))
    ]


def lines(folder):
    return {line["method"]: line for line in json.loads(render_report(folder, "json"))["gpus"]}


def test_joules_per_token_are_those_of_the_rows(run_folder, watched):
    found = lines(run_folder(watched))

    assert found["autoregressive"]["joules_per_token"] == pytest.approx(4.0)
    assert found["tree"]["joules_per_token"] == pytest.approx(1.0)
    assert found["tree"]["saving"] == pytest.approx(4.0)
    assert (found["tree"]["n"], found["tree"]["counted"], found["tree"]["lacking"]) == (8, 8, 0)
    assert (found["tree"]["watts"], found["tree"]["sm_mhz"], found["tree"]["celsius"]) == (300, 1900, 60)


def test_prompts_weigh_the_same_and_have_an_interval(run_folder, row):
    joules = [10.0, 20.0, 40.0, 80.0]
    rows = [row(method, q, **telemetry(j)) for q, j in enumerate(joules) for method in ("autoregressive", "tree")]
    tree = lines(run_folder(rows))["tree"]

    assert tree["joules_per_token"] == pytest.approx(math.prod(joules) ** 0.25 / 10)
    assert tree["ci_low"] < tree["joules_per_token"] < tree["ci_high"]
    assert tree["saving_low"] == tree["saving_high"] == pytest.approx(1.0)  # paired: prompts differ, methods do not


def test_the_turns_of_a_conversation_are_one_prompt(run_folder, row):
    rows = [
        row(method, 1, turn=turn, committed=tokens, **telemetry(joules))
        for turn, tokens, joules in ((0, 10, 5.0), (1, 30, 35.0))
        for method in ("autoregressive", "tree")
    ]
    tree = lines(run_folder(rows))["tree"]

    assert (tree["n"], tree["joules_per_token"]) == (1, pytest.approx(1.0))
    assert tree["ci_low"] is None


def test_tokens_that_prefill_yielded_cost_energy_too(run_folder, row):
    rows = [row("autoregressive", **telemetry(40.0)), row("peer", peer=True, **telemetry(20.0))]

    assert lines(run_folder(rows))["peer"]["joules_per_token"] == pytest.approx(2.0)


def test_rows_without_joules_are_counted_and_their_prompts_left_out(run_folder, watched):
    watched[3] = watched[3].model_copy(update=telemetry(None))
    watched[5] = watched[5].model_copy(update={"telemetry": {}})
    tree = lines(run_folder(watched))["tree"]

    assert (tree["lacking"], tree["n"], tree["counted"]) == (2, 6, 6)
    assert tree["joules_per_token"] == pytest.approx(1.0)


def test_energy_from_power_samples_is_told_apart(run_folder, watched):
    watched[1] = watched[1].model_copy(update=telemetry(10.0, "power"))
    watched[3] = watched[3].model_copy(update=telemetry(10.0, "counter and power"))
    run = run_folder(watched)

    assert (lines(run)["tree"]["counted"], lines(run)["tree"]["integrated"]) == (6, 2)
    section = render_report(run, "table").partition(TITLE)[2]
    assert "6/8" in next(line for line in section.split("\n") if line.startswith("tree"))


def test_marked_rows_are_counted_by_what_marked_them(run_folder, watched):
    watched[1] = watched[1].model_copy(update={"marks": ["gpu-throttled"]})
    watched[3] = watched[3].model_copy(update={"marks": ["gpu-throttled", "gpu-contention"]})
    watched[5] = watched[5].model_copy(update={"marks": ["cpu-contention"]})
    tree = lines(run_folder(watched))["tree"]

    assert (tree["throttled"], tree["shared"]) == (2, 1)
    assert (tree["throttled_of"], tree["shared_of"]) == (2, 1)  # of the others nobody knows


def test_where_nobody_can_tell_nobody_says_that_nothing_happened(run_folder, watched):
    def told(at, throttled, others, **more):
        seen = watched[at].telemetry
        device = {**seen["gpus"][0], "throttled": throttled, "others": others}
        changes = {"gpus": [{key: value for key, value in device.items() if value is not None}], **more}
        watched[at] = watched[at].model_copy(update={"telemetry": {**seen, **changes}})

    told(1, [], 0)
    told(3, [], None)
    told(5, ["heat"], 2)  # the watch marked it
    watched[5] = watched[5].model_copy(update={"marks": ["gpu-throttled", "gpu-contention"]})
    told(7, [], 0, gpu_problem="NVML: it fell silent")
    run = run_folder(watched)
    tree = lines(run)["tree"]

    assert (tree["throttled"], tree["throttled_of"], tree["shared"], tree["shared_of"]) == (1, 3, 1, 2)
    section = render_report(run, "table").partition(TITLE)[2].split("\n")
    assert next(line for line in section if line.startswith("tree")).split()[-4:-2] == ["1/3", "1/2"]
    assert next(line for line in section if line.startswith("autoregressive")).split()[-4:-2] == ["–", "–"]


def test_marks_bear_the_names_that_the_watch_gives_them():
    assert (gpu_use.THROTTLED_MARK, gpu_use.CONTENTION_MARK) == (gpu.THROTTLED_MARK, gpu.CONTENTION_MARK)


def test_several_devices_are_added_up_and_the_slowest_and_the_hottest_shown(run_folder, row):
    devices = [
        {"watts": 300.0, "sm_mhz": {"min": 1900}, "celsius": 60},
        {"watts": 100.0, "sm_mhz": {"min": 1200}, "celsius": 71},
    ]
    rows = [row("autoregressive", telemetry={"gpus": devices, "gpu_joules": 40.0, "gpu_joules_from": "power"})]
    line = lines(run_folder(rows))["autoregressive"]

    assert (line["watts"], line["sm_mhz"], line["celsius"], line["integrated"]) == (400, 1200, 71, 1)


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_without_a_gpu_has_no_such_section(run_folder, row, format):
    text = render_report(run_folder([row("autoregressive"), row("tree")]), format)

    assert TITLE not in text
    assert "J/token" not in text


@pytest.mark.parametrize("format", ["table", "markdown", "latex"])
def test_the_section_shows_numbers_and_what_they_mean(run_folder, watched, format):
    text = render_report(run_folder(watched), format)

    assert TITLE in text
    assert "4.00 " in text.partition(TITLE)[2]
    assert "joules of whole boards" in text
    if format == "table":
        assert max(map(len, text.split("\n"))) <= 120
    if format == "latex":
        assert all(ord(sign) < 128 for line in text.split("\n") if not line.startswith("%") for sign in line)


@pytest.mark.parametrize(
    "odd",
    [
        {"gpus": 3},
        {"gpus": [None, "x"]},
        {"gpus": [], "gpu_problem": "NVML: GPU is lost"},
        {"gpus": [{"watts": "hot", "sm_mhz": [1], "celsius": None}], "gpu_joules": "many"},
        {"gpus": [{"sm_mhz": {"min": -3}}], "gpu_joules": float("nan")},
        {"gpus": [{}], "gpu_joules": -4.0},
        {"gpus": [{}], "gpu_joules": True},
    ],
)
def test_telemetry_of_another_shape_counts_as_lacking(run_folder, watched, odd):
    watched[1] = watched[1].model_copy(update={"telemetry": odd})
    tree = lines(run_folder(watched))["tree"]

    assert (tree["lacking"], tree["n"]) == (1, 7)
