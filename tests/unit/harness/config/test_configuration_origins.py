"""A value's origin is remembered: flag, configuration, definition, catalogue, pair, environment, or a default."""

import pytest

from foundation.errors import UserError
from harness.config.configuration import load_configuration
from harness.config.run_config import RunConfig

FILE = """\
pair: toy
budget: 9
tasks: [nq]
methods:
  - all-small
  - {name: mine, base: treegraft-fixed, width: 3}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(FILE)
    return path


def test_each_value_holds_once_and_its_origin_is_told(file, monkeypatch):
    monkeypatch.setenv("TREEGRAFT_DATA", "/questions")
    asked = load_configuration(file, {"budget": 5})

    assert (asked.config.budget, asked.config.pair, asked.config.data) == (5, "toy", "/questions")
    assert asked.origins["budget"] == "flag"
    assert asked.origins["pair"] == "configuration"
    assert asked.origins["data"] == "environment"
    assert "seed" not in asked.origins


def test_a_method_s_parameters_tell_where_they_came_from(file):
    pair = {"budget": 7, "schedule": [1, 0, 0, 0, 0], "call_gain": 0.5}
    baseline, small, mine = load_configuration(file, {"steps": 4}).methods(pair)

    assert (baseline.spec.name, small.spec.name, mine.spec.name) == ("autoregressive", "all-small", "mine")
    settings = mine.spec.settings
    assert (settings.budget, settings.width, settings.steps, settings.schedule) == (9, 3, 4, (1, 0, 0, 0))
    assert mine.origins == {
        "budget": "configuration",
        "width": "definition",
        "steps": "flag",
        "schedule": "pair",
        "scheduler": "catalogue",
        "call_gain": "pair",
    }


def test_a_flag_beats_a_definition_and_a_definition_the_top_level(file):
    *_, mine = load_configuration(file, {"width": 8}).methods({})
    assert (mine.spec.settings.width, mine.origins["width"]) == (8, "flag")
    file.write_text(FILE + "width: 6\n")
    *_, mine = load_configuration(file, {}).methods({})
    assert (mine.spec.settings.width, mine.origins["width"]) == (3, "definition")


def test_another_run_fills_in_what_a_configuration_leaves_open(file):
    asked = load_configuration(file, {}).beside(RunConfig(budget=20, steps=3))
    small = asked.methods({})[1]
    assert (small.spec.settings.budget, small.spec.settings.steps) == (9, 3)


def test_a_null_in_a_file_leaves_the_pair_s_default(file):
    file.write_text("budget: null\nmethods: [all-small]\n")
    small = load_configuration(file, {}).methods({"budget": 7})[1]
    assert (small.spec.settings.budget, small.origins["budget"]) == (7, "pair")


def test_definitions_of_a_file_serve_names_that_flags_give(file):
    names = [one.spec.name for one in load_configuration(file, {"methods": "mine"}).methods({})]
    assert names == ["autoregressive", "mine"]


def test_a_name_twice_is_refused(file):
    with pytest.raises(UserError, match="'all-small' is there twice"):
        load_configuration(file, {"methods": "all-small,all-small"}).methods({})
