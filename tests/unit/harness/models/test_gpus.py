"""Which devices a run watches."""

from types import SimpleNamespace

import pytest
import torch

from harness.models.gpus import gpu_names, gpu_uuids
from harness.records.provenance import device_line, machine


def model(*devices, layout=None):
    parameters = [SimpleNamespace(device=torch.device(device)) for device in devices]
    return SimpleNamespace(model=SimpleNamespace(parameters=lambda: parameters, hf_device_map=layout))


def models(target, middle=None, small=None):
    return SimpleNamespace(target=target, middle=middle, small=small)


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    """Four devices, the UUID of each its own letter."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="abcd"[index]))


def test_a_run_on_the_cpu_uses_none():
    assert gpu_uuids(models(model("cpu"), model("cpu", "meta"))) == []


def test_the_devices_of_all_models_are_used_each_once():
    assert gpu_uuids(models(model("cuda:2", "cuda:2"), model("cuda:0"), model("cuda:2"))) == ["a", "c"]


def test_a_device_without_a_number_is_the_first():
    assert gpu_uuids(models(model("cuda"))) == ["a"]


def test_a_model_laid_out_over_several_uses_all_of_them():
    layout = {"embed": 0, "layers.0": 1, "layers.1": 3, "head": "cpu"}
    assert gpu_uuids(models(model("cuda:0", "cuda:1", "meta", layout=layout))) == ["a", "b", "d"]


def test_a_model_laid_out_on_the_cpu_uses_none():
    assert gpu_uuids(models(model("cpu", layout={"": "cpu", "head": "disk"}))) == []


def test_the_devices_are_named_in_the_same_order(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: ["Paper 100", "Paper 200"][index])
    assert gpu_names(models(model("cuda:1"), model("cuda:0"))) == ["Paper 100", "Paper 200"]


HOST = {"cpu": "Abacus", "threads": 4}


@pytest.mark.parametrize(
    ("facts", "gpus", "line"),
    [
        ({}, [], "Abacus, 4 threads"),
        ({"gpus": ["Paper 100"]}, [], "Abacus, 4 threads"),
        ({"nvml": {"gpus": [{"driver": "999.1"}]}}, ["Paper 100"], "Paper 100 (driver 999.1); host Abacus, 4 threads"),
        (
            {"nvml": {"gpus": [{"driver": "9"}, {"driver": "9"}]}},
            ["Paper 1", "Paper 2"],
            "Paper 1, Paper 2 (driver 9); host Abacus, 4 threads",
        ),
        ({"nvml": {"problem": "none"}}, ["Paper 100"], "Paper 100; host Abacus, 4 threads"),
    ],
    ids=["a cpu", "a cpu beside a gpu", "a gpu", "two gpus", "a gpu without nvml"],
)
def test_a_profile_names_what_computed_and_what_launched(facts, gpus, line):
    assert device_line({**HOST, **facts}, gpus) == line


def test_the_manifest_of_a_run_on_the_cpu_says_nothing_of_nvml():
    assert "nvml" not in machine()


def test_the_manifest_of_a_run_on_a_gpu_names_driver_and_power_limit(nvml):
    nvml.plant(limit_mw=700_000)
    (found,) = machine(nvml.UUIDS[:1])["nvml"]["gpus"]

    assert (found["driver"], found["power_limit_w"]) == ("999.1", 700.0)


def test_the_manifest_of_a_run_on_a_gpu_without_a_driver_says_so(nvml):
    nvml.driver(9)
    assert machine(nvml.UUIDS[:1])["nvml"] == {"problem": "NVML: Driver Not Loaded"}
