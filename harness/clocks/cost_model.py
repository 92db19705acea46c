"""Cost model: the time of a recorded answer under a hardware profile."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from foundation.errors import UserError
from foundation.roles import Role
from hardware_profiles.profile import Profile
from harness.models.pair import Pair
from harness.records.schema import Row
from methods.core.generation import Round, Spans

CLOCK_PREFIX = "profile:"


def profile_of(clock: str, pair: Pair | None = None) -> Profile | None:
    """Return the profile of a clock (`profile:NAME`, `profile:MACHINE/PAIR`), None for `wall`.

    A machine named without a pair takes the latencies of `pair`.
    """
    from harness.clocks.named_profiles import named_profile

    if clock == "wall":
        return None
    if not clock.startswith(CLOCK_PREFIX):
        raise UserError(f"clock {clock!r}: unknown; give wall or {CLOCK_PREFIX}NAME")
    return named_profile(clock.removeprefix(CLOCK_PREFIX), pair)


def retimed(row: Row, profile: Profile, neural: Sequence[str]) -> Row:
    """Return an answer's row with the times of its forwards under a profile, and nothing else changed.

    Args:
        row: an answer.
        profile: the cost model.
        neural: the neural drafters of its method: `middle`, `small`.

    Raises:
        UserError: no per-round data, a round without its target forward, or a role that the profile lacks.
    """
    clock = f"{CLOCK_PREFIX}{profile.name}"
    changes = {"key": _key(row.key, clock), "clock": clock, "marks": [], "telemetry": {}}
    if row.status == "failed":
        return row.model_copy(update=changes)
    if row.rounds is None:
        raise UserError(
            f"method {row.method}: has no per-round data, so no profile can time it; leave it out with --methods"
        )
    if "small" in neural and "small" not in profile.forwards:
        raise UserError(
            f"method {row.method}: profile {profile.name} knows no small neural model's times; leave it out"
        )
    if any([forward.role for forward in one.forwards].count("target") != 1 for one in row.rounds):
        raise UserError(
            f"method {row.method}: a round without its one target forward, so no profile can time it; leave it out"
        )
    spans = decode_spans(row.rounds, profile, schedules="middle" in neural, neural_small="small" in neural)
    prefill_s = _prefill_s(row, profile)
    e2e_s = None if prefill_s is None else prefill_s + spans.whole_s
    times = {"spans": spans, "prefill_s": prefill_s, "decode_s": spans.whole_s, "e2e_s": e2e_s}
    return row.model_copy(update=changes | times)


def decode_spans(rounds: Sequence[Round], profile: Profile, *, schedules: bool, neural_small: bool = False) -> Spans:
    """Return the seconds by phase of an answer's rounds under a profile.

    Args:
        rounds: the answer's rounds.
        profile: the cost model.
        schedules: whether a scheduler decides before each drafting step.
        neural_small: whether a neural model replaces the look-up drafter.
    """
    costs = profile.costs
    small = middle = scheduler = verify = other = 0.0
    for one in rounds:
        verify += _forwards_ms(one, "target", profile) + costs.verify_ms
        middle += _forwards_ms(one, "middle", profile)
        middle += costs.middle_call_ms * one.calls
        if neural_small:
            small += _forwards_ms(one, "small", profile)
        steps = [forward for forward in one.forwards if forward.role == "small" and not neural_small]
        small += sum(costs.small_step_ms + costs.small_node_ms * forward.tokens for forward in steps)
        small += costs.small_commit_ms if steps else 0.0
        if schedules:
            scheduler += costs.scheduler_ms * len(one.schedule or [])
        other += costs.other_ms
    return Spans(*(ms / 1e3 for ms in (small, middle, scheduler, verify, other)))


def _forwards_ms(one: Round, role: Role, profile: Profile) -> float:
    return sum(
        profile.forward_ms(role, forward.tokens, forward.context) for forward in one.forwards if forward.role == role
    )


def _prefill_s(row: Row, profile: Profile) -> float | None:
    """Return the seconds of a row's prefill, None for a profile without prefill times."""
    if not profile.prefill:
        return None
    if any(one.role == "small" and "small" not in profile.prefill for one in row.prefill):
        raise UserError("a look-up drafter has no prefill forward; the rows were edited, restore them")
    return sum(profile.prefill_ms(one.role, one.tokens, one.context) for one in row.prefill) / 1e3


def _key(key: str, clock: str) -> str:
    return hashlib.sha256(f"{key} {clock}".encode()).hexdigest()[:32]
