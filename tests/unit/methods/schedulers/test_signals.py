"""Signals of a state, against a second reading of their definitions (TreeGraft, Table 3)."""

import random
from math import inf, isfinite, isnan, log

import pytest

from methods.core.tree import DraftTree
from methods.drafters.ngram import NgramDrafter, counts_estimate
from methods.drafters.ngram_index import Evidence
from methods.latency import Latency
from methods.schedulers.scheduler import DraftState
from methods.schedulers.signals import LOOKUP_SIGNALS, SignalReader, read_lookup, read_tree, signal_groups
from methods.settings import Settings


def random_state(rng):
    tree = DraftTree(0)
    while len(tree) < rng.randint(2, 40):
        parent = rng.randrange(len(tree))
        score = rng.choice([-inf, -round(3 * rng.random(), 1)])  # many tie
        node = tree.add(parent, rng.randrange(64), score)
        if rng.random() < 0.2:
            tree.expanded.add(node)
    deepest = rng.randint(0, max(tree.depths))
    frontier = [node for node in range(len(tree)) if abs(tree.depths[node] - deepest) <= rng.randint(0, 1)]
    return tree, rng.sample(frontier, rng.randint(0, len(frontier)))


def plainly(tree, frontier, settings):
    """The definitions, word by word."""
    depth = tree.depths
    if settings.reselect == "off":
        candidates = list(frontier)
    else:
        candidates = [
            node
            for node in range(len(tree))
            if (not frontier or any(depth[one] - settings.look_back <= depth[node] <= depth[one] for one in frontier))
            and (settings.reselect == "all" or node not in tree.expanded)
        ]
    preview = candidates
    if settings.reselect != "off":
        preview = sorted(candidates, key=lambda node: (-tree.scores[node], node))[: settings.width]

    def mean(values):
        return sum(values) / len(values) if values else 0.0

    before = mean([depth[node] for node in frontier])
    delta = mean([depth[node] for node in preview]) - before if preview else 0.0
    return {
        "depth_before": before,
        "max_depth_before": max([depth[node] for node in frontier], default=0),
        "leaf_ratio_before": mean([float(not tree.children[node]) for node in frontier]),
        "pre_reselect_depth_delta": delta,
        "pre_reselect_cands": len(candidates),
        "collapse_debt": max(0, -delta),
        "pre_reselect_past_ratio": mean(
            [float(depth[node] not in {depth[one] for one in frontier}) for node in preview]
        ),
        "pre_reselect_overlap": mean([float(node in frontier) for node in preview]),
        "pre_reselect_score": mean([tree.scores[node] for node in preview if isfinite(tree.scores[node])]),
    }


@pytest.mark.parametrize("reselect", ["unexpanded", "all", "off"])
@pytest.mark.parametrize("seed", range(40))
def test_tree_signals_are_what_their_definitions_say(seed, reselect):
    rng = random.Random(seed)
    tree, frontier = random_state(rng)
    settings = Settings(width=rng.randint(1, 6), look_back=rng.randint(0, 2), reselect=reselect)
    expected = plainly(tree, frontier, settings)
    assert dict(zip(signal_groups(5)["tree"], read_tree(tree, frontier, settings), strict=True)) == pytest.approx(
        expected
    )


def test_a_reader_gives_the_signals_that_were_asked_for_in_order():
    tree = DraftTree(0)
    child = tree.add(0, 5, log(0.5))
    state = DraftState(tree, [child], 3, [1, 0])
    names = ["called_1", "log_latency_ratio", "depth_before", "step_share", "call_share", "called_2", "called_3"]
    reader = SignalReader(Settings(), [*names, "target_ms", "middle_ms", "log_prompt_tokens"])
    reader.begin(99, Latency(40.0, 10.0))
    assert reader.read(state) == pytest.approx([1, log(4), 1, 0.6, 0.2, 0, 0, 40.0, 10.0, log(100)])


def test_signals_are_numbers_even_where_there_is_no_frontier():
    tree = DraftTree(0)
    assert not any(map(isnan, read_tree(tree, [], Settings(reselect="off"))))
    tree.expanded.add(0)
    assert not any(map(isnan, read_tree(tree, [], Settings())))


def test_look_up_s_signals_are_what_stands_in_the_context():
    lookup = NgramDrafter(3, 4, "continue", counts_estimate)
    lookup.begin([1, 2, 3, 5, 1, 2, 3, 4, 9, 1, 2, 3, 4, 7, 1, 2, 3])
    signals = dict(zip(LOOKUP_SIGNALS, read_lookup(lookup.root_evidence(DraftTree(3))), strict=True))
    # 3 followed 2 and 1 three times: 4 twice, at last 5 tokens ago, and 5 once.
    expected = {"root_match": 3, "root_share": 2 / 3, "root_continuations": 2, "root_log_age": log(5)}
    assert signals == pytest.approx(expected)
    assert read_lookup(lookup.root_evidence(DraftTree(3))) == read_lookup(lookup.root_evidence(DraftTree(3)))
    lookup.begin([1, 2, 3])
    assert read_lookup(lookup.root_evidence(DraftTree(3))) == [0.0] * 4


def test_a_reader_looks_up_what_it_is_asked_for_alone():
    looked = []
    state = DraftState(DraftTree(0), [0], root_evidence=lambda: looked.append(1) or [Evidence(7, 2, 1, 4, 3)])
    for names in (["root_log_age", "depth_before", "root_match"], ["depth_before"]):
        reader = SignalReader(Settings(), names)
        reader.begin(9, Latency(40.0, 10.0))
        assert reader.read(state) == pytest.approx([log(3), 0, 2] if len(names) > 1 else [0])
    assert len(looked) == 1
