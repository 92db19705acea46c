"""Re-timing: what a recorded answer takes under a hardware profile. Imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

from hardware_profiles.profile import Profile
from harness.errors import UserError
from harness.results import Row
from methods.core.generation import Forward, Round, Spans

CLOCK_PREFIX = "profile:"


def profile_of(clock: str) -> Profile | None:
    """Return the profile that a clock names, None for the wall.

    Raises:
        UserError: neither `wall` nor `profile:NAME`, or an unknown profile.
    """
    from hardware_profiles.profile import get_profile

    if clock == "wall":
        return None
    if not clock.startswith(CLOCK_PREFIX):
        raise UserError(f"clock {clock!r}: unknown; give wall or {CLOCK_PREFIX}NAME")
    return get_profile(clock.removeprefix(CLOCK_PREFIX))


def retimed(row: Row, profile: Profile, neural: Sequence[str]) -> Row:
    """Return a row with the times that its forwards would take under a profile; nothing else about it changes.

    Args:
        row: an answer.
        profile: what things cost.
        neural: the neural drafters of its method, `middle` among them where one is called.

    Raises:
        UserError: an answer without rounds, as outside peers give, a round without its target forward, or a role that
            the profile knows nothing of.
    """
    clock = f"{CLOCK_PREFIX}{profile.name}"
    changes = {"key": _key(row.key, clock), "clock": clock, "marks": [], "telemetry": {}}
    if row.status == "failed":
        return row.model_copy(update=changes)
    if row.rounds is None:
        raise UserError(f"method {row.method}: shows no rounds, so no profile can time it; leave it out with --methods")
    if "small" in neural:
        raise UserError(f"method {row.method}: no profile knows a small neural model's times; leave it out")
    if any([forward.role for forward in one.forwards].count("target") != 1 for one in row.rounds):
        raise UserError(
            f"method {row.method}: a round without its one target forward, so no profile can time it; leave it out"
        )
    spans = decode_spans(row.rounds, profile, schedules="middle" in neural)
    prefill_s = sum(_prefill_ms(forward, profile) for forward in row.prefill) / 1e3
    decode_s = sum((spans.small_s, spans.middle_s, spans.scheduler_s, spans.verify_s, spans.other_s))
    return row.model_copy(
        update={
            **changes,
            "spans": spans,
            "prefill_s": prefill_s,
            "decode_s": decode_s,
            "e2e_s": prefill_s + decode_s,
        }
    )


def decode_spans(rounds: Sequence[Round], profile: Profile, *, schedules: bool) -> Spans:
    """Return the seconds by phase that recorded rounds take under a profile.

    Args:
        rounds: of one answer.
        profile: what things cost.
        schedules: whether someone decided before each step of a schedule who takes it.
    """
    costs = profile.costs
    small = middle = scheduler = verify = other = 0.0
    for one in rounds:
        verify += _forwards_ms(one, "target", profile) + costs.verify_ms
        middle += _forwards_ms(one, "middle", profile)
        middle += costs.middle_call_ms * one.calls
        steps = [forward for forward in one.forwards if forward.role == "small"]
        small += sum(costs.small_step_ms + costs.small_node_ms * forward.tokens for forward in steps)
        small += costs.small_commit_ms if steps else 0.0
        if schedules:
            scheduler += costs.scheduler_ms * len(one.schedule or [])
        other += costs.other_ms
    return Spans(*(ms / 1e3 for ms in (small, middle, scheduler, verify, other)))


def _forwards_ms(one: Round, role: Literal["target", "middle"], profile: Profile) -> float:
    return sum(
        profile.forward_ms(role, forward.tokens, forward.context) for forward in one.forwards if forward.role == role
    )


def _prefill_ms(forward: Forward, profile: Profile) -> float:
    if forward.role == "small":
        raise UserError("a look-up drafter has no prefill forward; the rows were edited, restore them")
    return profile.prefill_ms(forward.role, forward.tokens, forward.context)


def _key(key: str, clock: str) -> str:
    return hashlib.sha256(f"{key} {clock}".encode()).hexdigest()[:32]
