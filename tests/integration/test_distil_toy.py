"""A drafter distilled from the toy target agrees with it far more often than the layers that it began as."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.distil.agreement import decode_greedily, hits, rates
from harness.distil.batched_generation import Writer
from harness.distil.distil import distil
from harness.distil.prompts import task_prompts
from harness.distil.settings import DistilSettings
from harness.models.distilled import load_distilled, read_card
from harness.models.loading import load_pair
from harness.models.pair import get_pair
from harness.models.shared_layers import sharing_layers
from methods.core.model import TreeModel

pytestmark = pytest.mark.torch

LAYERS = [0, 2]


@pytest.fixture(scope="module")
def settings(tmp_path_factory, one_thread):
    return DistilSettings(
        target="toy",
        layers=LAYERS,
        out=str(tmp_path_factory.mktemp("toy") / "drafter"),
        vocabulary=0,
        tokens=30_000,
        batch=64,
        question_tokens=24,
        answer_tokens=64,
        article_tokens=64,
        epochs=6,
        batch_tokens=1024,
        learning_rate=1e-2,
        data="embedded",
        limit=3,
        max_new_tokens=48,
        threads=1,
    )


@pytest.fixture(scope="module")
def distilled_once(settings):
    """Distil once; return the card, and by title what each progress bar counted and was to count."""
    bars = {}

    @contextmanager
    def bar(title, total):
        bars[title] = [0, total]

        def advance(count, note):
            bars[title][0] += count

        yield advance

    return distil(settings, bar), bars


@pytest.fixture(scope="module")
def questions(settings):
    """The toy target and its greedy answers to the questions of every task."""
    loaded = load_pair(get_pair("toy"), dtype="fp32", device="cpu")
    target = loaded.models.target.model
    asked = task_prompts(settings, loaded.pair, loaded.models.tokenizer)
    prompts = [prompt for own in asked.values() for prompt in own]
    return loaded, decode_greedily(Writer(target, loaded.eos_ids), prompts, settings.max_new_tokens)


def agreement(model, answers):
    return rates(hits(TreeModel(model.eval()), answers))


def test_the_target_agrees_with_itself_on_every_token(questions):
    loaded, answers = questions
    target = loaded.models.target.model

    assert len(answers) == 18
    assert agreement(sharing_layers(target, [0, 1, 2], "layers"), answers)["top1"] == 1.0


def test_training_doubles_the_agreement(settings, distilled_once, questions):
    loaded, answers = questions
    target = loaded.models.target.model
    untrained = agreement(sharing_layers(target, LAYERS, "layers"), answers)
    trained = agreement(load_distilled(target, loaded.weights["target"]["sha256"], Path(settings.out)), answers)

    assert untrained["top1"] < 0.16  # 13 % here
    assert trained["top1"] > 0.28  # 34 to 35 % with each of three seeds
    assert trained["top10"] > 0.7 > untrained["top10"]
    assert trained == distilled_once[0].figures["agreement"]["overall"]


def test_the_card_says_what_was_done_and_measured(settings, distilled_once):
    card, bars = distilled_once

    assert read_card(Path(settings.out)) == card
    assert (card.layers, card.vocabulary) == (LAYERS, 0)
    assert card.text["tokens"] == bars["tokens written"][0] >= settings.tokens
    assert bars["batches trained"][0] == bars["batches trained"][1] > 100
    assert bars["questions answered"] == [18, 18]
    assert {*card.figures["agreement"]} == {*settings.tasks, "overall"}
    assert {*card.figures["latency"]} == {"1", "16", "32"}
    page = (Path(settings.out) / "README.md").read_text()
    assert f"{card.figures['agreement']['overall']['top1']:.1%}" in page
    assert "middle: {distilled: " in page
