import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.errors import UserError
from tasks.question import Question
from tasks.registry import get_task, task_names
from tasks.sources import load_questions

GOOD = {"question_id": 1, "category": "", "turns": ["Name a colour."]}


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def put(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8", newline="")


def load(folder, name, split="eval"):
    return load_questions(get_task(name), split=split, data=str(folder))


def test_a_question_file_in_the_fastchat_format_is_taken_whole(tmp_path):
    two_turns = {"question_id": 9, "category": "stem", "turns": ["Why?", "And then?"], "reference": ["Because.", ""]}
    put(tmp_path, "alpaca/question.jsonl", lines(GOOD, two_turns))

    loaded = load(tmp_path, "alpaca")

    assert loaded.questions == [
        Question(1, "", ("Name a colour.",), None),
        Question(9, "stem", ("Why?", "And then?"), ("Because.", "")),
    ]
    assert (loaded.task, loaded.split, loaded.source, loaded.notes) == ("alpaca", "eval", "data", ())
    assert loaded.origin == "alpaca/question.jsonl"


@pytest.mark.parametrize("reference", [None, []])
def test_a_row_without_a_reference_has_none(tmp_path, reference):
    put(tmp_path, "nq/question.jsonl", lines(GOOD | {"reference": reference}))

    assert load(tmp_path, "nq").questions[0].reference is None


def test_the_fit_split_has_a_file_of_its_own(tmp_path):
    put(tmp_path, "nq/question.jsonl", lines(GOOD))
    put(tmp_path, "nq/fit.jsonl", lines(GOOD | {"question_id": 1000}))

    assert [question.question_id for question in load(tmp_path, "nq", "fit").questions] == [1000]


def test_the_digest_depends_on_the_questions_and_not_on_how_the_file_writes_them(tmp_path):
    put(tmp_path, "a/nq/question.jsonl", json.dumps(GOOD | {"turns": ["Où?"]}))
    put(tmp_path, "b/nq/question.jsonl", "\n" + json.dumps(GOOD | {"turns": ["Où?"]}, ensure_ascii=False) + "\r\n")
    put(tmp_path, "c/nq/question.jsonl", json.dumps(GOOD | {"turns": ["Où ?"]}))
    digests = [load(tmp_path / folder, "nq").sha256 for folder in "abc"]

    assert digests[0] == digests[1] != digests[2]
    assert len(digests[0]) == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"turns": None}, "'turns' is not a list of strings"),
        ({"turns": "Name a colour."}, "'turns' is not a list of strings"),
        ({"turns": ["Name", 3]}, "'turns' is not a list of strings"),
        ({"turns": []}, "'turns' is empty"),
        ({"turns": ["Name a colour.", ""]}, "'turns' holds an empty message"),
        ({"turns": [" \n"]}, "'turns' holds an empty message"),
        ({"turns": ["half a pair: \ud83d"]}, "'turns' holds half a surrogate pair"),
        ({"reference": "Red."}, "'reference' is not a list of strings"),
        ({"reference": [["Red."]]}, "'reference' is not a list of strings"),
        ({"category": 4}, "'category' is 4"),
        ({"question_id": "2"}, "'question_id' is '2'"),
        ({"question_id": True}, "'question_id' is True"),
        ({"question_id": 1}, r"question id 1 stands already at .*question\.jsonl:1"),
    ],
)
def test_a_bad_row_is_an_error_that_names_file_line_and_key(tmp_path, change, message):
    put(tmp_path, "alpaca/question.jsonl", lines(GOOD, GOOD | {"question_id": 2} | change))

    with pytest.raises(UserError, match=rf"question\.jsonl:2: {message}"):
        load(tmp_path, "alpaca")


@pytest.mark.parametrize("key", ["turns", "question_id"])
def test_a_missing_key_is_an_error_that_names_file_line_and_key(tmp_path, key):
    row = {name: value for name, value in GOOD.items() if name != key}
    put(tmp_path, "alpaca/question.jsonl", "\n" + lines(row))

    with pytest.raises(UserError, match=rf"question\.jsonl:2: has n.*'{key}'"):
        load(tmp_path, "alpaca")


def test_gsm8k_is_read_in_its_upstream_format(tmp_path):
    put(tmp_path, "gsm8k/test.jsonl", lines(*({"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(90))))
    put(tmp_path, "gsm8k/train.jsonl", lines({"question": "2 * 2?", "answer": "#### 4"}))
    loaded = load(tmp_path, "gsm8k")

    assert len(loaded.questions) == 80
    assert loaded.questions[79] == Question(79, "math", ("79 + 1?",), ("#### 80",))
    assert loaded.origin == "gsm8k/test.jsonl"
    assert load(tmp_path, "gsm8k", "fit").questions == [Question(0, "math", ("2 * 2?",), ("#### 4",))]


def test_alpaca_keeps_the_instruction_and_drops_the_input(tmp_path):
    rows = [{"instruction": f"Edit {n}.", "input": "teh text", "output": "the text"} for n in range(1201)]
    put(tmp_path, "alpaca/alpaca_data_some.json", json.dumps(rows))

    assert load(tmp_path, "alpaca").questions[0] == Question(0, "", ("Edit 0.",), ("the text",))
    fit = [question.question_id for question in load(tmp_path, "alpaca", "fit").questions]
    assert fit == list(range(1000, 1200))


def test_humaneval_joins_instruction_and_code_without_a_separator_and_keeps_the_final_newline(tmp_path):
    rows = [{"task_id": f"X/{n}", "prompt": f"def f{n}():\n", "canonical_solution": "    pass\n"} for n in range(130)]
    put(tmp_path, "humaneval/HumanEval.jsonl.gz", lines(*rows))
    questions, fit = load(tmp_path, "humaneval").questions, load(tmp_path, "humaneval", "fit").questions

    assert questions[0] == Question(0, "code", ("Complete the code I provided.def f0():\n",), ("    pass\n",))
    assert [question.question_id for question in questions] == list(range(80))
    assert [question.question_id for question in fit] == list(range(80, 123))


def test_nq_questions_get_a_capital_letter_and_one_question_mark(tmp_path):
    rows = [{"question": "who sang it", "answer": ["A", "B"]}, {"question": "éa is who?", "answer": ["C"]}]
    put(tmp_path, "nq/NQ-open.dev_some.jsonl", lines(*rows))

    assert load(tmp_path, "nq").questions == [
        Question(0, "qa", ("Who sang it?",), ("A", "B")),
        Question(1, "qa", ("Éa is who?",), ("C",)),
    ]


def test_cnndm_articles_and_highlights_are_tidied_and_long_articles_left_out(tmp_path):
    text = f'article,highlights,id\n"{"x" * 7001}",long,1\n"It rained . He said ""no"" .","Rain .\nNo .",2\n'
    put(tmp_path, "cnndm/cnn_dailymail_test.csv", text)

    assert load(tmp_path, "cnndm").questions == [
        Question(1, "summarization", ('Summarize: It rained. He said "no".',), ("Rain. No.",))
    ]


def test_a_csv_without_the_article_column_is_an_error_that_names_it(tmp_path):
    put(tmp_path, "cnndm/test.csv", "text,highlights\nIt rained .,Rain .\n")

    with pytest.raises(UserError, match=r"test\.csv:2: has neither 'turns' nor 'article'"):
        load(tmp_path, "cnndm")


def test_a_later_upstream_record_without_its_key_is_an_error_that_names_file_and_line(tmp_path):
    put(tmp_path, "gsm8k/test.jsonl", lines({"question": "1 + 1?", "answer": "2"}, {"query": "2 + 2?"}))

    with pytest.raises(UserError, match=r"test\.jsonl:2: has no 'question'"):
        load(tmp_path, "gsm8k")


def test_an_upstream_file_that_ends_before_the_split_is_an_error(tmp_path):
    put(tmp_path, "nq/NQ-open.dev.jsonl", lines({"question": "who", "answer": ["A"]}))

    with pytest.raises(UserError, match=r"NQ-open\.dev\.jsonl: ends before row 80, where the fit split begins"):
        load(tmp_path, "nq", "fit")


def test_two_files_for_one_pattern_are_an_error(tmp_path):
    for name in ("a", "b"):
        put(tmp_path, f"gsm8k/gsm8k_test_{name}.jsonl", lines({"question": "1 + 1?", "answer": "2"}))

    with pytest.raises(UserError, match=r"gsm8k_test_a\.jsonl, gsm8k_test_b\.jsonl all match"):
        load(tmp_path, "gsm8k")


SPEC_BENCH = lines(
    GOOD | {"question_id": 81, "category": "writing", "turns": ["Write.", "Rewrite."]},
    GOOD | {"question_id": 111, "category": "math"},
    GOOD | {"question_id": 161, "category": "translation"},
    GOOD | {"question_id": 241, "category": "summarization"},
    GOOD | {"question_id": 321, "category": "qa"},
    GOOD | {"question_id": 401, "category": "math_reasoning"},
    GOOD | {"question_id": 481, "category": "rag", "reference": [["shaped", "otherwise"]]},
)


@pytest.mark.parametrize("place", ["question.jsonl", "{task}/question.jsonl"])
@pytest.mark.parametrize(("task", "ids"), [("mt_bench", [81, 111]), ("cnndm", [241]), ("nq", [321]), ("gsm8k", [401])])
def test_a_spec_bench_file_gives_each_task_its_own_categories(tmp_path, place, task, ids):
    put(tmp_path, place.format(task=task), SPEC_BENCH)

    assert [question.question_id for question in load(tmp_path, task).questions] == ids


def test_taking_part_of_a_task_file_is_noted(tmp_path):
    put(tmp_path, "nq/question.jsonl", SPEC_BENCH)

    assert load(tmp_path, "nq").notes == ("question.jsonl: 1 of 7 questions are of nq (qa)",)


def test_a_file_of_one_task_is_taken_whole_whatever_its_categories(tmp_path):
    put(tmp_path, "gsm8k/question.jsonl", lines(GOOD | {"category": "math"}))

    assert len(load(tmp_path, "gsm8k").questions) == 1


def test_a_mixed_file_without_the_tasks_categories_is_an_error(tmp_path):
    put(tmp_path, "question.jsonl", lines(GOOD | {"category": "rag"}))

    with pytest.raises(UserError, match=r"question\.jsonl: has no category qa"):
        load(tmp_path, "nq")


@pytest.mark.parametrize(("split", "name"), [("eval", "question.jsonl"), ("fit", "fit.jsonl")])
def test_a_task_missing_in_the_folder_is_an_error_that_names_the_file_looked_for(tmp_path, split, name):
    message = rf"humaneval.{name}: no {split} questions .*HumanEval\.jsonl\.gz.*: add the file"

    with pytest.raises(UserError, match=message):
        load(tmp_path, "humaneval", split)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_text("x")], ids=["missing", "a file"])
def test_a_folder_that_does_not_exist_is_an_error(tmp_path, make):
    make(tmp_path / "gone")

    with pytest.raises(UserError, match="gone' does not exist: give a folder"):
        load(tmp_path / "gone", "nq")


def test_an_empty_folder_name_does_not_mean_the_current_folder():
    with pytest.raises(UserError, match="data folder '' does not exist"):
        load("", "nq")


def test_the_held_out_task_has_no_fit_split_even_if_a_file_lies_there(tmp_path):
    put(tmp_path, "mt_bench/fit.jsonl", lines(GOOD))

    with pytest.raises(UserError, match="'mt_bench' is held out"):
        load(tmp_path, "mt_bench", "fit")


def test_with_a_folder_given_neither_datasets_nor_the_hub_is_imported(tmp_path):
    put(tmp_path, "nq/question.jsonl", lines(GOOD))
    code = (
        "import sys\n"
        "from foundation.errors import UserError\n"
        "from tasks.registry import get_task\n"
        "from tasks.sources import load_questions\n"
        "load_questions(get_task('nq'), data=sys.argv[1])\n"
        "try:\n    load_questions(get_task('gsm8k'), data=sys.argv[1])\n"
        "except UserError:\n    pass\n"
        "assert not {'datasets', 'huggingface_hub', 'torch', 'transformers'} & sys.modules.keys()\n"
    )

    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, check=True, timeout=60)


@pytest.mark.skipif("TREEGRAFT_DATA" not in os.environ, reason="TREEGRAFT_DATA is not set")
@pytest.mark.parametrize("name", ["alpaca", "cnndm", "gsm8k", "humaneval", "mt_bench", "nq"])
def test_the_real_questions_load_and_fit_shares_none_with_eval(name):
    assert name in task_names()
    questions = {question.turns for question in load(os.environ["TREEGRAFT_DATA"], name).questions}

    assert len(questions) == 80
    if name != "mt_bench":
        fit = load(os.environ["TREEGRAFT_DATA"], name, "fit").questions
        assert not questions & {question.turns for question in fit}
