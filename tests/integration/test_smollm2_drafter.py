"""The drafter that ships with `smollm2`: the file of its card, small enough, and no worse than it says."""

import re
from pathlib import Path

import pytest

from harness.distil.model_card import model_card
from harness.models.distilled import WEIGHTS, read_card
from harness.models.loading import distilled_folder
from harness.models.prompts import conversation, prompt_ids
from tasks.registry import get_task
from tasks.sources import load_questions

pytestmark = [pytest.mark.torch, pytest.mark.smollm2]

FOLDER = distilled_folder("smollm2-middle")


def test_it_is_small_and_its_card_for_people_is_that_for_machines():
    card = read_card(FOLDER)

    assert (FOLDER / WEIGHTS).stat().st_size <= 32e6
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == model_card(card)
    assert card.licence == "Apache-2.0"
    assert card.text["prompts"] == []


def test_no_path_of_the_machine_that_made_it_is_in_its_cards():
    for file in ("card.json", "README.md"):
        text = Path(FOLDER / file).read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.<])/(root|home|tmp|work|Users)\b", text)


@pytest.mark.usefixtures("every_core")
def test_it_agrees_with_its_target_on_embedded_questions(smollm2):
    from harness.distil.agreement import GreedyAnswer, hits, rates
    from methods.catalog import load_family, resolve
    from methods.core.sampling import DecodingParams

    spec = resolve("autoregressive", definitions={}, pair={}, config={}, flags={})
    target = load_family(spec.family)(smollm2.models, spec.settings)
    answers = []
    for task in ("gsm8k", "nq", "humaneval"):
        question = load_questions(get_task(task), data="embedded").questions[0]
        prompt = prompt_ids(smollm2.models.tokenizer, "chat", conversation(question.turns, []))
        generation = target.generate(prompt, DecodingParams(32, eos_ids=smollm2.eos_ids))
        answers.append(GreedyAnswer(prompt, generation.token_ids))

    found = rates(hits(smollm2.models.middle, answers))

    said = read_card(FOLDER).figures["agreement"]["overall"]["top1"]
    assert found["top1"] > said - 0.2  # three answers are few
