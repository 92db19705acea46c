"""What becomes of fitted values: networks, the planner, and the figures by which they are judged against rivals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.errors import UserError
from harness.fitting.arrays import Priced
from methods.schedulers.artifact import Network, Planner
from methods.schedulers.signals import LOOKUP_SIGNALS, signal_groups
from methods.value_system import rivals
from methods.value_system.distilling import distil, unseen_margins
from methods.value_system.rounds import Rounds, Schedules, always
from methods.value_system.values import Values, classification, decisions, final_models, fit_values

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Lessons:
    """Rounds that schedulers learn from, and the values fitted to them."""

    paper: Rounds
    """With the paper's signals."""
    plus: Rounds
    """With those of look-up besides."""
    values: Values
    """Fitted to the paper's signals."""
    plus_values: Values
    """Fitted to all."""

    @classmethod
    def of(cls, rounds: Rounds, seed: int, note: Note) -> Lessons:
        """Fit values to rounds.

        Args:
            rounds: traced, charged as where a fitted scheduler decides.
            seed: of LightGBM and of the folds.
            note: told how it goes.
        """
        paper = rounds.without(LOOKUP_SIGNALS)
        note(f"{len(rounds)} rounds of {len(np.unique(rounds.prompts))} questions")
        values = fit_values(paper, seed, lambda line: note(f"the paper's signals, {line}"))
        plus = fit_values(rounds, seed, lambda line: note(f"with look-up's, {line}"))
        return cls(paper, rounds, values, plus)

    def variants(self) -> dict[str, tuple[Rounds, Values]]:
        """Return what each variant of the learned scheduler sees, and the values that it learns, by its name."""
        groups = signal_groups(self.paper.steps)
        parts = {f"no-{group}": self.paper.without(names) for group, names in groups.items() if names != LOOKUP_SIGNALS}
        seen = {name: (part, self.values) for name, part in {"full": self.paper, **parts}.items()}
        return {**seen, "plus": (self.plus, self.plus_values)}


def check_decisions(rounds: Rounds, origin: str) -> None:
    """Refuse rounds in which nothing can be learnt.

    Raises:
        UserError: no call is ever possible, or nothing was drafted.
    """
    if rounds.most_calls < 1:
        raise UserError(f"{origin}: B0 is 0, so that there is nothing to learn; give another clock, or max_calls")
    if not rounds.open(1).any():
        raise UserError(f"{origin}: no answer is long enough to draft anything; raise --max-new-tokens")


def distilled(lessons: Lessons, seed: int) -> tuple[dict[str, Network], dict[str, Schedules]]:
    """Return networks by variant, and the schedules that networks give to rounds whose prompts they have not seen.

    Args:
        lessons: what they learn from.
        seed: of weights and batches.
    """
    networks, unseen = dict[str, Network](), dict[str, Schedules]()
    for name, (part, values) in lessons.variants().items():
        networks[name] = distil(part, values.margins, seed)
        unseen[name] = part.outcome(decisions(unseen_margins(part, values.margins, seed)))
    return networks, unseen


def planner(rounds: Rounds, values: Values, seed: int) -> Planner:
    """Return value models of all the rounds."""
    models = final_models(rounds, values, seed)
    texts = {
        step: {"call": call.booster_.model_to_string(), "skip": skip.booster_.model_to_string()}
        for step, (call, skip) in models.items()
    }
    return Planner.model_validate({"signals": list(rounds.names), "steps": texts})


def call_gain(rounds: Rounds) -> float:
    """Return how many tokens more a round commits that calls in its first step, where rounds that never call begin."""
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
    priced: Priced, lessons: Lessons, unseen: dict[str, Schedules], seed: int, note: Note
) -> dict[str, dict[str, float]]:
    """Return what each policy reaches on prompts that it has not seen: its rate, gap to hindsight, calls a round.

    Args:
        priced: traced rounds.
        lessons: the values fitted to them.
        unseen: the networks' schedules.
        seed: of folds.
        note: told each line.
    """
    fixed, deciding, ruled = priced.fixed, lessons.paper, priced.ruled
    policies = {
        "never": (fixed, always(fixed, 2**fixed.steps)),
        "best fixed schedule": (fixed, rivals.best_fixed(fixed, seed)),
        "threshold": (ruled, rivals.threshold(ruled.without(LOOKUP_SIGNALS), seed)),
        "threshold, plus": (ruled, rivals.threshold(ruled, seed)),
        "bandit": (fixed, rivals.bandit(fixed, seed)),
        "classification": (deciding, _classified(lessons.paper, seed)),
        "classification, plus": (deciding, _classified(lessons.plus, seed)),
        "value models": (deciding, lessons.values.schedules),
        "value models, plus": (deciding, lessons.plus_values.schedules),
        **{f"learned, {name}": (deciding, schedules) for name, schedules in unseen.items()},
        "hindsight": (fixed.without_catching_up(), fixed.hindsight()),
    }
    found = {}
    for name, (rounds, schedules) in policies.items():
        rate, gap = rounds.rate(schedules), rivals.gap(rounds, schedules, fixed)
        calls = calls_a_round(rounds, schedules)
        found[name] = {"rate": round(rate, 5), "gap": round(gap, 5), "calls": round(calls, 4)}
        note(f"{name}: {rate:.4f} tokens a verification's time, gap {gap:.4f}, {calls:.2f} calls a round")
    return found
