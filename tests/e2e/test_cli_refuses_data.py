import pytest

GOOD = '{"question_id": 1, "turns": ["How deep is the sea?"]}'


@pytest.fixture
def data(tmp_path):
    def write(text):
        file = tmp_path / "data" / "nq" / "question.jsonl"
        file.parent.mkdir(parents=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file.parent.parent

    return write


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["question.jsonl", "holds no questions"]),
        ("\n \n", ["question.jsonl", "holds no questions"]),
        (f"{GOOD}\n\n{{torn", ["question.jsonl:3", "not JSON"]),
        (f"{GOOD}\n[1]\n", ["question.jsonl:2", "object"]),
        (f"{GOOD}\n" + '{"question_id": 2}', ["question.jsonl:2", "turns"]),
        (f"{GOOD}\n" + '{"question_id": 2, "turns": []}', ["question.jsonl:2", "turns"]),
        (f"{GOOD}\n{GOOD}\n", ["question.jsonl:2", "question.jsonl:1"]),
        (GOOD.encode() + b"\n\xff\n", ["question.jsonl:2", "UTF-8"]),
    ],
)
def test_broken_questions_are_refused_by_file_and_line(refused, data, tmp_path, text, words):
    line = refused("run", "--pair", "toy", "--tasks", "nq", "--data", data(text), "--out", "out")
    assert all(word in line for word in words), line
    assert not (tmp_path / "out").exists()


def test_a_task_that_the_data_folder_lacks_is_refused(refused, data):
    line = refused("run", "--pair", "toy", "--tasks", "nq,alpaca", "--data", data(GOOD))
    assert "alpaca/question.jsonl" in line


def test_a_data_folder_from_the_environment_is_checked_too(refused, monkeypatch):
    monkeypatch.setenv("TREEGRAFT_DATA", "nowhere")
    assert "'nowhere' does not exist" in refused("run", "--pair", "toy", "--tasks", "nq")
