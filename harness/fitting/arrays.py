"""Traced answers under a clock: what each schedule costs there, as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hardware_profiles.profile import Profile
from harness.retiming import decode_spans
from methods.core.generation import Forward, Round
from methods.schedulers.scheduler import Latency, most_calls
from methods.schedulers.signals import all_signals, read_context, read_history, signal_groups
from methods.settings import Settings
from methods.value_system.rounds import Floats, Rounds
from methods.value_system.traces import TracedAnswer, recorded_round


def timed_rounds(answers: Sequence[TracedAnswer], profile: Profile, latency: Latency, settings: Settings) -> Rounds:
    """Return traced rounds with their costs.

    Args:
        answers: traced answers.
        profile: what forwards and the work around them cost.
        latency: T_tgt, the unit of cost, and T_mid.
        settings: of the traced method.
    """
    steps = settings.steps
    names = tuple(name for group in signal_groups(steps).values() for name in group)
    count = sum(len(answer.rounds) + 1 for answer in answers)
    committed = np.ones((count, 2 ** (steps + 1)), dtype=np.int64)
    cost = np.ones((count, 2 ** (steps + 1)))
    signals = np.full((count, 2**steps, len(names)), np.nan)
    left, prompts = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    tasks = np.empty(count, dtype="<U32")
    questions: dict[tuple[str, str], int] = {}
    row = 0
    for answer in answers:
        facts = answer.facts
        prompt = questions.setdefault((facts["task"], facts["question_id"]), len(questions))
        context = read_context(int(facts["prompt_tokens"]), latency)
        places = slice(row, row + len(answer.rounds) + 1)
        prompts[places], tasks[places] = prompt, facts["task"]
        left[places] = np.arange(len(answer.rounds) + 1, 0, -1)
        for one in answer.rounds:
            for outcome in one["outcomes"]:
                ends = _schedules(outcome["asked"], steps)
                committed[row, ends] = outcome["committed"]
                cost[row, ends] = _ms(recorded_round(outcome["record"]), profile) / latency.target_ms
            for prefix, tree in one["signals"].items():
                history = read_history([int(bit) for bit in prefix], steps)
                signals[row, int(f"1{prefix}", 2)] = all_signals(context, history, tree)
            row += 1
        last = Forward("target", None, 1, int(facts["prompt_tokens"]) + len(answer.rounds) - 1)
        cost[row] = _ms(Round([], 0, 0, [last]), profile) / latency.target_ms
        row += 1
    b0 = most_calls(settings.max_calls, latency)
    return Rounds(steps, committed, cost, signals, names, left, prompts, tasks, b0)


def autoregressive_costs(answers: Sequence[TracedAnswer], profile: Profile, latency: Latency) -> Floats:
    """Return what the baseline takes for the token at each place, in verifications (T_tgt), [rounds].

    That is a target forward of one token and what stands beside every round; nobody drafts or decides.

    Args:
        answers: traced answers.
        profile: what forwards and the work around them cost.
        latency: T_tgt, the unit of cost, and T_mid.
    """
    contexts = [
        int(answer.facts["prompt_tokens"]) - 1 + place for answer in answers for place in range(len(answer.rounds) + 1)
    ]
    times = [_ms(Round(None, 0, 0, [Forward("target", None, 1, context)]), profile) for context in contexts]
    return np.array(times) / latency.target_ms


def counted_decisions(answers: Sequence[TracedAnswer], settings: Settings) -> NDArray[np.int64]:
    """Return how often a scheduler decides under each schedule, [rounds, 2^(D+1)], by heap number.

    Args:
        answers: traced answers.
        settings: of the traced method.
    """
    rounds = sum(len(answer.rounds) + 1 for answer in answers)
    counts = np.zeros((rounds, 2 ** (settings.steps + 1)), dtype=np.int64)
    row = 0
    for answer in answers:
        for one in answer.rounds:
            for outcome in one["outcomes"]:
                counts[row, _schedules(outcome["asked"], settings.steps)] = len(outcome["record"]["schedule"])
            row += 1
        row += 1
    return counts


def _schedules(asked: str, steps: int) -> slice:
    """Return the heap numbers of the whole schedules that begin as asked: drafting ended, so they coincide."""
    left = steps - len(asked)
    first = int(f"1{asked}", 2) << left
    return slice(first, first + 2**left)


def _ms(record: Round, profile: Profile) -> float:
    return 1e3 * decode_spans([record], profile, schedules=True).whole_s
