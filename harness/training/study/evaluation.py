"""Policy evaluation under a condition, along each policy's own path, with intervals: modelled times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.training.bootstrap import Gain, gain, prompt_times
from harness.training.distillation import network_margins
from harness.training.policy_evaluation import calls_a_round
from harness.training.policy_rollout import Rounds, Schedules, always, bits_of
from harness.training.q_values import decisions
from harness.training.study.conditions import Timed
from methods.schedulers.artifact import Network


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One policy under one condition."""

    policy: str
    fitted: str | None
    """The condition that a learned scheduler was fitted under."""
    schedule: str | None
    """Bits of a fixed schedule."""
    speedup: float
    """The baseline's time over the policy's, each summed over all answers."""
    tokens_per_s: float
    calls: float
    """Middle calls a round."""
    gain: Gain
    """Over the better endpoint: never or always calling, whichever takes less time in all."""
    over_refit: Gain | None
    """Of a scheduler fitted elsewhere, over the one fitted under this condition."""


@dataclass(frozen=True, slots=True)
class _Policy:
    name: str
    rounds: Rounds
    schedules: Schedules
    fitted: str | None = None


def evaluate_policies(
    timed: Timed, networks: Mapping[str, Network], schedules: Sequence[str], own: str, seed: int
) -> list[PolicyResult]:
    """Return the result of each policy: the endpoints, fixed schedules, and the learned schedulers.

    Args:
        timed: a run's rounds under a condition.
        networks: learned schedulers, by the condition of their fit.
        schedules: fixed schedules as bits.
        own: the condition's own name, among those of the networks.
        seed: of resamples.
    """
    policies = _policies(timed, networks, schedules, own)
    times = [prompt_times(one.rounds, one.schedules) for one in policies]
    baseline = float(timed.autoregressive.sum())
    tokens = len(timed.priced.fixed)
    refit = next(time for one, time in zip(policies, times, strict=True) if one.fitted == own)
    return [
        PolicyResult(
            policy=one.name,
            fitted=one.fitted,
            schedule=None if one.fitted else bits_of(int(one.schedules[0])),
            speedup=baseline / float(time.sum()),
            tokens_per_s=1e3 * tokens / (float(time.sum()) * timed.latency.target_ms),
            calls=calls_a_round(one.rounds, one.schedules),
            gain=gain(time, times[:2], seed),
            over_refit=None if one.fitted in (None, own) else gain(time, [refit], seed),
        )
        for one, time in zip(policies, times, strict=True)
    ]


def _policies(timed: Timed, networks: Mapping[str, Network], schedules: Sequence[str], own: str) -> list[_Policy]:
    """Return the policies, the endpoints first."""
    fixed, learned = timed.priced.fixed, timed.priced.learned
    policies = [
        _Policy("never (all-small)", fixed, always(fixed, 2**fixed.steps)),
        _Policy("always (all-mid)", fixed, always(fixed, 2 ** (fixed.steps + 1) - 1)),
        *(_Policy(f"fixed {bits}", fixed, always(fixed, int(f"1{bits}", 2))) for bits in schedules),
    ]
    for name, network in networks.items():
        label = "learned" if name == own else f"learned, fitted on {name}"
        chosen = learned.outcome(decisions(network_margins(network, learned)))
        policies.append(_Policy(label, learned, chosen, name))
    return policies
