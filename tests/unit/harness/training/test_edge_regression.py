"""Fitting the edge model to nodes whose truth is known."""

import random

import numpy as np
import pytest

from harness.training import edge_regression as edges
from harness.training.edge_regression import PRIOR, calibration, fit_edges, fit_unseen, scored_edges, unfitted
from methods.calibrated.edge_model import Recent, Visit
from methods.drafters.ngram_index import Evidence

TRUTH = {1: 0.1, 2: 0.3, 3: 0.6, 4: 0.8, 5: 0.9, 6: 0.95}


def visits(count, rng, truth=TRUTH):
    """Return nodes at which look-up found one token, right as often as its match is long; the middle knows the rest."""
    found = []
    for _ in range(count):
        match = rng.randint(1, 6)
        right = rng.random() < truth[match]
        middle = rng.random() < 0.7
        token = 7 if right else 9 if middle else 11
        found.append(
            Visit(
                0, [Evidence(7, match, 1, 1, 10)], [(9, np.log(0.7 * (1 - truth[match]))), (7, -1.0)], Recent(), token
            )
        )
    return found


@pytest.fixture(scope="module")
def fitted():
    return fit_edges(visits(6000, random.Random(0)))


def test_planted_shares_are_found(fitted):
    seen = visits(6000, random.Random(1))
    found = scored_edges(fitted, [visit._replace(proposals=None) for visit in seen], "mini")
    matches = np.array([visit.evidence[0].match for visit in seen])
    for match, share in TRUTH.items():
        assert found.predicted[matches == match].mean() == pytest.approx(share, abs=0.04)


def test_unseen_answers_are_calibrated_and_wrong_beliefs_are_not():
    rng = random.Random(2)
    answers = [visits(200, rng) for _ in range(20)]
    figures = calibration(fit_unseen(answers, [("ab"[number % 2], number) for number in range(20)], seed=0))
    assert {"all", "both", "middle", "a", "b"} <= figures.keys()
    assert figures["all"]["error"] < 0.03
    assert figures["all"]["edges"] == sum(count for _, _, count in figures["all"]["diagram"]) == 20 * 200 * 2
    wrong = PRIOR.model_copy(update={"fused": (3.0, *PRIOR.fused[1:])})
    assert calibration(scored_edges(wrong, answers[0], "a"))["both"]["error"] > 0.1


def test_no_model_judges_a_question_that_it_was_fitted_to(monkeypatch):
    answers = [[visit] for visit in visits(24, random.Random(5))]
    questions = [("a", number // 2) for number in range(24)]  # each answered twice
    fitted_to = []

    def recorded(seen):
        fitted_to.append([id(visit) for visit in seen])
        return PRIOR

    held = []

    def judging(model, own, task):
        held.append((len(fitted_to) - 1, [id(visit) for visit in own]))
        return scored_edges(model, own, task)

    monkeypatch.setattr(edges, "fit_edges", recorded)
    monkeypatch.setattr(edges, "scored_edges", judging)
    fit_unseen(answers, questions, seed=0)
    assert len(held) == 24
    by_visit = {id(visit): question for (visit,), question in zip(answers, questions, strict=True)}
    for fold, (own,) in held:
        assert by_visit[own] not in {by_visit[seen] for seen in fitted_to[fold]}


def test_what_stayed_as_it_was_believed_is_named(fitted):
    assert unfitted(fitted) == []
    assert unfitted(PRIOR) == [*(f"copied {match}" for match in range(1, 7)), "fused", "proposed", "missed"]


def test_a_call_is_expected_to_help_where_look_up_errs(fitted):
    assert fitted.missed_logit(-2.0, 0, Recent()) > fitted.missed_logit(2.0, 0, Recent()) + 1.0


def test_too_few_nodes_leave_what_was_believed():
    assert fit_edges(visits(20, random.Random(3))) == PRIOR


def test_the_same_nodes_give_the_same_weights():
    seen = visits(500, random.Random(4))
    assert fit_edges(seen) == fit_edges(list(seen))
