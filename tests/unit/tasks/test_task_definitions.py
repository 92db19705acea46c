from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from foundation.errors import UserError
from foundation.registry import Registry
from tasks import registry
from tasks.registry import get_task, task_names
from tasks.task import Task, load_task

BUILT_IN = ["alpaca", "cnndm", "gsm8k", "humaneval", "mt_bench", "nq"]

MINIMAL = """\
name: riddles
version: 1
title: Riddles
licence: MIT
prompt: {turns: question, reference: answer}
eval: {hub: test, rows: [0, 80], files: [riddles.jsonl]}
fit: {hub: train, rows: [0, 200], files: [more.jsonl]}
"""


def write(folder, text):
    path = folder / "riddles.yaml"
    path.write_text(text, encoding="utf-8")
    return path


class Point:
    """What a plug-in's entry point gives, in the place of an import."""

    def __init__(self, name, thing):
        self.name, self.value, self.thing = name, f"{name}_package:TASK", thing

    def load(self):
        return self.thing


def plug_in(monkeypatch, *points):
    fresh = Registry("task", "treegraft.tasks")
    for name in BUILT_IN:
        fresh.add(name, Path(registry.__file__).parent / f"{name}.yaml")
    monkeypatch.setattr(registry, "TASKS", fresh)
    groups = {"treegraft.tasks": list(points)}
    monkeypatch.setattr("foundation.registry.entry_points", lambda group: groups.get(group, []))


def test_the_six_tasks_are_known_in_alphabetical_order():
    assert [name for name in task_names() if name in BUILT_IN] == BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_task_loads_and_is_pinned(name):
    task = get_task(name)

    assert task.name == name
    assert task.version >= 1
    assert task.hub is None or len(task.hub.revision) == 40


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "mt_bench"])
def test_eval_and_fit_never_take_one_row_of_one_source(name):
    task = get_task(name)
    rows = [{(split.hub, row) for row in range(*split.rows)} for split in (task.eval, task.fit)]

    assert not rows[0] & rows[1]


def test_mt_bench_is_held_out():
    with pytest.raises(UserError, match="'mt_bench' is held out"):
        get_task("mt_bench").split("fit")


def test_an_unknown_name_is_answered_with_the_nearest_ones():
    with pytest.raises(UserError, match="unknown task 'gsm8'; did you mean gsm8k"):
        get_task("gsm8")


def test_a_plug_in_gives_a_task_or_the_path_of_a_yaml_file(monkeypatch, tmp_path):
    path = write(tmp_path, MINIMAL)
    for thing in (load_task(path), path, str(path)):
        plug_in(monkeypatch, Point("riddles", thing))

        assert task_names() == sorted([*BUILT_IN, "riddles"])
        assert get_task("riddles") == get_task("riddles") == load_task(path)


def test_a_plug_in_that_gives_something_else_is_an_error(monkeypatch):
    plug_in(monkeypatch, Point("riddles", 7))

    with pytest.raises(UserError, match="'riddles': its plug-in gives a int"):
        get_task("riddles")


def test_a_plug_in_that_does_not_import_is_an_error(monkeypatch):
    plug_in(monkeypatch, EntryPoint("riddles", "no_such_package:TASK", "treegraft.tasks"))

    with pytest.raises(UserError, match="'riddles': plug-in no_such_package:TASK does not load"):
        get_task("riddles")


def test_a_plug_in_whose_task_has_another_name_is_an_error(monkeypatch, tmp_path):
    plug_in(monkeypatch, Point("puzzles", load_task(write(tmp_path, MINIMAL))))

    with pytest.raises(UserError, match="'puzzles': what it names calls itself 'riddles'"):
        get_task("puzzles")


def test_a_plug_in_cannot_take_the_name_of_a_built_in_task(monkeypatch, tmp_path):
    plug_in(monkeypatch, Point("nq", load_task(write(tmp_path, MINIMAL.replace("riddles", "nq")))))

    with pytest.raises(UserError, match="two tasks are called 'nq'"):
        get_task("nq")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: 1\n", "", "version: Field required"),
        ("version: 1\n", "version: 1\ncolour: red\n", "colour: Extra inputs"),
        ("turns: question", "turn: question", r"prompt\.turn: Extra inputs"),
        ("rows: [0, 80]", "rows: [80, 80]", r"eval: .*hold nothing"),
        ("rows: [0, 80]", "rows: [-1, 80]", r"eval\.rows\.0"),
        ("hub: train", "hub: test", "top level: eval and fit take the same rows"),
        ("more.jsonl", "riddles.jsonl", "top level: eval and fit take the same rows"),
        ("licence: MIT", "licence: MIT\nhub: {id: a/b, revision: main}", r"hub\.revision"),
        ("name: riddles", "name: Rid dles", "name: String should match"),
        ("name: riddles", "name: [", "not YAML"),
        (MINIMAL, "", "top level"),
    ],
)
def test_a_broken_task_file_is_an_error_that_names_file_and_key(tmp_path, old, new, message):
    path = write(tmp_path, MINIMAL.replace(old, new))

    with pytest.raises(UserError, match=rf"riddles\.yaml: {message}"):
        load_task(path)


def test_a_missing_task_file_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"gone\.yaml: cannot be read"):
        load_task(tmp_path / "gone.yaml")


def test_rows_of_different_hub_splits_may_have_the_same_numbers(tmp_path):
    assert isinstance(load_task(write(tmp_path, MINIMAL)), Task)
