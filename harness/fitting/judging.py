"""What becomes of fitted values: networks, the planner, and the figures by which they are judged against rivals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from methods.schedulers.artifact import Network, Planner
from methods.schedulers.signals import signal_groups
from methods.value_system import rivals
from methods.value_system.distilling import distil, unseen_margins
from methods.value_system.rounds import Floats, Rounds, Schedules, always, bits_of
from methods.value_system.values import Values, classification, decisions, final_models, fit_values

Note = Callable[[str], None]


def distilled(rounds: Rounds, margins: Floats, seed: int) -> tuple[dict[str, Network], dict[str, Schedules]]:
    """Return networks by variant, and the schedules that networks give to rounds whose prompts they have not seen.

    Args:
        rounds: traced rounds.
        margins: fitted margins, which every variant learns.
        seed: of weights and batches.
    """
    groups = signal_groups(rounds.steps).items()
    parts = {"full": rounds, **{f"no-{group}": rounds.without(names) for group, names in groups}}
    networks = {name: distil(part, margins, seed) for name, part in parts.items()}
    unseen = {name: part.outcome(decisions(unseen_margins(part, margins, seed))) for name, part in parts.items()}
    return networks, unseen


def planner(rounds: Rounds, values: Values, seed: int) -> Planner:
    """Return value models of all the rounds."""
    models = final_models(rounds, values, seed)
    texts = {
        step: {"call": call.booster_.model_to_string(), "skip": skip.booster_.model_to_string()}
        for step, (call, skip) in models.items()
    }
    return Planner(signals=list(rounds.names), steps=texts)


def call_gain(rounds: Rounds) -> float:
    """Return how many tokens more a round commits that calls in its first step, where rounds that never call begin."""
    never = 2**rounds.steps
    once = never + never // 2
    begun = rounds.visited(always(rounds, never)) & rounds.open(1)
    return float((rounds.committed[begun, once] - rounds.committed[begun, never]).mean())


def calls_a_round(rounds: Rounds, schedules: Schedules) -> float:
    """Return the middle calls a round along a policy's own path."""
    return float(np.mean([bits_of(int(one)).count("1") for one in schedules[rounds.visited(schedules)]]))


def figures(
    rounds: Rounds, values: Values, unseen: dict[str, Schedules], seed: int, note: Note
) -> dict[str, dict[str, float]]:
    """Return what each policy reaches on prompts that it has not seen: its rate, gap to hindsight, calls a round.

    Args:
        rounds: traced rounds.
        values: fitted to them.
        unseen: the networks' schedules.
        seed: of folds.
        note: told each line.
    """
    policies = {
        "never": always(rounds, 2**rounds.steps),
        "best fixed schedule": rivals.best_fixed(rounds, seed),
        "threshold": rivals.threshold(rounds, seed),
        "bandit": rivals.bandit(rounds, seed),
        "cost-sensitive classification": fit_values(rounds, seed, lambda line: None, classification).schedules,
        "value models": values.schedules,
        **{f"learned, {name}": schedules for name, schedules in unseen.items()},
        "hindsight": rounds.hindsight(),
    }
    found = {}
    for name, schedules in policies.items():
        rate, gap = rounds.rate(schedules), rivals.gap(rounds, schedules)
        calls = calls_a_round(rounds, schedules)
        found[name] = {"rate": round(rate, 5), "gap": round(gap, 5), "calls": round(calls, 4)}
        note(f"{name}: {rate:.4f} tokens a verification's time, gap {gap:.4f}, {calls:.2f} calls a round")
    return found
