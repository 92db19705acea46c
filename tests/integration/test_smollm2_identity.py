"""The embedded model in fp32: one question of each task, every kind of method, token for token."""

import pytest

from tasks.registry import get_task
from tasks.sources import load_questions

pytestmark = [pytest.mark.torch, pytest.mark.smollm2]


@pytest.mark.usefixtures("every_core")
@pytest.mark.parametrize("task", ["alpaca", "gsm8k", "humaneval", "nq", "cnndm", "mt_bench"])
def test_methods_answer_as_generate_does(smollm2, check_identity, task):
    question = load_questions(get_task(task), data="embedded").questions[0]

    check_identity(smollm2, question, ["autoregressive", "all-small", "treegraft", "csd", "prompt-lookup"], 12)
