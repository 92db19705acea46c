"""Recorded rounds under a profile: every forward and everything beside it charged once."""

from dataclasses import replace

import pytest

from foundation.errors import UserError
from harness.clocks.cost_model import profile_of, retimed
from harness.records.schema import Row
from methods.catalog import resolve
from methods.core.generation import Forward, Round, Spans


def charged(row, profile, neural=("middle",)):
    return retimed(row, profile, neural)


DRAFTED = Round(
    schedule=[1, 0],
    drafted=4,
    accepted=1,
    forwards=[
        Forward("middle", 1, 3, 20),
        Forward("small", 2, 10, 21),
        Forward("target", None, 5, 20),
    ],
)
BARE = Round(schedule=[0], drafted=0, accepted=0, forwards=[Forward("small", 1, 1, 22), Forward("target", None, 1, 22)])


@pytest.fixture
def row():
    return Row(
        key="k", attempt=1, pair="toy", task="nq", question_id=1, turn=0, method="x", seed=0, repeat=0, clock="wall",
        status="ok", verdict="identical", marks=["cpu-contention"], prompt_tokens=21, token_ids=[1, 2, 3], committed=3,
        finish="length", rounds=[DRAFTED, BARE],
        prefill=[Forward("target", None, 20, 0), Forward("middle", None, 20, 0)],
        prefill_s=9.0, decode_s=9.0, e2e_s=18.0, spans=Spans(1, 2, 3, 1, 2), telemetry={"rss_mib": 1.0},
    )  # fmt: skip


def test_every_part_of_a_round_is_charged(row, profile):
    found = charged(row, profile)

    # Target forwards take 10 + tokens, the middle's a quarter of that; the rest stands in the profile's costs.
    assert found.spans.verify_s == pytest.approx((15 + 0.4 + 11 + 0.4) / 1e3)
    assert found.spans.middle_s == pytest.approx((13 / 4 + 0.7) / 1e3)
    assert found.spans.small_s == pytest.approx((0.5 + 10 * 0.01 + 0.2 + 0.5 + 0.01 + 0.2) / 1e3)
    assert found.spans.scheduler_s == pytest.approx(3 * 0.003 / 1e3)
    assert found.spans.other_s == pytest.approx(2 * 0.1 / 1e3)
    parts = ("small_s", "middle_s", "scheduler_s", "verify_s", "other_s")
    assert found.decode_s == sum(getattr(found.spans, part) for part in parts)
    assert found.prefill_s == pytest.approx((2 * 30 + 0.5 * 30) / 1e3)
    assert found.e2e_s == found.prefill_s + found.decode_s


def test_times_and_clock_change_and_nothing_else(row, profile):
    found = charged(row, profile)

    assert (found.clock, found.marks, found.telemetry) == ("profile:plain", [], {})
    changed = {"key", "clock", "marks", "telemetry", "spans", "prefill_s", "decode_s", "e2e_s"}
    assert found.model_dump(exclude=changed) == row.model_dump(exclude=changed)
    assert found.key != row.key
    assert charged(row, profile.model_copy(update={"name": "other"})).key not in (row.key, found.key)


def test_nobody_decides_where_there_is_no_middle(row, profile):
    alone = row.model_copy(update={"prefill": row.prefill[:1], "rounds": [BARE]})

    assert charged(alone, profile, neural=()).spans.scheduler_s == 0
    assert charged(alone, profile).spans.scheduler_s == pytest.approx(0.003 / 1e3)  # one-token prompts have no prefill


def test_a_middle_that_nobody_schedules_is_charged_for_each_of_its_forwards(row, profile):
    reviews = [Forward("middle", 2, 11, 20), Forward("middle", 4, 3, 31)]
    copies = [Forward("small", step, 1, 21) for step in (1, 3, 5)]
    cascade = Round(None, 12, 6, [*copies, *reviews, Forward("target", None, 13, 20)])
    neural = resolve("csd").needed_drafters

    found = charged(row.model_copy(update={"rounds": [cascade]}), profile, neural)

    assert found.spans.middle_s == pytest.approx((21 / 4 + 13 / 4 + 2 * 0.7) / 1e3)
    assert found.spans.small_s == pytest.approx((3 * (0.5 + 0.01) + 0.2) / 1e3)
    assert found.spans.scheduler_s == 0
    assert found.spans.verify_s == pytest.approx((23 + 0.4) / 1e3)


def test_the_context_to_the_left_is_charged(row, profile):
    grid = profile.forwards["target"].model_dump()
    tall = type(profile.forwards["target"])(**{**grid, "contexts": [0, 10], "ms": [grid["ms"][0], [20.0, 120.0]]})
    longer = profile.model_copy(update={"forwards": {**profile.forwards, "target": tall}})

    assert charged(row, longer).spans.verify_s > charged(row, profile).spans.verify_s


def test_a_failed_row_stays_one(row, profile):
    failed = row.model_copy(update={"status": "failed", "error": "why", "rounds": None, "decode_s": None})

    found = charged(failed, profile)

    assert (found.status, found.error, found.decode_s, found.clock) == ("failed", "why", None, "profile:plain")


def test_an_outside_peer_is_refused(row, profile):
    with pytest.raises(UserError, match="method x: has no per-round data"):
        charged(row.model_copy(update={"rounds": None}), profile)


@pytest.mark.parametrize("forwards", [[], DRAFTED.forwards[:2], [*DRAFTED.forwards, DRAFTED.forwards[2]]])
def test_a_round_without_its_one_target_forward_is_not_charged_as_if_it_cost_nothing(row, profile, forwards):
    with pytest.raises(UserError, match="method x: a round without its one target forward"):
        charged(row.model_copy(update={"rounds": [replace(DRAFTED, forwards=forwards), BARE]}), profile)


def test_a_small_neural_model_is_refused_where_its_times_are_not_known(row, profile):
    with pytest.raises(UserError, match="profile plain knows no small neural model's times"):
        charged(row, profile, neural=("middle", "small"))


def test_a_small_neural_model_is_charged_its_forwards_and_no_look_up(row, profile):
    small = {"small": profile.forwards["middle"]}
    known = profile.model_copy(update={"forwards": {**profile.forwards, **small}})

    found = charged(row, known, neural=("middle", "small"))

    assert found.spans.small_s == pytest.approx((20 + 11) / 4 / 1e3)  # forwards of 10 and of 1 token
    assert found.spans.middle_s == charged(row, profile).spans.middle_s


def test_where_no_prefill_is_known_the_whole_answers_time_is_not_either(row, profile):
    found = charged(row, profile.model_copy(update={"prefill": {}}))

    assert (found.prefill_s, found.e2e_s) == (None, None)
    assert found.decode_s == charged(row, profile).decode_s


def test_a_larger_verification_takes_longer(row, profile):
    wider = replace(DRAFTED, forwards=[*DRAFTED.forwards[:2], Forward("target", None, 9, 20)])

    assert charged(row.model_copy(update={"rounds": [wider, BARE]}), profile).decode_s > charged(row, profile).decode_s


def test_a_clock_is_the_wall_or_a_profile(tmp_path):
    assert profile_of("wall") is None
    for clock in ("sundial", "profile:", "profile:nowhere"):
        with pytest.raises(UserError):
            profile_of(clock)
