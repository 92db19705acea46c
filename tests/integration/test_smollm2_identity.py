"""The embedded model in fp32: every kind of method, token for token; `tox run -e identity` asks every task."""

import pytest

from tasks.registry import get_task
from tasks.sources import load_questions

pytestmark = [pytest.mark.torch, pytest.mark.smollm2]


@pytest.mark.usefixtures("every_core")
@pytest.mark.parametrize(
    ("engine", "task"), [("lean", "alpaca"), ("lean", "humaneval"), ("lean", "cnndm"), ("hf", "nq")]
)
def test_methods_answer_as_generate_does(load_smollm2, check_identity, engine, task):
    question = load_questions(get_task(task), data="embedded").questions[0]

    check_identity(
        load_smollm2(engine), question, ["autoregressive", "all-small", "treegraft", "csd", "prompt-lookup"], 12
    )
