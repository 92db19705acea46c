"""What deciding and growing take beside a target forward of the shipped pair, each pair of times from one run.

Slow proofs, which print their figures: `python -m pytest -m slow tests/micro -rP`.
"""

from collections import defaultdict
from statistics import median
from time import perf_counter

import numpy as np
import pytest

from harness.models.loading import load_pair
from harness.models.pair import get_pair
from harness.models.prompts import conversation, prompt_ids
from methods.calibrated.survival_tree import SurvivalTree
from methods.catalog import load_family, resolve
from methods.core.sampling import DecodingParams
from methods.latency import Latency
from methods.schedulers.scheduler import DraftState, make_scheduler
from tasks.registry import get_task
from tasks.sources import load_questions

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.smollm2, pytest.mark.usefixtures("every_core")]

LATENCY = Latency(55.6, 16.6)
TOKENS = 64
NODES = 8


@pytest.fixture(scope="module")
def loaded():
    return load_pair(get_pair("smollm2"), dtype="bf16", device="cpu")


@pytest.fixture(scope="module")
def prompts(loaded):
    questions = [
        load_questions(get_task(task), data="embedded").questions[0] for task in ("gsm8k", "cnndm", "humaneval")
    ]
    return [prompt_ids(loaded.models.tokenizer, "chat", conversation(one.turns, [])) for one in questions]


@pytest.fixture
def forward_s(loaded, prompts):
    """Time a target forward of a tree, many times; the median in seconds."""
    target = loaded.models.target
    target.begin(len(prompts[0]) + NODES)
    target.prefill(prompts[0])
    visible = np.tri(NODES, dtype=np.bool_)

    def once():
        started = perf_counter()
        target.evaluate(prompts[0][:NODES], list(range(NODES)), visible)
        target.synchronise()
        taken = perf_counter() - started
        target.commit([])
        return taken

    once()
    return lambda: median(once() for _ in range(15))


@pytest.fixture
def method(loaded):
    def build(name):
        spec = resolve(name, definitions={}, pair=loaded.pair.defaults, config={}, flags={})
        made = load_family(spec.family)(loaded.models, spec.settings)
        made.latency = LATENCY
        return made

    return build


@pytest.fixture
def states(method, prompts, monkeypatch):
    """States of a real answer before its steps, as the shipped scheduler meets them."""
    met = []
    decoder = method("treegraft")
    scheduler = decoder._scheduler
    decide = scheduler.should_call

    def record(state):
        met.append(DraftState(state.tree.copy(), list(state.frontier), state.step, list(state.calls)))
        return decide(state)

    monkeypatch.setattr(scheduler, "should_call", record)
    decoder.generate(prompts[0], DecodingParams(max_new_tokens=TOKENS))
    deciding = [state for state in met if sum(state.calls) < int(LATENCY.target_ms / LATENCY.middle_ms)]
    assert len(deciding) > TOKENS / 2
    return deciding


def test_a_decision_and_its_network_alone(loaded, states, forward_s):
    spec = resolve("treegraft", definitions={}, pair=loaded.pair.defaults, config={}, flags={})
    scheduler = make_scheduler(spec.settings)
    scheduler.begin(100, LATENCY)
    signals = [scheduler.reader.read(state) for state in states]
    before = forward_s()
    whole, alone = [], []
    for _ in range(20):
        whole += seconds_of(scheduler.should_call, states)
        alone += seconds_of(scheduler.margin, signals)
    forward = median([before, forward_s()])
    for what, taken, most in (("decision", median(whole), 0.01), ("network alone", median(alone), 0.002)):
        print(f"{what}: {1e6 * taken:.1f} us, {taken / forward:.3%} of a target forward")  # noqa: T201 - `-rP` shows it
        assert 0 < taken / forward < most


def seconds_of(work, inputs):
    taken = []
    for one in inputs:
        started = perf_counter()
        work(one)
        taken.append(perf_counter() - started)
    return taken


WORK = {"growth": ("__init__", "grow"), "edges": ("fuse", "settle"), "decisions": ("_worth_calling", "_sent")}


def test_a_round_of_calibrated_grafting_beside_its_forwards(method, prompts, forward_s, monkeypatch):
    spent = defaultdict(float)
    decoder = method("treegraft-calibrated")
    for part, names in WORK.items():
        for name in names:
            kind = type(decoder) if part == "decisions" else SurvivalTree
            monkeypatch.setattr(kind, name, timed(getattr(kind, name), spent, part))
    rounds, forwards = 0, []
    for prompt in prompts:
        forwards.append(forward_s())
        rounds += len(decoder.generate(prompt, DecodingParams(max_new_tokens=TOKENS)).rounds)
        forwards.append(forward_s())
    shares = {part: seconds / rounds / median(forwards) for part, seconds in spent.items()}
    print({part: f"{share:.2%}" for part, share in shares.items()})  # noqa: T201 - `-rP` shows it
    assert 0 < sum(shares.values()) < 0.02


def timed(work, spent, part):
    def with_time(*arguments, **keywords):
        started = perf_counter()
        try:
            return work(*arguments, **keywords)
        finally:
            spent[part] += perf_counter() - started

    return with_time
