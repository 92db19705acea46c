"""Policy evaluation: distils fitted values and compares the policies with baseline policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foundation.errors import UserError
from harness.training import baseline_policies as rivals
from harness.training.distillation import distil_network, unseen_margins
from harness.training.policy_rollout import Rounds, Schedules, always
from harness.training.q_values import QValues, classification, decisions, final_models, fit_values
from harness.training.trace_costs import Priced
from methods.schedulers.artifact import Network, Planner
from methods.schedulers.signals import LOOKUP_SIGNALS, signal_groups

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FittedValues:
    """Traced rounds and the values fitted to them."""

    paper: Rounds
    """With the paper's signals."""
    plus: Rounds
    """With look-up's signals too."""
    values: QValues
    """Fitted to the paper's signals."""
    plus_values: QValues
    """Fitted to all."""

    @classmethod
    def of(cls, rounds: Rounds, seed: int, note: Note) -> FittedValues:
        """Fit values to traced rounds at the costs of a fitted scheduler."""
        paper = rounds.without(LOOKUP_SIGNALS)
        note(f"{len(rounds)} rounds of {len(np.unique(rounds.prompts))} questions")
        values = fit_values(paper, seed, lambda line: note(f"the paper's signals, {line}"))
        plus = fit_values(rounds, seed, lambda line: note(f"with look-up's, {line}"))
        return cls(paper, rounds, values, plus)

    def variants(self) -> dict[str, tuple[Rounds, QValues]]:
        """Return each variant of the learned scheduler by name, with its signals and target values."""
        groups = signal_groups(self.paper.steps)
        parts = {f"no-{group}": self.paper.without(names) for group, names in groups.items() if names != LOOKUP_SIGNALS}
        seen = {name: (part, self.values) for name, part in {"full": self.paper, **parts}.items()}
        return {**seen, "plus": (self.plus, self.plus_values)}


def check_decisions(rounds: Rounds, origin: str) -> None:
    """Refuse rounds without any decision: no call is possible, or nothing was drafted."""
    if rounds.most_calls < 1:
        raise UserError(f"{origin}: B0 is 0, so that there is nothing to learn; give another clock, or max_calls")
    if not rounds.open(1).any():
        raise UserError(f"{origin}: no answer is long enough to draft anything; raise --max-new-tokens")


def distil_networks(fitted: FittedValues, seed: int) -> tuple[dict[str, Network], dict[str, Schedules]]:
    """Return networks by variant, and the schedules of networks that have not seen a round's prompt."""
    networks, unseen = dict[str, Network](), dict[str, Schedules]()
    for name, (part, values) in fitted.variants().items():
        networks[name] = distil_network(part, values.margins, seed)
        unseen[name] = part.outcome(decisions(unseen_margins(part, values.margins, seed)))
    return networks, unseen


def planner(rounds: Rounds, values: QValues, seed: int) -> Planner:
    """Return value models of all the rounds."""
    models = final_models(rounds, values, seed)
    texts = {
        step: {"call": call.booster_.model_to_string(), "skip": skip.booster_.model_to_string()}
        for step, (call, skip) in models.items()
    }
    return Planner.model_validate({"signals": list(rounds.names), "steps": texts})


def call_gain(rounds: Rounds) -> float:
    """Return the extra tokens of a call in the first step, over rounds on the path of never calling."""
    never = 2**rounds.steps
    once = never + never // 2
    begun = rounds.visited(always(rounds, never)) & rounds.open(1)
    return float((rounds.committed[begun, once] - rounds.committed[begun, never]).mean())


def calls_a_round(rounds: Rounds, schedules: Schedules) -> float:
    """Return the middle calls a round along a policy's own path."""
    rows = np.flatnonzero(rounds.visited(schedules))
    return float(rounds.calls[rows, schedules[rows]].mean())


def _classified(rounds: Rounds, seed: int) -> Schedules:
    """Return the schedules of cost-sensitive classifiers, with an offset like the networks'."""
    margins = fit_values(rounds, seed, lambda line: None, classification).margins
    return rivals.with_best_offset(rounds, margins, seed)


def figures(
    priced: Priced, fitted: FittedValues, unseen: dict[str, Schedules], seed: int, note: Note
) -> dict[str, dict[str, float]]:
    """Return each policy's rate, gap to hindsight and calls a round, on prompts that it has not seen.

    Args:
        priced: traced rounds.
        fitted: the values fitted to them.
        unseen: the networks' schedules.
        seed: of folds.
        note: prints a line.
    """
    fixed, deciding, ruled = priced.fixed, fitted.paper, priced.ruled
    policies = {
        "never": (fixed, always(fixed, 2**fixed.steps)),
        "best fixed schedule": (fixed, rivals.best_fixed(fixed, seed)),
        "threshold": (ruled, rivals.threshold(ruled.without(LOOKUP_SIGNALS), seed)),
        "threshold, plus": (ruled, rivals.threshold(ruled, seed)),
        "bandit": (fixed, rivals.bandit(fixed, seed)),
        "classification": (deciding, _classified(fitted.paper, seed)),
        "classification, plus": (deciding, _classified(fitted.plus, seed)),
        "value models": (deciding, fitted.values.schedules),
        "value models, plus": (deciding, fitted.plus_values.schedules),
        **{f"learned, {name}": (deciding, schedules) for name, schedules in unseen.items()},
        "hindsight": (fixed.without_catching_up(), fixed.hindsight()),
    }
    result = {}
    for name, (rounds, schedules) in policies.items():
        rate, gap = rounds.rate(schedules), rivals.gap(rounds, schedules, fixed)
        calls = calls_a_round(rounds, schedules)
        result[name] = {"rate": round(rate, 5), "gap": round(gap, 5), "calls": round(calls, 4)}
        note(f"{name}: {rate:.4f} tokens a verification's time, gap {gap:.4f}, {calls:.2f} calls a round")
    return result
