"""The edge model's arithmetic."""

import math

import pytest
from pydantic import ValidationError

from harness.training.edge_regression import PRIOR
from methods.calibrated.edge_model import MOST_LOGIT, EdgeModel, Recent, clipped, log_sigmoid, logit_of, sigmoid
from methods.drafters.ngram_index import Evidence


@pytest.mark.parametrize("probability", [0.001, 0.2, 0.5, 0.9, 0.999])
def test_a_logit_and_its_probability_are_each_others_inverse(probability):
    logit = logit_of(math.log(probability))
    assert sigmoid(logit) == pytest.approx(probability)
    assert log_sigmoid(logit) == pytest.approx(math.log(probability))


@pytest.mark.parametrize("log_probability", [0.0, -1e-30, -700.0, -20.0])
def test_certain_and_impossible_tokens_have_finite_logits(log_probability):
    for copied in (None, MOST_LOGIT, -MOST_LOGIT):
        logit = PRIOR.fused_logit(log_probability, copied, -MOST_LOGIT, 3, Recent())
        assert -MOST_LOGIT <= logit <= MOST_LOGIT
        assert log_sigmoid(logit) < 0.0


def test_before_fitting_longer_matches_and_larger_shares_count_more():
    def logit(match, times):
        return PRIOR.copied_logit(Evidence(7, match, times, 4, 20), match, 0, Recent())

    assert logit(1, 4) < logit(2, 4) < logit(5, 4)
    assert logit(3, 1) < logit(3, 2) < logit(3, 4)
    assert logit(9, 4) == logit(len(PRIOR.copied), 4)  # longer matches than it knows are its longest


@pytest.mark.parametrize("part", ["copied", "fused", "proposed", "missed"])
def test_weights_that_do_not_match_their_inputs_are_no_model(part):
    weights = getattr(PRIOR, part)
    short = (weights[0][:-1], *weights[1:]) if part == "copied" else weights[:-1]
    with pytest.raises(ValidationError, match=part):
        EdgeModel.model_validate({**PRIOR.model_dump(), part: short})


def test_luck_moves_towards_what_happened_and_only_for_who_chose():
    better = Recent().after(small=True)
    assert better.small > 0.5 == better.middle
    assert Recent().after(small=False, middle=True) == (pytest.approx(0.45), pytest.approx(0.55))
    assert clipped(-100.0) + MOST_LOGIT >= 0.0
