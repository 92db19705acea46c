"""Questions that are measured on are known in whatever form they come."""

import os

import pytest

from tasks import known_eval
from tasks.known_eval import measured_digests, plain_digest
from tasks.registry import TASKS, get_task
from tasks.sources import load_questions
from tasks.task import Task


def test_every_embedded_question_is_known():
    known = measured_digests("embedded", [])
    for name in ("alpaca", "cnndm", "gsm8k", "humaneval", "mt_bench", "nq"):
        for question in load_questions(get_task(name), data="embedded").questions:
            assert plain_digest(question.turns[0]) in known


@pytest.mark.parametrize(
    ("measured", "elsewhere"),
    [
        ("Who wrote the book?", "who wrote the book"),
        ("Who wrote the book?", "\u200bWho wrote the book."),
        ("Summarize: It rained.", "It  rained."),
        ("Complete the code I provided.def f():\n", "\ndef f():"),
    ],
)
def test_a_question_is_known_as_its_source_has_it(measured, elsewhere):
    assert plain_digest(measured) == plain_digest(elsewhere)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Who wrote the book?", "Who wrote that book?"), ("3 + 5?", "3 * 5?"), ("sort 1 23", "sort 12 3"), ("?", "!")],
)
def test_other_words_numbers_or_signs_are_another_question(one, other):
    assert plain_digest(one) != plain_digest(other)


@pytest.mark.skipif("TREEGRAFT_DATA" not in os.environ, reason="TREEGRAFT_DATA is not set")
def test_what_papers_measure_on_is_known_without_its_folder():
    known = measured_digests("embedded", [])
    for name in ("alpaca", "cnndm", "gsm8k", "humaneval", "mt_bench", "nq"):
        for question in load_questions(get_task(name), data=os.environ["TREEGRAFT_DATA"]).questions:
            assert plain_digest(question.turns[0]) in known


def test_a_plug_in_s_task_needs_no_embedded_questions(monkeypatch):
    facts = {"name": "riddles", "version": 1, "title": "Riddles", "licence": "MIT", "prompt": {"turns": "question"}}
    riddles = Task.model_validate({**facts, "eval": {"rows": [0, 80], "files": ["riddles.jsonl"]}})
    before = measured_digests("embedded", [])
    monkeypatch.setitem(TASKS._objects, "riddles", riddles)
    assert "riddles" in known_eval.task_names()
    assert measured_digests("embedded", []) == before
