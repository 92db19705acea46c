"""Heuristic schedulers, rivals of the learned one (TreeGraft, Table 16)."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from foundation.errors import UserError
from methods.schedulers.scheduler import BoundedScheduler, DraftState, register_scheduler
from methods.settings import Settings

_EARLY_STEPS = 3


@register_scheduler("early")
class AlwaysEarly(BoundedScheduler):
    """Calls in the first three steps."""

    def wants_call(self, state: DraftState) -> bool:
        """Return whether this is one of them."""
        return state.step <= _EARLY_STEPS


class _Confidence(BoundedScheduler):
    """Reads the tree's confidence in its frontier; raises UserError without a `threshold`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings.threshold is None:
            raise UserError(f"scheduler {settings.scheduler}: needs a threshold; give threshold: 0.7")
        self.threshold = settings.threshold

    @staticmethod
    def confidences(state: DraftState) -> Sequence[float]:
        """Return q of the frontier's nodes, best first; at step 1 the root's continuation shares."""
        if state.step == 1:
            return state.root_shares()
        weights = sorted((exp(state.tree.scores[node]) for node in state.frontier), reverse=True)
        whole = max(1.0, sum(weights))
        return [weight / whole for weight in weights]


@register_scheduler("entropy-confidence")
class EntropyConfidence(_Confidence):
    """Calls when the best node's confidence is below the threshold."""

    def wants_call(self, state: DraftState) -> bool:
        """Return whether max q < threshold."""
        return max(self.confidences(state), default=0.0) < self.threshold


@register_scheduler("candidate-score-gap")
class CandidateScoreGap(_Confidence):
    """Calls when the confidences of the best two nodes differ by less than the threshold."""

    def wants_call(self, state: DraftState) -> bool:
        """Return whether q1 - q2 < threshold; a missing one is 0."""
        first, second = [*self.confidences(state), 0.0, 0.0][:2]
        return first - second < self.threshold


@register_scheduler("latency-normalized")
class LatencyNormalized(_Confidence):
    """Calls when the expected gain relative to a round's tokens outweighs the draft latency relative to a round's time.

    Raises UserError without `threshold` or `call_gain`.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings.call_gain is None:
            raise UserError(
                "scheduler latency-normalized: needs the tokens that a call brings; `treegraft fit` prints them, "
                "give call_gain: 0.5"
            )
        self._call_gain = settings.call_gain

    def wants_call(self, state: DraftState) -> bool:
        """Return whether [min(1, sum of e^s) (1 - max q) h] / (A + 1) / (T_mid / T_round) > threshold."""
        rounds = max(1, self.rounds)
        round_ms = self.latency.target_ms + self.latency.middle_ms * self.calls / rounds
        mass = min(1.0, sum(exp(state.tree.scores[node]) for node in state.frontier))
        doubt = 1 - max(self.confidences(state), default=0.0)
        gain = mass * doubt * self._call_gain / (self.accepted / rounds + 1)
        return gain / (self.latency.middle_ms / round_ms) > self.threshold
