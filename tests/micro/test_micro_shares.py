"""What deciding and growing take beside a target forward of the shipped pair, each pair of times from one run.

Slow proofs: `python -m pytest -m slow tests/micro -rP` prints the last one's figures; with `--benchmark-enable` the
others have theirs in `extra_info`.
"""

from collections import defaultdict
from statistics import median
from time import perf_counter

import numpy as np
import pytest

from harness.loading import load_pair
from harness.pair import get_pair
from harness.prompts import conversation, prompt_ids
from methods.catalog import load_family, resolve
from methods.core.sampling import DecodingParams
from methods.drafters.survival import SurvivalTree
from methods.schedulers.scheduler import DraftState, Latency, make_scheduler
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
    assert len(met) > TOKENS / 2
    return met


def test_a_decision_with_its_signals(benchmark, loaded, states, forward_s):
    spec = resolve("treegraft", definitions={}, pair=loaded.pair.defaults, config={}, flags={})
    scheduler = make_scheduler(spec.settings)
    scheduler.begin(100, LATENCY)
    before = forward_s()
    benchmark(lambda: [scheduler.should_call(state) for state in states])
    tell_share(benchmark, len(states), before, forward_s(), most=0.01)


def test_a_decision_by_the_network_alone(benchmark, loaded, states, forward_s):
    spec = resolve("treegraft", definitions={}, pair=loaded.pair.defaults, config={}, flags={})
    scheduler = make_scheduler(spec.settings)
    scheduler.begin(100, LATENCY)
    signals = [scheduler.reader.read(state) for state in states]
    before = forward_s()
    benchmark(lambda: [scheduler.margin(one) for one in signals])
    tell_share(benchmark, len(states), before, forward_s(), most=0.002)


def tell_share(benchmark, decisions, before, after, most):
    if benchmark.stats is None:  # benchmarks are switched off
        return
    benchmark.extra_info["decisions"] = decisions
    share = benchmark.stats.stats.median / decisions / median([before, after])
    benchmark.extra_info["share_of_a_target_forward"] = share
    assert share < most


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
