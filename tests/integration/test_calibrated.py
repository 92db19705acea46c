"""Calibrated grafting on tiny models: lossless, repeatable, and drafting along text as it decodes."""

import pytest

from harness.training.edge_regression import PRIOR
from harness.training.fit_edges import VisitRecorder
from methods.calibrated.artifact import CostTable, EdgeArtifact, write_edges
from methods.core.sampling import DecodingParams

pytestmark = pytest.mark.torch

PARTS = {
    "whole": {},
    "none": {"when": "once", "fusion": False, "size": "budget"},
    "gate": {"fusion": False, "size": "budget"},
    "fusion": {"when": "once", "size": "budget"},
    "size": {"when": "once", "fusion": False},
}


@pytest.fixture
def calibrated(tiny, method):
    """Build the method over a target and a middle of other weights, with some of its parts."""

    def build(middle_seed=1, **options):
        target = tiny()
        settings = {"options": options, "budget": 7}
        return target, method("treegraft-calibrated", target, middle=tiny(seed=middle_seed), **settings)

    return build


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_greedy_output_is_generates(calibrated, hf_tokens, prompts, parts):
    target, decoder = calibrated(**parts)
    calls = accepted = 0
    for prompt in [[9], [17, 17], [5, 40], *prompts[:12]]:
        generation = decoder.generate(prompt, DecodingParams(max_new_tokens=16))
        assert generation.token_ids == hf_tokens(target, prompt, 16)
        calls += sum(one.calls for one in generation.rounds)
        accepted += sum(one.accepted for one in generation.rounds)
    assert calls > 0
    assert accepted > 0


def test_a_perfect_middle_is_followed(calibrated, prompts):
    _, decoder = calibrated(middle_seed=0)
    generation = decoder.generate(prompts[0], DecodingParams(max_new_tokens=24))
    assert len(generation.rounds) < 24


def test_sampled_output_is_the_baselines(tiny, method, prompts):
    target = tiny(vocab_size=12, seed=2)
    few = [[token % 12 for token in prompt] for prompt in prompts[:5]]
    decoder = method("treegraft-calibrated", target, middle=tiny(vocab_size=12, seed=3))
    baseline = method("autoregressive", target)
    for index, prompt in enumerate(few):
        params = DecodingParams(max_new_tokens=20, temperature=1.0, draw_key=(5, "mini", index, 0))
        assert decoder.generate(prompt, params).token_ids == baseline.generate(prompt, params).token_ids


def test_the_order_of_prompts_changes_nothing(calibrated, prompts):
    _, decoder = calibrated()
    params = DecodingParams(max_new_tokens=16)
    one, other = decoder.generate(prompts[1], params), decoder.generate(prompts[3], params)
    assert decoder.generate(prompts[3], params).rounds == other.rounds
    assert decoder.generate(prompts[1], params).rounds == one.rounds


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_drafting_along_text_gives_the_rounds_of_decoding(calibrated, prompts, parts):
    _, decoder = calibrated(**parts)
    for prompt in prompts[:6]:
        decoded = decoder.generate(prompt, DecodingParams(max_new_tokens=16))
        _, rounds = decoder.redraft(prompt, decoded.token_ids, 16)
        assert [one.record for one in rounds] == decoded.rounds


@pytest.fixture
def believing(tiny, method, tmp_path):
    """Build the method with an artifact of its own."""

    def build(settings=None, **believed):
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        folder.mkdir()
        table = CostTable(context=16, verifications=[1 + 0.01 * size for size in range(64)], calls=[0.05] * 64)
        known = {
            "pair": "tiny",
            "clock": "none",
            "edges": PRIOR,
            "costs": [table],
            "rate": 1.5,
            "worth": 1.0,
            "card": {},
        }
        write_edges(folder, EdgeArtifact(**{**known, **believed}))
        return method("treegraft-calibrated", tiny(), middle=tiny(seed=1), artifact=str(folder), **(settings or {}))

    return build


def test_dear_verifications_make_small_trees(believing, prompts):
    sent = {}
    for name, slope in (("cheap", 0.001), ("dear", 0.5)):
        table = CostTable(context=16, verifications=[1 + slope * size for size in range(64)], calls=[0.05] * 64)
        rounds = believing(costs=[table]).generate(prompts[1], DecodingParams(max_new_tokens=16)).rounds
        sent[name] = sum(one.drafted for one in rounds) / len(rounds)
    assert sent["dear"] < sent["cheap"]


def test_a_cliff_in_what_a_verification_costs_is_crossed_where_more_nodes_behind_it_pay(believing, prompts):
    """One token more than 4 costs a third of a verification, and the next 40 cost nothing."""
    cliff = [1.0] * 5 + [1.33] * 59
    table = CostTable(context=16, verifications=cliff, calls=[1e-6] * 64)
    decoder = believing({"budget": 7}, costs=[table], worth=10.0, rate=0.2)
    sizes = [one.drafted for one in decoder.generate(prompts[1], DecodingParams(max_new_tokens=16)).rounds[:8]]

    assert max(sizes) > 8  # a search from the smallest size up would stop below the cliff


def test_a_tree_is_never_larger_than_it_may_be_nor_called_more_often(believing, prompts):
    table = CostTable(context=16, verifications=[1 + 1e-6 * size for size in range(64)], calls=[1e-6] * 64)
    for options, steps, most in (({"most": 5}, 2, 5), ({"size": "budget", "fusion": False}, 1, 3), ({}, 5, 48)):
        decoder = believing({"options": options, "steps": steps, "budget": 3}, costs=[table], worth=10.0)
        rounds = decoder.generate(prompts[1], DecodingParams(max_new_tokens=16)).rounds
        assert max(one.drafted for one in rounds) == most
        assert max(one.calls for one in rounds) == steps


def test_where_the_budget_is_the_size_the_machine_has_no_say(believing, prompts):
    sent = set()
    for slope in (0.001, 5.0):
        table = CostTable(context=16, verifications=[1 + slope * size for size in range(64)], calls=[0.05] * 64)
        options = {"options": {"when": "once", "size": "budget"}, "budget": 6}
        rounds = believing(options, costs=[table]).generate(prompts[1], DecodingParams(max_new_tokens=16)).rounds
        sent.add(tuple(one.drafted for one in rounds))
    assert len(sent) == 1


def test_where_a_found_token_is_worth_nothing_nobody_is_called(believing, prompts):
    calls = {}
    for worth in (0.0, 1.0):
        rounds = believing(worth=worth).generate(prompts[1], DecodingParams(max_new_tokens=16)).rounds
        calls[worth] = sum(one.calls for one in rounds)
    assert calls[0.0] == 0 < calls[1.0]


def test_visits_tell_what_was_known_at_every_accepted_node(calibrated, prompts):
    _, decoder = calibrated()
    decoder.__class__ = VisitRecorder
    decoder.visits = []
    generation = decoder.generate(prompts[1], DecodingParams(max_new_tokens=16))
    drafted = generation.token_ids[:-1] if generation.rounds[-1].drafted == 0 else generation.token_ids
    assert [visit.token for visit in decoder.visits] == drafted


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_schedules_and_forwards_tell_the_same(calibrated, prompts, parts):
    _, decoder = calibrated(**parts)
    for one in decoder.generate(prompts[1], DecodingParams(max_new_tokens=16)).rounds:
        drafting = [forward for forward in one.forwards if forward.role != "target"]
        assert [forward.step for forward in drafting] == list(range(1, len(one.schedule) + 1))
        assert [int(forward.role == "middle") for forward in drafting] == one.schedule
