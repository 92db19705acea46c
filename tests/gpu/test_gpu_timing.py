"""How a GPU is timed: phases by events, nothing waits that need not, and the board is watched."""

import dataclasses
import math
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch

from hardware_profiles.profile import get_profile
from hardware_profiles.watch import Watch
from harness.models.gpus import gpu_uuids
from harness.records.manifest import read_manifest
from harness.records.rows import read_rows
from harness.run.execution import run
from methods import tree_method
from methods.core.engines.hf import HuggingFaceEngine
from methods.core.model import TreeModel
from methods.core.stopwatch import Stopwatch
from treegraft.cli.main import invoke

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]  # other versions than the pinned ones warn

INTERLEAVED = 6
CHAIN = [5, 9, 2, 7, 11, 3, 8, 1]


@pytest.mark.parametrize("name", ["all-small", "treegraft-fixed", "csd"])
def test_phases_add_up_to_the_decode_time(real, decoder, text, name):
    method = decoder(real, name)
    method.generate(*text)
    answer = method.generate(*text)

    share = math.fsum(dataclasses.astuple(answer.spans)) / answer.decode_s
    print(f"{name}: the phases are {share:.4f} of {answer.decode_s:.2f} s; {answer.spans}")  # noqa: T201 - `-rP` shows it
    assert share == pytest.approx(1.0, abs=0.02)
    assert answer.spans.verify_s > answer.spans.scheduler_s


def test_timing_phases_costs_no_time(real, decoder, text, monkeypatch):
    method = decoder(real, "treegraft-fixed")
    method.generate(*text)
    logs = []
    for turn in range(INTERLEAVED):
        seconds = {}
        for spans in (True, False) if turn % 2 else (False, True):
            monkeypatch.setattr(tree_method, "Stopwatch", partial(Stopwatch, spans=spans))
            answer = method.generate(*text)
            assert (answer.spans is not None) == spans
            seconds[spans] = answer.decode_s
        logs.append(math.log(seconds[True] / seconds[False]))

    ratio = math.exp(math.fsum(logs) / len(logs))
    print(f"with phases {ratio:.4f} times the time without, {INTERLEAVED} interleaved pairs")  # noqa: T201 - as above
    assert ratio == pytest.approx(1.0, abs=0.1)


@contextmanager
def nothing_waits():
    """Let every operation that waits for the device fail."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def evaluate_and_commit(model, guard):
    """Evaluate a chain twice behind a prompt and keep every other node, after a first time that warms up."""
    visible = np.tri(len(CHAIN), dtype=np.bool_)
    for allowed in (True, False):
        model.begin(64)
        model.prefill(CHAIN)
        torch.cuda.synchronize()
        if allowed:
            model.evaluate(CHAIN, range(len(CHAIN)), visible)
            model.commit([0, 2, 5])
            continue
        with guard():
            for _ in range(2):
                model.evaluate(CHAIN, range(len(CHAIN)), visible)
                model.commit([0, 2, 5])
    assert model.length == len(CHAIN) + 6


@pytest.mark.parametrize("role", ["target", "middle"])
def test_neither_a_forward_nor_a_commit_waits_for_the_device(real, role):
    evaluate_and_commit(getattr(real.models, role), nothing_waits)


class Waiting(HuggingFaceEngine):
    """A mutant: sends token ids from memory that is not pinned."""

    def _inputs(self, tokens, positions):
        return {**super()._inputs(tokens, positions), "input_ids": torch.tensor([tokens], device=self._model.device)}


def test_a_forward_that_waits_is_found(real):
    middle = real.models.middle.model
    with pytest.raises(RuntimeError, match="synchronizing CUDA operation"):
        evaluate_and_commit(TreeModel(middle, Waiting(middle)), nothing_waits)


def test_the_board_is_watched_at_less_than_a_hundredth_of_the_time(real, decoder, text):
    method = decoder(real, "autoregressive")
    method.generate(*text)
    watch = Watch(gpu_uuids(real.models))
    watch.start()
    method.generate(*text)
    telemetry = watch.stop().telemetry

    print(telemetry)  # noqa: T201 - as above
    assert "gpu_problem" not in telemetry
    (device,) = telemetry["gpus"]
    assert device["seconds"] > 1.0
    assert telemetry["gpu_joules"] > 0.0
    assert device["watts"] > 0.0
    assert 0 < device["sm_mhz"]["min"] <= device["sm_mhz"]["mean"] <= device["sm_mhz"]["max"]
    assert device["memory_mhz"]["min"] > 0
    assert 0 < device["celsius"] < 120
    assert telemetry["gpu_watch_share"] < 0.01


def test_a_run_on_a_gpu_keeps_energy_in_its_rows_and_driver_and_limit_in_its_manifest(cuda, tmp_path):
    keys = {"pair": "toy", "data": "embedded", "tasks": ["nq"], "limit": 2, "max_new_tokens": 48, "device": cuda}
    run(out=str(tmp_path / "run"), methods=["autoregressive", "all-small", "treegraft-fixed"], **keys)
    (start,) = read_manifest(tmp_path / "run").starts
    (known,) = start.machine["nvml"]["gpus"]
    rows = list(read_rows(tmp_path / "run"))

    assert known["driver"]
    assert len(rows) == 6
    for row in rows:
        (device,) = row.telemetry["gpus"]
        assert row.verdict in ("reference", "identical")
        assert row.telemetry["gpu_joules"] > 0.0
        assert 0.0 < device["watts"] <= 1.5 * known.get("power_limit_w", float("inf"))
        assert math.fsum(dataclasses.astuple(row.spans)) == pytest.approx(row.decode_s, rel=0.02)


@pytest.mark.usefixtures("room")
def test_a_profile_is_measured_without_weights_or_a_network(cuda, kept):
    file = kept / "h200.yaml"
    flags = ["--random-weights", "--device", cuda, "--pair", "qwen3-8b-0.6b", "--out", str(file)]

    assert invoke(["profile", *flags]) == 0
    profile = get_profile(str(file))
    print(f"{profile.device}: {profile.errors}, {profile.costs}")  # noqa: T201 - as above
    assert (profile.weights, profile.pair, profile.dtype) == ("random", "qwen3-8b-0.6b", "bfloat16")
    assert profile.device.startswith(torch.cuda.get_device_name(cuda))
    assert set(profile.forwards) == set(profile.prefill) == {"target", "middle"}
    assert profile.forward_ms("target", 1, 256) > profile.forward_ms("middle", 1, 256) > 0
    assert profile.measured_with["gpu_joules"] > 0
