"""Where a speedup comes from: factors by hand, and their product is the speedup to the last digit."""

import math
import random

import pytest

from methods.core.generation import Round, Spans
from reports.decomposition import FACTORS, decompose
from reports.pairing import pair_with_baseline, turns_of
from reports.row_summary import tally
from reports.statistics import geometric_mean, prompt_effect


def pairings(baseline, method):
    tallies = [tally(one) for one in (*baseline, *method)]
    return pair_with_baseline(tallies, turns_of(tallies))[method[0].method]


def test_each_cause_is_a_factor(row):
    # Ten rounds of 0.9 s verification and 0.1 s overhead, against four of 1.2 + 0.2 drafting (small, middle, scheduler)
    # + 0.3 overhead; both commit ten tokens.
    base = [row("autoregressive", decode_s=10.0, spans=Spans(0, 0, 0, 9.0, 1.0))]
    tree = [
        row(
            "tree",
            decode_s=6.8,
            spans=Spans(0.3, 0.4, 0.1, 4.8, 1.2),
            rounds=[Round(None, 4, 2, [])] * 2 + [Round(None, 4, 1, [])] * 2,
        )
    ]

    factors = decompose(pairings(base, tree))

    expected = {"acceptance": 10 / 4, "width": 1.0 / 1.3, "drafting": 1.3 / 1.5, "overhead": 1.5 / 1.7}
    assert {factor.name: factor.value for factor in factors} == pytest.approx(expected)
    assert math.prod(expected.values()) == pytest.approx(10 / 6.8)


@pytest.fixture
def random_rows(row):
    rng = random.Random(4)

    def rows(method, rounds):
        found = []
        for question in range(12):
            for repeat in range(3):
                parts = [rng.uniform(0.01, 1) for _ in range(5)]
                parts[:3] = [0.0] * 3 if method == "autoregressive" else parts[:3]
                whole = sum(parts) * rng.uniform(0.999, 1.001)  # parts and whole are timed apart
                spans = Spans(*parts)
                taken = [Round(None, 4, rng.randint(0, 4), []) for _ in range(rounds())]
                committed = sum(one.accepted + 1 for one in taken)
                place = {"repeat": repeat, "task": f"t{question % 3}"}
                found.append(row(method, question, whole, committed, spans=spans, rounds=taken, **place))
        return found

    return rows("autoregressive", lambda: 10), rows("tree", lambda: rng.randint(3, 9))


def test_the_factors_multiply_to_the_speedup(random_rows):
    paired = pairings(*random_rows)

    factors = decompose(paired)

    speedup = geometric_mean([prompt_effect(pairing).log_speedup for pairing in paired])
    assert [factor.name for factor in factors] == [*FACTORS]
    assert math.prod(factor.value for factor in factors) == pytest.approx(speedup, rel=1e-12)
    assert all(factor.ci_low < factor.value < factor.ci_high for factor in factors)


def test_the_factors_multiply_to_the_speedup_whatever_the_baselines_spans_say(row):
    paired = pairings([row("autoregressive", spans=Spans(0.1, 0.2, 0.1, 0.5, 0.1))], [row("tree", decode_s=0.4)])

    assert math.prod(factor.value for factor in decompose(paired)) == pytest.approx(1 / 0.4, rel=1e-12)


def test_a_method_that_is_the_baseline_has_factors_of_one(random_rows):
    baseline, _ = random_rows
    again = [
        one.model_copy(update={"method": "again", "key": f"{one.key} again", "verdict": "identical"})
        for one in baseline
    ]

    assert {factor.value for factor in decompose(pairings(baseline, again))} == {1.0}


def test_outside_peers_have_none(row):
    assert decompose(pairings([row("autoregressive")], [row("peer", peer=True)])) is None


def test_nothing_paired_has_none(row):
    assert decompose([]) is None


def test_one_prompt_has_no_interval(row):
    factor = decompose(pairings([row("autoregressive")], [row("tree")]))[1]

    assert (factor.ci_low, factor.ci_high) == (None, None)
