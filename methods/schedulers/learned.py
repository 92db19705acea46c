"""The learned online scheduler, and the value models it was distilled from (TreeGraft, section 4, Table 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foundation.errors import UserError
from methods.latency import Latency
from methods.schedulers.artifact import Network, load_artifact, load_planner
from methods.schedulers.scheduler import BoundedScheduler, DraftState, register_scheduler
from methods.schedulers.signals import SignalReader
from methods.settings import Settings


class Margin:
    """Evaluates a network: the time that a call saves over none, in verifications."""

    def __init__(self, network: Network) -> None:
        self._layers = [
            (np.array(weights), np.array(biases))
            for weights, biases in zip(network.weights, network.biases, strict=True)
        ]

    def __call__(self, signals: Sequence[float]) -> float:
        """Return the margin of a state, given the network's signals."""
        values = np.array(signals)
        for weights, biases in self._layers[:-1]:
            values = np.maximum(weights @ values + biases, 0.0)
        weights, biases = self._layers[-1]
        return float(weights[0] @ values + biases[0])


@register_scheduler("learned")
class LearnedScheduler(BoundedScheduler):
    """Calls if the distilled network values a call above none; raises UserError without a fitting artifact."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        variants = load_artifact(_artifact(settings), settings).variants
        if settings.signals not in variants:
            raise UserError(f"scheduler artifact {settings.artifact}: has no variant {settings.signals!r}; fit it anew")
        network = variants[settings.signals]
        self.margin = Margin(network)
        self.reader = SignalReader(settings, network.signals)

    def begin(self, prompt_tokens: int, latency: Latency | None) -> None:
        """Start a prompt."""
        super().begin(prompt_tokens, latency)
        self.reader.begin(prompt_tokens, self.latency)

    def wants_call(self, state: DraftState) -> bool:
        """Return whether the margin is above 0."""
        return self.margin(self.reader.read(state)) > 0


@register_scheduler("planner")
class ValuePlanner(BoundedScheduler):
    """Calls if the value models value a call above none, exactly but slowly; errors as in `LearnedScheduler`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        name = _artifact(settings)
        load_artifact(name, settings)
        planner = load_planner(name, settings)
        self.reader = SignalReader(settings, planner.signals)
        self._models = planner.boosters(name)

    def begin(self, prompt_tokens: int, latency: Latency | None) -> None:
        """Start a prompt."""
        super().begin(prompt_tokens, latency)
        self.reader.begin(prompt_tokens, self.latency)

    def wants_call(self, state: DraftState) -> bool:
        """Return whether Q(call) > Q(skip)."""
        if state.step not in self._models:  # training never had a choice there
            return False
        signals = np.array([self.reader.read(state)])
        call, skip = (np.asarray(model.predict(signals, num_threads=1)) for model in self._models[state.step])
        return bool(call[0] > skip[0])


def _artifact(settings: Settings) -> str:
    if settings.artifact is None:
        raise UserError(
            f"scheduler {settings.scheduler}: this pair has no fitted artifact; make one with treegraft fit, "
            "and give artifact: FOLDER"
        )
    return settings.artifact
