import doctest
import re
from types import FunctionType

import pytest

from tasks.registry import get_task
from tasks.sources import load_questions

NAMES = ["alpaca", "cnndm", "gsm8k", "humaneval", "mt_bench", "nq"]
INSTRUCTION = "Complete the code I provided."


def embedded(name):
    return load_questions(get_task(name), data="embedded").questions


@pytest.mark.parametrize("name", NAMES)
def test_every_task_has_eight_embedded_questions_numbered_from_one(name):
    questions = embedded(name)

    assert [question.question_id for question in questions] == list(range(1, 9))
    assert len({question.turns for question in questions}) == 8


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mt_bench"])
def test_every_embedded_question_but_those_of_mt_bench_has_one_turn_and_a_reference(name):
    assert all(len(question.turns) == 1 and question.reference for question in embedded(name))


def test_the_embedded_mt_bench_has_two_turns_in_eight_categories_and_some_references():
    questions = embedded("mt_bench")

    assert {len(question.turns) for question in questions} == {2}
    assert {question.category for question in questions} == set(get_task("mt_bench").spec_bench)
    assert 0 < sum(question.reference is not None for question in questions) < 8


def test_every_sum_in_the_embedded_gsm8k_answers_is_right():
    for question in embedded("gsm8k"):
        answer = question.reference[0]
        for left, operator, right, result in re.findall(r"<<([\d.]+)([-+*/])([\d.]+)=([\d.]+)>>", answer):
            a, b = float(left), float(right)
            assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[operator] == float(result)
        assert answer.count("<<") == len(re.findall(r"<<[\d.]+[-+*/][\d.]+=[\d.]+>>", answer)) > 0
        *_, last = re.findall(r"=([\d.]+)>>", answer)
        assert answer.endswith(f"#### {last}")


def test_the_embedded_humaneval_references_pass_the_examples_of_their_prompts():
    for question in embedded("humaneval"):
        prompt = question.turns[0]
        assert prompt.startswith(INSTRUCTION)
        assert prompt.endswith('"""\n')
        names = {}
        exec(prompt.removeprefix(INSTRUCTION) + question.reference[0], names)
        functions = [thing for thing in names.values() if isinstance(thing, FunctionType)]
        for function in functions:
            runner = doctest.DocTestRunner(verbose=False)
            for example in doctest.DocTestFinder().find(function, function.__name__, globs=names, module=False):
                runner.run(example)
            assert runner.summarize(verbose=False).attempted > 0
            assert runner.failures == 0
        assert functions


def test_embedded_articles_are_as_long_as_short_real_ones():
    for question in embedded("cnndm"):
        assert question.turns[0].startswith("Summarize: ")
        assert 700 <= len(question.turns[0]) <= 2500
        assert len(question.reference[0]) < len(question.turns[0]) / 2


def test_embedded_factual_questions_look_like_the_real_ones():
    assert all(re.fullmatch(r"[A-Z][^?]*\?", question.turns[0]) for question in embedded("nq"))
