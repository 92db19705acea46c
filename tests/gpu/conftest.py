"""A real GPU and a real model's shape; without CUDA everything here is skipped."""

import os
import warnings
from pathlib import Path

import pytest

_LEAST_GIB = 40  # Qwen3-8B in bf16 twice, for a profile makes a pair of its own, and what decoding needs


@pytest.fixture(scope="session", autouse=True)
def cuda():
    """The device of all tests, as a flag names it."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch built for CUDA warns where there is no driver
        found = torch.cuda.is_available()
    if not found:
        pytest.skip("no CUDA device that torch sees")
    return "cuda:0"


@pytest.fixture(scope="session")
def toy(cuda):
    """The toy pair in fp32, whose logits are far apart."""
    from harness.models.loading import load_pair
    from harness.models.pair import get_pair

    return load_pair(get_pair("toy"), dtype="fp32", device=cuda)


@pytest.fixture(scope="session")
def room(cuda):
    """Skip where a real model's shape does not fit."""
    import torch

    gib = torch.cuda.get_device_properties(cuda).total_memory / 2**30
    if gib < _LEAST_GIB:
        pytest.skip(f"the GPU has {gib:.0f} GiB of memory; a real model's shape needs {_LEAST_GIB}")


@pytest.fixture(scope="session")
def real(cuda, room):
    """Qwen3-8B with Qwen3-0.6B: their shapes, random weights in bf16."""
    from harness.models.pair import get_pair
    from harness.models.random_weights import random_pair

    return random_pair(get_pair("qwen3-8b-0.6b"), dtype="bf16", device=cuda)


@pytest.fixture(scope="session")
def decoder():
    """Make a catalogue's method over a loaded pair."""
    from methods.catalog import load_family, resolve

    def make(loaded, name):
        spec = resolve(name, definitions={}, pair=loaded.pair.defaults, config={}, flags={})
        return load_family(spec.family)(loaded.models, spec.settings)

    return make


@pytest.fixture(scope="session")
def text(real):
    """A prompt for the real pair, and parameters that let it commit 64 tokens of which look-up finds about half."""
    from harness.profiling.texts import ANSWER, random_texts
    from methods.core.sampling import DecodingParams

    first, *_ = random_texts(real.models.middle.vocab_size, 0)
    return first.prompt, DecodingParams(ANSWER, reference=first.answer)


@pytest.fixture
def kept(tmp_path):
    """Where to write what is worth keeping: the folder that OUT names, else the test's own."""
    return Path(os.environ.get("OUT") or tmp_path)
