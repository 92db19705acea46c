"""From fitted values to the tiny network that decides online."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from methods.schedulers.artifact import Network, Planner
from methods.value_system.rounds import Floats, Rounds
from methods.value_system.values import FOLDS, fold_of

if TYPE_CHECKING:
    from sklearn.neural_network import MLPRegressor

HIDDEN = (32, 16)
_DIGITS = 7
_EPOCHS = 40
_LEAST_SPREAD = 1e-9


def distil(rounds: Rounds, margins: Floats, seed: int) -> Network:
    """Return a network that gives the margins of states.

    Signals that never vary in the rounds are left out: nothing could be learnt of them.

    Args:
        rounds: traced rounds.
        margins: Q(call) - Q(skip), [rounds, 2^D].
        seed: of weights and batches.
    """
    seen, target = _lessons(rounds, margins)
    kept = np.flatnonzero(seen.std(axis=0) > _LEAST_SPREAD)
    mean, spread = seen[:, kept].mean(axis=0), seen[:, kept].std(axis=0)
    model = _fitted((seen[:, kept] - mean) / spread, target, seed)
    weights = [layer.T for layer in model.coefs_]
    biases = [np.asarray(bias) for bias in model.intercepts_]
    biases[0] = biases[0] - weights[0] @ (mean / spread)
    weights[0] = weights[0] / spread
    return Network(
        signals=[rounds.names[place] for place in kept],
        weights=[_rounded(layer) for layer in weights],
        biases=[_rounded(bias) for bias in biases],
    )


def unseen_margins(rounds: Rounds, margins: Floats, seed: int) -> Floats:
    """Return distilled margins of every state, by networks that have not seen its prompt, [rounds, 2^D].

    What they learn is what value models say, some of which have seen it.
    """
    folds = fold_of(rounds.prompts, seed)
    found = np.full_like(margins, np.nan)
    for fold in range(FOLDS):
        held = folds == fold
        if held.any() and not held.all():
            network = distil(rounds.part(~held), margins[~held], seed)
            found[held] = network_margins(network, rounds.part(held))
    return found


def network_margins(network: Network, rounds: Rounds) -> Floats:
    """Return a network's margin of every state, [rounds, 2^D]; NaN where B0 leaves no call or drafting had ended."""
    places = [rounds.names.index(name) for name in network.signals]
    found = np.full((len(rounds), 2**rounds.steps), np.nan)
    for state in range(1, 2**rounds.steps):
        if rounds.may_call(state):
            values = rounds.signals[:, state, places]
            for weights, biases in zip(network.weights[:-1], network.biases[:-1], strict=True):
                values = np.maximum(values @ np.array(weights).T + np.array(biases), 0.0)
            found[:, state] = (values @ np.array(network.weights[-1]).T + np.array(network.biases[-1]))[:, 0]
    return found


def planner_margins(planner: Planner, rounds: Rounds) -> Floats:
    """Return the value models' margin of every state, [rounds, 2^D]; NaN as in `network_margins`."""
    from lightgbm import Booster

    places = [rounds.names.index(name) for name in planner.signals]
    found = np.full((len(rounds), 2**rounds.steps), np.nan)
    for step, models in planner.steps.items():
        call, skip = Booster(model_str=models["call"]), Booster(model_str=models["skip"])
        for state in filter(rounds.may_call, rounds.level(step)):
            rows = rounds.open(state)
            if rows.any():
                seen = rounds.signals[rows, state][:, places]
                found[rows, state] = np.asarray(call.predict(seen)) - np.asarray(skip.predict(seen))
    return found


def _lessons(rounds: Rounds, margins: Floats) -> tuple[Floats, Floats]:
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
