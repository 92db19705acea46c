"""The paper's own arithmetic under its published latencies: what its page gives, and where it gives too little."""

import pytest
import yaml

from harness.clocks.cost_model import retimed
from harness.clocks.named_profiles import named_profile
from harness.records.schema import Row
from methods.core.generation import Forward, Round, Spans

SCHEDULE = [1, 0, 1, 0, 1]  # Tables 2 and 9
BARE = [Forward("target", None, 1, 100)]


def a_round(schedule=SCHEDULE, accepted=2):
    steps = [Forward("middle" if call else "small", step, 10, 100) for step, call in enumerate(schedule, start=1)]
    return Round(schedule, 63, accepted, [*steps, Forward("target", None, 64, 100)])


def charged(profile, one, neural=("middle",)):
    """Charge a row of one round."""
    row = Row(
        key="k", attempt=1, pair="x", task="gsm8k", question_id=1, turn=0, method="x", seed=0, repeat=0, clock="wall",
        status="ok", verdict="identical", prompt_tokens=101, token_ids=[0] * (one.accepted + 1), rounds=[one],
        committed=one.accepted + 1, finish="length", prefill=[Forward("target", None, 100, 0)], prefill_s=1.0,
        decode_s=1.0, e2e_s=2.0, spans=Spans(0.2, 0.2, 0.2, 0.2, 0.2),
    )  # fmt: skip
    return retimed(row, profile, neural)


def speedup(profile, one, tokens, neural=("middle",)):
    """Return what a round that commits so many tokens is worth over one token a target forward."""
    baseline = charged(profile, Round(None, 0, 0, BARE), ()).decode_s
    return tokens * baseline / charged(profile, one, neural).decode_s


@pytest.fixture
def with_calls(tmp_path):
    """Return the profile of a pair with some latencies in the published ones' place."""

    def build(pair, **calls):
        (tmp_path / "other.yaml").write_text(yaml.safe_dump({"base": "paper-online", "calls": calls}))
        return named_profile(f"{tmp_path / 'other.yaml'}/{pair}")

    return build


def test_table_8_has_the_ratios_that_the_harness_charges(with_calls):
    # Its page names no pair; the latencies are put in the place of the nearest one's.
    profile = with_calls("qwen3-32b-0.6b", **{"Qwen/Qwen3-32B": 69.39, "Qwen/Qwen3-0.6B": 44.23})
    spans = charged(profile, a_round([1, 0])).spans

    verification = spans.verify_s
    ratios = [spans.middle_s / verification, spans.small_s / verification, spans.scheduler_s / 2 / verification]
    assert verification == pytest.approx(0.06939)
    assert [f"{ratio:.3f}" for ratio in ratios] == ["0.637", "0.013", "0.005"]


# Table 9: a neural model in the n-gram drafter's place, and the published speedups of both.
TABLE_9 = {"llama-70b-8b": (1.116, 1.299), "qwen3-32b-8b": (0.743, 1.134)}


def worth(profile):
    """Return how much more a round of n-grams is worth than one with a small neural model, at equal acceptance."""
    return speedup(profile, a_round(), 3) / speedup(profile, a_round(), 3, ("middle", "small"))


@pytest.mark.parametrize("pair", TABLE_9)
def test_table_9_has_the_order_that_the_latencies_give(pair):
    neural, ngram = TABLE_9[pair]
    ratio = worth(named_profile(f"paper-online/{pair}"))

    assert ngram > neural
    assert ratio > 1
    # What the page leaves open is how many more tokens a round one of them commits: 4% more and 11% fewer.
    assert f"{ratio / (ngram / neural):.2f}" == {"llama-70b-8b": "1.04", "qwen3-32b-8b": "0.89"}[pair]


@pytest.mark.parametrize("middle_ms", [0.1, 44.8, 55.0, 1000.0])
def test_table_9_has_its_order_whatever_the_unpublished_latency_of_its_third_pair(with_calls, middle_ms):
    assert "middle" not in named_profile("paper-online/qwen3-32b-4b").forwards

    assert worth(with_calls("qwen3-32b-4b", **{"Qwen/Qwen3-4B": middle_ms})) > 1


# Table 2: tokens accepted a round and speedup of the fixed schedule; what the latencies make of the first.
TABLE_2 = {
    ("llama-70b-1b", "GSM8K"): (2.18, 1.80, "1.82"),
    ("llama-70b-1b", "CNN/DM"): (2.52, 1.42, "2.02"),
    ("qwen3-32b-0.6b", "GSM8K"): (1.84, 1.55, "1.02"),
    ("qwen3-32b-0.6b", "CNN/DM"): (2.15, 0.95, "1.13"),
}


@pytest.mark.parametrize("pair", TABLE_2)
def test_table_2_follows_from_the_latencies_for_one_pair_and_task_of_four(pair):
    accepted, published, expected = TABLE_2[pair]
    modelled = speedup(named_profile(f"paper-online/{pair[0]}"), a_round(), accepted + 1)

    assert f"{modelled:.2f}" == expected
    assert (abs(modelled / published - 1) < 0.03) == (pair == ("llama-70b-1b", "GSM8K"))


def test_what_the_page_does_not_say_of_prefill_stays_unknown():
    row = charged(named_profile("paper-online/llama-70b-1b"), a_round())

    assert (row.prefill_s, row.e2e_s) == (None, None)
    assert row.clock == "profile:paper-online/llama-70b-1b"
    assert row.decode_s == pytest.approx((122.2 + 3 * 29.1 + 2 * 0.92 + 5 * 0.318) / 1e3)
