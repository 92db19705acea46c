"""The table of known faults is whole: each of its tests exists, and runs unless its environment lacks something."""

import ast
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TABLE = yaml.safe_load((ROOT / "tests" / "pitfalls.yaml").read_text(encoding="utf-8"))
NAMED = [(number, *test.split("::")) for number, entry in TABLE.items() for test in entry.get("tests", [])]
WAITS_FOR = {
    "executors": "harness/executors*",
    "html report": "reports/**/*html*",
    "ray executor": "harness/executors/**/*ray*",
    "task scorers": "tasks/**/*scor*",
}
"""Features that do not exist yet, each with the files that it will come with."""


@cache
def parsed(file):
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def find(module, name):
    """Return a test of a module and its marks, those of the module included, as source; None where there is none."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            of_all = [one.value for one in module.body if ast.unparse(one).startswith("pytestmark = ")]
            return node, " ".join(map(ast.unparse, [*node.decorator_list, *of_all])) + " "
    return None


def never_runs(test, marks):
    """Return whether a test is skipped, or expected to fail, whatever its environment."""
    body = [ast.unparse(node) for node in test.body]
    return any(line.startswith(("pytest.skip(", "pytest.xfail(")) for line in body) or any(
        mark in marks for mark in ("mark.skip ", "mark.skip(", "mark.skipif(True", "mark.xfail")
    )


def test_every_number_has_its_words_and_tests_or_the_feature_that_it_waits_for():
    assert list(TABLE) == list(range(1, 49))
    assert [number for number, entry in TABLE.items() if not entry["about"].strip()] == []
    assert [number for number, entry in TABLE.items() if not entry.get("tests") and "waits_for" not in entry] == []
    assert {key for entry in TABLE.values() for key in entry} == {"about", "tests", "waits_for"}


def test_every_named_test_exists_stands_once_a_number_and_runs():
    assert [one for one in NAMED if NAMED.count(one) > 1] == []
    found = {one: find(parsed(one[1]), one[2]) for one in NAMED}
    assert [one for one, test in found.items() if test is None] == []
    assert [one for one, test in found.items() if never_runs(*test)] == []


def test_every_number_with_tests_has_one_that_runs_every_day():
    everyday = {
        number
        for number, file, name in NAMED
        if not file.startswith(("tests/gpu/", "tests/identity/", "tests/micro/"))
        and "mark.slow" not in find(parsed(file), name)[1]
    }
    assert {number for number, _, _ in NAMED} - everyday == set()


def test_nothing_waits_for_a_feature_that_is_there():
    waiting = {number: entry["waits_for"] for number, entry in TABLE.items() if "waits_for" in entry}
    assert {*waiting.values()} == {*WAITS_FOR}
    assert [number for number, feature in waiting.items() if any(ROOT.glob(WAITS_FOR[feature]))] == []


@pytest.mark.parametrize(
    ("mark", "line", "never"),
    [
        ("", "assert here", False),
        ("@pytest.mark.skipif(not found, reason='lacks something')", "assert here", False),
        ("@pytest.mark.skip", "assert here", True),
        ("@pytest.mark.skip(reason='later')", "assert here", True),
        ("@pytest.mark.skipif(True, reason='later')", "assert here", True),
        ("@pytest.mark.xfail", "assert here", True),
        ("", "pytest.skip('later')", True),
    ],
)
def test_a_test_that_never_runs_is_seen(mark, line, never):
    module = ast.parse(f"pytestmark = pytest.mark.torch\n{mark}\ndef test_it():\n    {line}\n")

    assert never_runs(*find(module, "test_it")) == never
    assert find(module, "test_another") is None
