"""The lean engine beside the reference: forwards of the shipped pair, interleaved in one run.

A slow proof, which prints its figures: `python -m pytest -m slow tests/micro/test_micro_engines.py -rP`.
"""

from statistics import median
from time import perf_counter

import numpy as np
import pytest

from harness.models.loading import load_pair
from harness.models.pair import get_pair

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.smollm2, pytest.mark.usefixtures("every_core")]

CONTEXT = 256
REPEATS = 15


@pytest.fixture(scope="module", params=["bf16", "fp32"])
def engines(request):
    """Target and middle with each engine."""
    loaded = {
        engine: load_pair(get_pair("smollm2"), dtype=request.param, device="cpu", engine=engine).models
        for engine in ("lean", "hf")
    }
    print(f"{request.param}: {loaded['lean'].target.engine.details}")  # noqa: T201 - `-rP` shows it
    return loaded


def forward_ms(model, nodes):
    started = perf_counter()
    model.evaluate([50] * nodes, range(nodes), np.tri(nodes, dtype=np.bool_))
    taken = 1e3 * (perf_counter() - started)
    model.commit([])
    return taken


@pytest.mark.parametrize(
    ("role", "nodes"), [("target", 1), ("target", 8), ("target", 16), ("target", 32), ("middle", 16)]
)
def test_a_lean_forward_takes_less_than_the_references(engines, role, nodes):
    models = {engine: getattr(loaded, role) for engine, loaded in engines.items()}
    for model in models.values():
        model.begin(CONTEXT + nodes)
        model.prefill([50] * CONTEXT)
        forward_ms(model, nodes)
    taken = {engine: [] for engine in models}
    for _ in range(REPEATS):
        for engine, model in models.items():
            taken[engine].append(forward_ms(model, nodes))

    lean, reference = median(taken["lean"]), median(taken["hf"])
    print(f"{role}, {nodes} nodes: lean {lean:.1f} ms, {lean / reference:.2f} of hf")  # noqa: T201 - `-rP` shows it
    assert lean < reference
