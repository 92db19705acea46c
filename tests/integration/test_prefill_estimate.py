"""The public code's estimate: the target's own prefill probability of a prompt token."""

import random

import pytest
import torch

from methods.core.model import TreeModel
from methods.drafters.prefill_estimate import PrefillEstimate

pytestmark = pytest.mark.torch

WIDTH = 10


class OneLate(PrefillEstimate):
    """The mutant: a token's score is that of the next one."""

    def __call__(self, position, match, count, total):
        return super().__call__(position + 1, match, count, total)


def check_estimates(kind, model, prompt):
    """Word by word: the log-probability if it is among the W best there, else the W-th less 5; outside the prompt 0."""
    estimate, target = kind(WIDTH), TreeModel(model)
    target.begin(len(prompt))
    estimate.prefill(target, prompt[:-1], prompt)
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0].log_softmax(-1)
    among_best = 0
    for position in range(1, len(prompt)):
        best = logits[position - 1].sort(descending=True).values[:WIDTH].tolist()
        own = float(logits[position - 1, prompt[position]])
        among_best += own >= best[-1]
        expected = own if own >= best[-1] else best[-1] - 5.0
        assert estimate(position, 3, 1, 2) == pytest.approx(expected, abs=1e-3)
    assert estimate(0, 1, 1, 1) == estimate(len(prompt), 1, 1, 1) == estimate(len(prompt) + 9, 1, 1, 1) == 0.0
    return among_best


@pytest.mark.parametrize("length", [1, 2, 257, 258, 300])
def test_estimates_follow_their_description_over_all_chunks(llama, length):
    rng = random.Random(length)
    prompt = [rng.randrange(64) for _ in range(length)]

    among_best = check_estimates(PrefillEstimate, llama, prompt)

    assert 0 < among_best < length - 1 or length < 3
    if length > 2:
        with pytest.raises(AssertionError):
            check_estimates(OneLate, llama, prompt)


def test_scoring_commits_what_a_plain_prefill_commits(llama):
    model = TreeModel(llama)
    model.begin(8)

    PrefillEstimate(WIDTH).prefill(model, [5, 6, 7], [5, 6, 7, 8])

    assert (model.length, model.pending) == (3, 0)


def test_a_second_prompts_scores_are_its_own(llama):
    estimate, target = PrefillEstimate(WIDTH), TreeModel(llama)
    for prompt in ([5, 6, 7, 8], [9, 10, 11]):
        target.begin(len(prompt))
        estimate.prefill(target, prompt[:-1], prompt)
    alone = PrefillEstimate(WIDTH)
    target.begin(3)
    alone.prefill(target, [9, 10], [9, 10, 11])

    assert [estimate(place, 1, 1, 1) for place in range(5)] == [alone(place, 1, 1, 1) for place in range(5)]
