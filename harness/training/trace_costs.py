"""The cost of each schedule of traced answers under a clock, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hardware_profiles.profile import Profile
from harness.clocks.cost_model import decode_spans
from harness.training.policy_rollout import Floats, Rounds, schedules_behind
from harness.training.traces import TracedAnswer, recorded_round
from methods.core.generation import Forward, Round
from methods.latency import Latency
from methods.schedulers.scheduler import most_calls
from methods.schedulers.signals import all_signals, read_context, read_history, signal_names
from methods.settings import Settings

_FEW = 8
"""Tokens that the middle drafter has yet to read after a few rounds without it."""


@dataclass(frozen=True, slots=True)
class Priced:
    """Traced rounds with the costs of every kind of policy."""

    learned: Rounds
    """With a fitted scheduler's decisions, also for never calling."""
    fixed: Rounds
    """With a fixed schedule's, as `treegraft replay` charges it; never calling is all-small, without decisions."""
    ruled: Rounds
    """With one decision a round of a fitted scheduler's, for one look at the tree."""


def priced_rounds(
    answers: Sequence[TracedAnswer],
    profile: Profile,
    latency: Latency,
    settings: Settings,
    decision_ms: float | None = None,
) -> Priced:
    """Return traced rounds with their costs.

    Args:
        answers: traced answers.
        profile: the cost model.
        latency: T_tgt, the unit of cost, and T_mid.
        settings: of the traced method.
        decision_ms: least time of a fitted scheduler's decision; None keeps to the profile.
    """
    fixed, decided = _charged(answers, profile, latency, settings)
    charged = profile.costs.scheduler_ms
    more = max(0.0, (decision_ms or 0.0) - charged) / latency.target_ms
    undecided = fixed.cost.copy()
    never = 2**settings.steps
    undecided[:, never] -= charged / latency.target_ms * decided[:, never]
    decision = max(charged, decision_ms or 0.0) / latency.target_ms
    return Priced(
        learned=replace(fixed, cost=fixed.cost + more * decided),
        fixed=replace(fixed, cost=undecided),
        ruled=replace(fixed, cost=fixed.cost - charged / latency.target_ms * decided + decision * (decided > 0)),
    )


def _charged(
    answers: Sequence[TracedAnswer], profile: Profile, latency: Latency, settings: Settings
) -> tuple[Rounds, NDArray[np.int64]]:
    """Return rounds with the profile's costs, and the decisions of each schedule, [rounds, 2^(D+1)]."""
    steps = settings.steps
    names = signal_names(steps)
    count = sum(answer.tokens for answer in answers)
    shape = (count, 2 ** (steps + 1))
    committed, cost = np.ones(shape, dtype=np.int64), np.ones(shape)
    calls, decided = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    signals = np.full((count, 2**steps, len(names)), np.nan)
    left, prompts = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    catch_up = np.zeros(count)
    tasks = np.array([answer.facts["task"] for answer in answers for _ in range(answer.tokens)], dtype=np.str_)
    questions: dict[tuple[str, str], int] = {}
    first = 0
    for answer in answers:
        facts = answer.facts
        context = read_context(int(facts["prompt_tokens"]), latency)
        places = slice(first, first + answer.tokens)
        prompts[places] = questions.setdefault((facts["task"], facts["question_id"]), len(questions))
        left[places] = np.arange(answer.tokens, 0, -1)
        catch_up[places] = _token_ms(int(facts["prompt_tokens"]), profile) / latency.target_ms
        for row, one in enumerate(answer.rounds, first):
            for outcome in one["outcomes"]:
                ends, record = schedules_behind(outcome["asked"], steps), recorded_round(outcome["record"])
                committed[row, ends] = outcome["committed"]
                cost[row, ends] = _ms(record, profile) / latency.target_ms
                calls[row, ends], decided[row, ends] = record.calls, len(record.schedule or [])
            for prefix, tree in one["signals"].items():
                history = read_history([int(bit) for bit in prefix], steps)
                signals[row, int(f"1{prefix}", 2)] = all_signals(context, history, tree, one["lookup"])
        for row in range(first + len(answer.rounds), first + answer.tokens):  # one token left: nothing is drafted
            bare = Forward("target", None, 1, int(facts["prompt_tokens"]) - 1 + row - first)
            cost[row] = _ms(Round([], 0, 0, [bare]), profile) / latency.target_ms
        first += answer.tokens
    b0 = most_calls(settings.max_calls, latency)
    return Rounds(steps, committed, cost, calls, signals, names, left, prompts, tasks, catch_up, b0), decided


def autoregressive_costs(answers: Sequence[TracedAnswer], profile: Profile, latency: Latency) -> Floats:
    """Return the baseline's time for the token at each place, in verifications (T_tgt), [rounds].

    That is a target forward of one token and the costs around every round, without drafting or decisions.
    """
    contexts = [int(answer.facts["prompt_tokens"]) - 1 + place for answer in answers for place in range(answer.tokens)]
    times = [_ms(Round(None, 0, 0, [Forward("target", None, 1, context)]), profile) for context in contexts]
    return np.array(times) / latency.target_ms


def _token_ms(context: int, profile: Profile) -> float:
    """Return the extra time of a middle call for each further token to read."""
    few, more = (profile.forward_ms("middle", tokens, context) for tokens in (1, 1 + _FEW))
    return max(0.0, more - few) / _FEW


def _ms(record: Round, profile: Profile) -> float:
    return 1e3 * decode_spans([record], profile, schedules=True).whole_s
