import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml

from foundation.errors import UserError
from harness.config.configuration import load_configuration
from harness.config.run_config import RunConfig, config_schema
from harness.run.plan import make_plan
from methods import catalog
from methods.catalog import BASELINE, catalogue, resolve
from methods.settings import Settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("TREEGRAFT_DATA", raising=False)
    yield
    catalogue.cache_clear()


@pytest.fixture
def methods(tmp_path):
    """Return the settings of a run's methods, of flags laid over a file's values."""

    def read(flags, values=None):
        file = None
        if values is not None:
            file = tmp_path / "c.yaml"
            file.write_text(yaml.safe_dump(values), encoding="utf-8")
        return {one.spec.name: one.spec.settings for one in load_configuration(file, flags).methods({})}

    return read


def test_without_anything_every_key_has_its_default():
    configuration = load_configuration(None, {})
    assert configuration.origins == {}
    assert configuration.config == RunConfig()
    assert configuration.config.trust_remote_code is False


def test_a_parameter_comes_from_flag_definition_top_level_catalogue_pair_default_in_that_order(monkeypatch):
    entries = {**catalogue(), "pinned": catalog.Entry(family="treegraft", settings={"budget": 5})}
    monkeypatch.setattr(catalog, "catalogue", lambda: entries)
    layers = {"definitions": {}, "pair": {}, "config": {}, "flags": {}}

    def budget(**given):
        return resolve("mine" if "definitions" in given else "pinned", **{**layers, **given}).settings.budget

    mine = {"mine": {"base": "pinned", "budget": 3}}
    assert resolve("all-small", **layers).settings.budget == Settings().budget
    assert resolve("all-small", **{**layers, "pair": {"budget": 6}}).settings.budget == 6
    assert budget(pair={"budget": 6}) == 5
    assert budget(pair={"budget": 6}, config={"budget": 4}) == 4
    assert budget(pair={"budget": 6}, config={"budget": 4}, definitions=mine) == 3
    assert budget(pair={"budget": 6}, config={"budget": 4}, definitions=mine, flags={"budget": 2}) == 2


def test_the_baseline_is_always_there_and_first(methods):
    assert [*methods({"methods": "all-small"})] == [BASELINE, "all-small"]
    assert [*methods({"methods": ["all-small", BASELINE]})] == [BASELINE, "all-small"]


def test_definitions_can_come_from_a_caller_and_build_on_each_catalogue_name(methods):
    mine = {"name": "mine", "base": "all-small", "budget": 3}
    assert methods({"methods": [mine]})["mine"].budget == 3
    assert methods({"methods": ["mine"]}, {"methods": [mine]})["mine"].budget == 3
    assert methods({"methods": ["mine"], "budget": None}, {"methods": [mine]})["mine"].budget == 3


def test_one_stop_string_keeps_its_commas_and_blanks(tmp_path):
    (tmp_path / "c.yaml").write_text('stop: "well, \\n"\n')
    assert load_configuration(tmp_path / "c.yaml", {}).config.stop == ["well, \n"]


def test_a_plug_in_that_claims_a_catalogue_name_is_an_error(monkeypatch, point):
    monkeypatch.setattr(catalog, "entry_points", lambda group: [point("all-small", None, "mine:Method")])
    catalogue.cache_clear()
    with pytest.raises(UserError, match="mine:Method claims the method name 'all-small'"):
        catalogue()


def test_every_catalogue_entry_resolves_and_says_what_it_is():
    for name, entry in catalogue().items():
        assert entry.about
        assert resolve(name, definitions={}, pair={}, config={}, flags={}).family == entry.family


def test_the_published_schema_accepts_what_is_accepted_and_no_unknown_key():
    schema = json.loads(json.dumps(config_schema()))
    jsonschema.validate({"pair": "toy", "methods": ["all-small", {"name": "a", "base": "all-small"}]}, schema)
    for wrong in ({"colour": 1}, {"limit": 0}, {"top_p": 2}, {"tasks": []}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_the_packages_own_data_files_are_plain_yaml():
    for folder in ("harness.models/pairs", "methods", "tasks"):
        package, _, below = folder.partition("/")
        for file in files(package).joinpath(below).iterdir():
            if file.name.endswith(".yaml"):
                assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)


STUDIES = [
    file
    for file in sorted(Path(str(files("harness").joinpath("studies"))).glob("*.yaml"))
    if "conditions" not in yaml.safe_load(file.read_text(encoding="utf-8"))  # those are of `treegraft study`
]


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_every_study_of_methods_is_a_configuration_that_can_be_run(file):
    plan = make_plan(file, {"data": "embedded", "limit": 1, "repeats": 1, "split": "eval"})

    assert plan.blocks
    assert len(plan.methods) > 1
