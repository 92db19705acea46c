"""Fits the edge model: logistic regressions on nodes that the target's text passed through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.training.q_values import FOLDS, fold_of
from methods.calibrated.edge_model import (
    NOTHING,
    EdgeModel,
    Visit,
    Weights,
    copied_inputs,
    fused_inputs,
    missed_inputs,
    sigmoid,
)
from methods.core.reliability import BINS, Bin, expected_error

ScoredBy = Literal["look-up", "both", "middle"]

LONGEST = 6
"""Longest n-gram with a regression of its own."""
_TOP = 3  # of the middle's tokens, those that a tree would hold
_HELD = 0.1  # a look-up token below that probability would not be in the tree
_STRENGTH = 10.0  # of the data against the ridge
_FEWEST = 20  # rows of either outcome that a regression needs

PRIOR = EdgeModel(
    copied=tuple((bias, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0) for bias in (-2.0, -1.2, -0.6, 0.0, 0.4, 0.8)),
    fused=(0.0, 0.7, 0.7, 0.0, 0.0, 0.0, 0.0),
    proposed=(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    missed=(-1.0, -0.3, 0.0, 0.0, 0.0, 0.0),
)
"""The edge model where data are too few to fit."""


@dataclass(slots=True)
class _Rows:
    """Inputs and outcomes of one regression."""

    inputs: list[tuple[float, ...]] = field(default_factory=list)
    outcomes: list[bool] = field(default_factory=list)

    def add(self, inputs: tuple[float, ...], outcome: bool) -> None:
        self.inputs.append(inputs)
        self.outcomes.append(outcome)


def fit_edges(visits: Sequence[Visit]) -> EdgeModel:
    """Return the edge model fitted to visits, nodes that the target's text passed through; `PRIOR` for too few."""
    copied = [_Rows() for _ in range(LONGEST)]
    for visit in visits:
        for one in visit.evidence:
            inputs = copied_inputs(one, visit.evidence[0].match, visit.depth, visit.recent)
            copied[min(one.match, LONGEST) - 1].add(inputs, one.token == visit.token)
    weights = tuple(_regression(rows, prior) for rows, prior in zip(copied, PRIOR.copied, strict=True))
    model = PRIOR.model_copy(update={"copied": weights})
    fused, proposed = _Rows(), _Rows()
    for visit in visits:
        logits = model.copied_logits(visit.evidence, visit.depth, visit.recent)
        for token, log_probability in visit.proposals or ():
            own = logits.get(token)
            inputs = fused_inputs(log_probability, own, _rival(logits, token), visit.depth, visit.recent)
            (proposed if own is None else fused).add(inputs, token == visit.token)
    model = model.model_copy(
        update={"fused": _regression(fused, PRIOR.fused), "proposed": _regression(proposed, PRIOR.proposed)}
    )
    missed = _Rows()
    for visit in visits:
        if visit.proposals is None:
            continue
        logits = model.copied_logits(visit.evidence, visit.depth, visit.recent)
        best = max(logits.values(), default=NOTHING)
        missed.add(missed_inputs(best, visit.depth, visit.recent), _is_gain(model, visit, logits))
    return model.model_copy(update={"missed": _regression(missed, PRIOR.missed)})


@dataclass(frozen=True, slots=True)
class ScoredEdges:
    """Predicted probabilities and outcomes of edges, by what scored them."""

    origins: NDArray[np.str_]
    tasks: NDArray[np.str_]
    predicted: NDArray[np.float64]
    accepted: NDArray[np.bool_]


def unfitted(model: EdgeModel) -> list[str]:
    """Return the parts of a model that equal the prior, for lack of visits."""
    copied = [
        f"copied {match}"
        for match, (own, prior) in enumerate(zip(model.copied, PRIOR.copied, strict=True), 1)
        if own == prior
    ]
    return copied + [name for name in ("fused", "proposed", "missed") if getattr(model, name) == getattr(PRIOR, name)]


def fit_unseen(visits: Sequence[Sequence[Visit]], questions: Sequence[tuple[str, int]], seed: int) -> ScoredEdges:
    """Return predictions of edges by models that were not fitted to the edge's question.

    Which nodes are visited, and which the middle drafter scored, may depend on models fitted to all questions.

    Args:
        visits: by answer.
        questions: task and number of each answer's question.
        seed: of folds.
    """
    numbers = {question: number for number, question in enumerate(dict.fromkeys(questions))}
    folds = fold_of(np.array([numbers[question] for question in questions]), seed)
    parts = []
    for fold in range(FOLDS):
        seen = [visit for place, own in enumerate(visits) if folds[place] != fold for visit in own]
        model = fit_edges(seen)
        parts += [
            scored_edges(model, own, task)
            for place, (own, (task, _)) in enumerate(zip(visits, questions, strict=True))
            if folds[place] == fold
        ]
    return ScoredEdges(*(np.concatenate([getattr(part, name) for part in parts]) for name in ScoredEdges.__slots__))


def calibration(found: ScoredEdges) -> dict[str, dict[str, Any]]:
    """Return, by origin and by task, how many edges there are, their expected calibration error, and the diagram.

    The error is the mean distance of predicted and accepted shares over ten bins, weighted by edges. The diagram
    holds for each bin with edges: mean prediction, accepted share, edges.
    """
    groups = {"all": np.ones(len(found.accepted), dtype=np.bool_)}
    groups |= {str(name): found.origins == name for name in np.unique(found.origins)}
    groups |= {str(name): found.tasks == name for name in np.unique(found.tasks)}
    return {name: _reliability(found.predicted[rows], found.accepted[rows]) for name, rows in groups.items()}


def _reliability(predicted: NDArray[np.float64], accepted: NDArray[np.bool_]) -> dict[str, Any]:
    places = np.minimum((predicted * BINS).astype(int), BINS - 1)
    parts = [places == place for place in range(BINS)]
    bins = [Bin(int(own.sum()), float(predicted[own].sum()), int(accepted[own].sum())) for own in parts]
    return {
        "edges": len(predicted),
        "error": round(expected_error(bins), 5),
        "diagram": [
            [round(one.believed / one.edges, 4), round(one.accepted / one.edges, 4), one.edges]
            for one in bins
            if one.edges
        ],
    }


def scored_edges(model: EdgeModel, visits: Sequence[Visit], task: str) -> ScoredEdges:
    """Return a model's predictions of the edges of visits, each as last scored in its round."""
    origins: list[ScoredBy] = []
    predicted, accepted = [], []
    for visit in visits:
        logits = model.copied_logits(visit.evidence, visit.depth, visit.recent)
        scores: dict[int, tuple[ScoredBy, float]] = {token: ("look-up", logit) for token, logit in logits.items()}
        for token, log_probability in visit.proposals or ():
            own = logits.get(token)
            logit = model.fused_logit(log_probability, own, _rival(logits, token), visit.depth, visit.recent)
            scores[token] = ("middle" if own is None else "both", logit)
        for token, (origin, logit) in scores.items():
            origins.append(origin)
            predicted.append(sigmoid(logit))
            accepted.append(token == visit.token)
    return ScoredEdges(
        np.array(origins, dtype="<U8"),
        np.array([task] * len(origins), dtype=np.str_),
        np.array(predicted, dtype=np.float64),
        np.array(accepted, dtype=np.bool_),
    )


def _rival(logits: dict[int, float], token: int) -> float:
    return max((logit for other, logit in logits.items() if other != token), default=NOTHING)


def _is_gain(model: EdgeModel, visit: Visit, logits: dict[int, float]) -> bool:
    """Return whether the tree would hold the target's token only with the middle's scores."""
    assert visit.proposals is not None
    fused = {
        token: model.fused_logit(log_probability, logits.get(token), _rival(logits, token), visit.depth, visit.recent)
        for token, log_probability in visit.proposals
    }
    held = sorted(fused, key=lambda token: -fused[token])[:_TOP]
    return visit.token in held and sigmoid(logits.get(visit.token, NOTHING)) < _HELD


def _regression(rows: _Rows, prior: Weights) -> Weights:
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    outcomes = np.array(rows.outcomes, dtype=np.bool_)
    if min(outcomes.sum(), (~outcomes).sum()) < _FEWEST:
        return prior
    inputs = np.array(rows.inputs)
    mean, scale = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-6)
    with threadpool_limits(1):  # more threads add in another order
        model = LogisticRegression(C=_STRENGTH, max_iter=1000).fit((inputs - mean) / scale, outcomes)
    slopes = model.coef_[0] / scale
    return tuple(float(weight) for weight in (model.intercept_[0] - slopes @ mean, *slopes))
