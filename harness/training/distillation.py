"""Distils fitted values into the tiny network that decides online."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.training.policy_rollout import Floats, Rounds
from harness.training.q_values import decisions, held_out
from methods.schedulers.artifact import Network, Planner

if TYPE_CHECKING:
    from sklearn.neural_network import MLPRegressor

HIDDEN = (32, 16)
_DIGITS = 7
_EPOCHS = 40
_OFFSETS = 61
"""Offsets tried, as quantiles of the margins."""
_LEAST_SPREAD = 1e-9


def distil_network(rounds: Rounds, margins: Floats, seed: int) -> Network:
    """Return a network for the margins Q(call) - Q(skip) of states [rounds, 2^D], less an offset.

    Signals that never vary are left out. Regression shrinks margins, which could leave few calls or none, so the offset
    is tuned to make the rounds fastest.
    """
    network = _regressed(rounds, margins, seed)
    offset = best_offset(rounds, network_margins(network, rounds))
    *hidden, (last,) = network.biases
    return network.model_copy(update={"biases": [*hidden, _rounded(np.array([last - offset]))]})


def best_offset(rounds: Rounds, margins: Floats) -> float:
    """Return the offset to subtract from margins so that calling where they are above 0 is fastest."""
    offsets = np.concatenate([[0.0], _between(margins[~np.isnan(margins)])])
    schedules = np.stack([rounds.outcome(decisions(margins - offset)) for offset in offsets], axis=1)
    return float(offsets[rounds.rates_of(schedules).argmax()])  # of equal ones the first, which is 0


def _between(margins: Floats) -> Floats:
    """Return numbers between margins, about as many margins apart, and one beyond each end.

    None of them is a margin: many states may share one, and rounding must not decide about them.
    """
    distinct = np.unique(margins)
    quantiles = np.quantile(margins, np.linspace(0, 1, _OFFSETS), method="lower")
    places = np.unique(np.searchsorted(distinct, quantiles))
    inner = places[places < len(distinct) - 1]
    return np.concatenate([[distinct[0] - 1], (distinct[inner] + distinct[inner + 1]) / 2, [distinct[-1] + 1]])


def _regressed(rounds: Rounds, margins: Floats, seed: int) -> Network:
    """Return a network fitted by least squares."""
    seen, target = _examples(rounds, margins)
    kept = np.flatnonzero(seen.std(axis=0) > _LEAST_SPREAD)
    level, unit = target.mean(), target.std()
    if not len(kept) or unit < _LEAST_SPREAD:
        return Network(signals=[rounds.names[0]], weights=[[[0.0]]], biases=[[float(level)]])
    mean, spread = seen[:, kept].mean(axis=0), seen[:, kept].std(axis=0)
    model = _fitted((seen[:, kept] - mean) / spread, (target - level) / unit, seed)
    weights = [layer.T for layer in model.coefs_]
    biases = [np.asarray(bias) for bias in model.intercepts_]
    biases[0] = biases[0] - weights[0] @ (mean / spread)
    weights[0] = weights[0] / spread
    biases[-1], weights[-1] = biases[-1] * unit + level, weights[-1] * unit
    return Network(
        signals=[rounds.names[place] for place in kept],
        weights=[_rounded(layer) for layer in weights],
        biases=[_rounded(bias) for bias in biases],
    )


def unseen_margins(rounds: Rounds, margins: Floats, seed: int) -> Floats:
    """Return distilled margins of every state, by networks that have not seen its prompt, [rounds, 2^D].

    Their value models may have seen it.
    """
    distilled = np.full_like(margins, np.nan)
    for held in held_out(rounds.prompts, seed):
        network = distil_network(rounds.part(~held), margins[~held], seed)
        distilled[held] = network_margins(network, rounds.part(held))
    return distilled


def network_margins(network: Network, rounds: Rounds) -> Floats:
    """Return a network's margin of every state, [rounds, 2^D]; NaN where B0 allows no call or drafting had ended."""
    places = [rounds.names.index(name) for name in network.signals]
    margins = np.full((len(rounds), 2**rounds.steps), np.nan)
    for state in range(1, 2**rounds.steps):
        if rounds.may_call(state):
            values = rounds.signals[:, state, places]
            for weights, biases in zip(network.weights[:-1], network.biases[:-1], strict=True):
                values = np.maximum(values @ np.array(weights).T + np.array(biases), 0.0)
            margins[:, state] = (values @ np.array(network.weights[-1]).T + np.array(network.biases[-1]))[:, 0]
    return margins


def planner_margins(planner: Planner, rounds: Rounds, name: str) -> Floats:
    """Return the value models' margin of every state, [rounds, 2^D]; NaN as in `network_margins`.

    Errors call the artifact `name`.
    """
    places = [rounds.names.index(name) for name in planner.signals]
    margins = np.full((len(rounds), 2**rounds.steps), np.nan)
    for step, (call, skip) in planner.boosters(name).items():
        for state in filter(rounds.may_call, rounds.level(step)):
            rows = rounds.open(state)
            if rows.any():
                seen = rounds.signals[rows, state][:, places]
                margins[rows, state] = np.asarray(call.predict(seen)) - np.asarray(skip.predict(seen))
    return margins


def _examples(rounds: Rounds, margins: Floats) -> tuple[Floats, Floats]:
    """Return signals [states, signals] and margins [states] of every state that has one."""
    states = [(state, ~np.isnan(margins[:, state])) for state in range(1, 2**rounds.steps)]
    seen = np.concatenate([rounds.signals[rows, state] for state, rows in states])
    return seen, np.concatenate([margins[rows, state] for state, rows in states])


def _fitted(seen: Floats, target: Floats, seed: int) -> MLPRegressor:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor
    from threadpoolctl import threadpool_limits

    model = MLPRegressor(
        hidden_layer_sizes=HIDDEN, random_state=seed, max_iter=_EPOCHS, batch_size=min(256, len(seen)), alpha=1e-4
    )
    with threadpool_limits(1), warnings.catch_warnings():  # more threads add in another order
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(seen, target)


def _rounded(values: NDArray[np.float64]) -> Any:
    return np.vectorize(lambda value: float(f"{value:.{_DIGITS}g}"))(values).tolist()
