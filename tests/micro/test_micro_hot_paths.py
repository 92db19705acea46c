"""Micro-benchmarks of the hot paths; run by `tox run -e micro`, and once each as plain tests.

Kept runs and how to compare with one: CONTRIBUTING.md, "Micro-benchmarks".
"""

import itertools
import random

import pytest
import torch

from harness.training.edge_regression import PRIOR
from methods.calibrated.edge_model import Recent
from methods.calibrated.survival_tree import SurvivalTree
from methods.core.sampling import DecodingParams, Sampler
from methods.core.tree import DraftTree
from methods.core.verify import verify_tree
from methods.drafters.ngram import NgramDrafter, counts_estimate
from methods.drafters.ngram_index import NgramIndex
from methods.latency import Latency
from methods.rivals.csd.max_gram import MaxGram
from methods.schedulers.scheduler import DraftState, make_scheduler
from methods.schedulers.signals import read_lookup
from methods.settings import Settings

CONTEXT = 1000
VOCABULARY = 400  # small enough that look-up finds plenty
STEPS, WIDTH, BUDGET, CAP = 5, 10, 15, 511


@pytest.fixture
def context():
    rng = random.Random(0)
    return [min(rng.randrange(VOCABULARY), rng.randrange(VOCABULARY)) for _ in range(CONTEXT)]


def grown_tree(drafter, context):
    tree, frontier = DraftTree(context[-1]), [0]
    for step in range(1, STEPS + 1):
        frontier, _ = drafter.extend(tree, frontier, step, CAP)
    return tree


@pytest.fixture
def drafter(context):
    drafter = NgramDrafter(5, WIDTH, "continue", counts_estimate)
    drafter.begin(context)
    return drafter


def test_indexing_a_prompt(benchmark, context):
    def build():
        index = NgramIndex(5)
        index.extend(context)
        return index

    assert len(benchmark(build).tokens) == CONTEXT


def test_indexing_the_tokens_of_a_round(benchmark, context):
    index = NgramIndex(5)
    index.extend(context)
    benchmark(index.extend, context[:3])
    assert len(index.tokens) > CONTEXT


def test_reading_a_prompt_to_copy_from(benchmark, context):
    copier = MaxGram()
    benchmark(copier.begin, context)
    assert copier.propose(context[:3], 3)


def test_copying_behind_another_draft(benchmark, context):
    copier, drafts = MaxGram(), itertools.cycle([context[:3], context[3:6]])
    copier.begin(context)
    assert len(benchmark(lambda: copier.propose(next(drafts), 10))) == 10


def test_growing_a_tree_of_50_nodes(benchmark):
    def grow():
        tree = DraftTree(0)
        for number in range(50):
            tree.add(number // 3, number)  # three children a node
        return tree

    assert len(benchmark(grow)) == 51


def test_a_round_of_five_small_steps(benchmark, drafter, context):
    assert len(benchmark(grown_tree, drafter, context)) > BUDGET


def test_pruning_to_the_budget(benchmark, drafter, context):
    tree = grown_tree(drafter, context)
    assert len(benchmark(tree.prune, BUDGET)) == BUDGET + 1


def test_building_the_visibility_of_a_tree(benchmark, drafter, context):
    tree = grown_tree(drafter, context).prune(BUDGET)
    assert benchmark(tree.visibility).shape == (BUDGET + 1, BUDGET + 1)


def test_deciding_the_steps_of_a_round(benchmark, drafter, context):
    scheduler = make_scheduler(Settings(scheduler="fixed", schedule=[1, 0, 1, 0, 1]))
    states = [DraftState(grown_tree(drafter, context), [0], step) for step in range(1, STEPS + 1)]
    assert benchmark(lambda: [scheduler.should_call(state) for state in states]) == [True, False, True, False, True]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_verifying_a_tree(benchmark, drafter, context, temperature):
    tree = grown_tree(drafter, context).prune(BUDGET)
    logits = torch.randn(len(tree), 49152, generator=torch.Generator().manual_seed(0))
    sampler = Sampler(DecodingParams(32, temperature=temperature, top_p=0.9 if temperature else 1.0))
    nodes, drawn = benchmark(verify_tree, tree, logits, sampler, context, 0)
    assert len(nodes) == len(drawn)


@pytest.fixture
def grown_state(drafter, context):
    """A round before its third step, after two of look-up."""
    tree = DraftTree(context[-1])
    frontier = [0]
    for step in (1, 2):
        frontier, _ = drafter.extend(tree, frontier, step, 511)
    return DraftState(tree, frontier, 3, [0, 0])


@pytest.fixture
def learned(random_artifact):
    scheduler = make_scheduler(Settings(scheduler="learned", artifact=random_artifact()))
    scheduler.begin(len("a prompt"), Latency(40.0, 10.0))
    return scheduler


def test_deciding_a_step_with_its_signals(benchmark, learned, grown_state):
    assert len(grown_state.tree) > 20
    margin = learned.margin(learned.reader.read(grown_state))
    assert benchmark(learned.should_call, grown_state) == (margin > 0)


def test_deciding_a_step_by_the_network_alone(benchmark, learned, grown_state):
    signals = learned.reader.read(grown_state)
    assert isinstance(benchmark(learned.margin, signals), float)


@pytest.fixture
def index(context):
    index = NgramIndex(len(PRIOR.copied))
    index.extend(context)
    return index


def grown_by_survival(index):
    tree = SurvivalTree(index.tokens, index, PRIOR, Recent(), floor=-12.0, sent=48, most=193, deepest=100, width=WIDTH)
    tree.grow()
    return tree


def test_growing_a_tree_by_survival(benchmark, index):
    assert len(benchmark(grown_by_survival, index).tree) > BUDGET


def test_taking_in_what_a_call_found_and_where_to_call_next(benchmark, index):
    def ready():
        return (grown_by_survival(index),), {}

    def take_in(grown):
        for node in (0, 1, 2):
            grown.fuse(node, [(token, -0.5 * rank - 0.5) for rank, token in enumerate(range(WIDTH))], fusion=True)
        grown.settle()
        return grown.calls_for({0, 1, 2}, 99)

    assert benchmark.pedantic(take_in, setup=ready, rounds=200)


def test_reading_look_up_s_signals(benchmark, drafter, context):
    tree = DraftTree(context[-1])
    assert len(benchmark(lambda: read_lookup(drafter.root_evidence(tree)))) == 4
