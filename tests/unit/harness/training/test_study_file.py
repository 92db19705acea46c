"""A study's file: what it says is read, what it cannot mean is refused by file, key and fix."""

from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from foundation.errors import UserError
from harness.models.pair import get_pair
from harness.training.study.conditions import profiles_of
from harness.training.study.run_study import check_figure
from harness.training.study.study_file import load_study

H100 = "profile:h100-roofline/qwen3-32b-0.6b"
FOLDER = Path(str(files("harness").joinpath("studies")))
PACKAGED = [file for file in sorted(FOLDER.glob("*.yaml")) if "conditions" in yaml.safe_load(file.read_text())]


@pytest.fixture
def study(tmp_path):
    """Write a study's file; return what is read back."""

    def write(**values):
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump({"about": "a question", **values}, sort_keys=False))
        return load_study(file)

    return write


@pytest.mark.parametrize("file", PACKAGED, ids=lambda file: file.stem)
def test_every_packaged_study_can_be_read_and_its_conditions_have_profiles(file):
    study = load_study(file)

    assert {*profiles_of(study, str(file), get_pair("smollm2"))} == {*study.conditions}


def test_three_studies_are_packaged():
    assert [file.stem for file in PACKAGED] == ["hardware-transfer", "overhead-sensitivity", "width-transfer"]


def test_a_scheduler_runs_where_it_was_fitted_and_where_the_study_says(study):
    conditions = {"one": {"clock": H100}, "two": {"clock": "profile:cpu-2core"}, "three": {"clock": H100}}

    def running(fitted):
        plan = study(conditions=conditions, fitted=fitted)
        return {name: plan.fitted_for(name) for name in conditions}

    assert running("own") == {"one": ["one"], "two": ["two"], "three": ["three"]}
    assert running("first") == {"one": ["one"], "two": ["two"], "three": ["three", "one"]}
    assert running("each") == {
        "one": ["one", "two", "three"],
        "two": ["two", "one", "three"],
        "three": ["three", "one", "two"],
    }


def conditions(**changes):
    return {"h100": {"clock": H100, **changes}}


REFUSED = {
    "an unknown key": (
        {"conditions": conditions(), "fited": "own"},
        "mine.yaml: unknown key 'fited'; did you mean fitted",
    ),
    "an unknown key of a condition": (
        {"conditions": conditions(machin={})},
        "mine.yaml: conditions.h100: unknown key 'machin'; did you mean machine",
    ),
    "an unknown key of the axis": (
        {"conditions": conditions(), "axis": {"key": "devices", "labl": "x"}},
        "mine.yaml: axis: unknown key 'labl'; did you mean label",
    ),
    "an unknown setting": (
        {"conditions": conditions(settings={"widht": 5})},
        "mine.yaml: conditions.h100.settings: unknown key 'widht'; did you mean width",
    ),
    "a setting that no drafting hangs on": (
        {"conditions": conditions(settings={"scheduler": "always"})},
        "mine.yaml: conditions.h100.settings: unknown key 'scheduler'; known: budget,",
    ),
    "no condition": ({"conditions": {}}, "mine.yaml: conditions: Dictionary should have at least 1 item"),
    "conditions left out": ({}, "mine.yaml: conditions: Field required"),
    "a condition without a clock": ({"conditions": {"h100": {}}}, "mine.yaml: conditions.h100.clock: Field required"),
    "a wall clock": (
        {"conditions": {"h100": {"clock": "wall"}}},
        "mine.yaml: conditions.h100.clock: costs come from a profile; give profile:NAME",
    ),
    "a name that no machine may have": ({"conditions": {"H 100": {"clock": H100}}}, "mine.yaml: conditions.H 100"),
    "another word": ({"conditions": conditions(), "fitted": "all"}, "fitted: Input should be 'own', 'first' or 'each'"),
    "a schedule of other signs": (
        {"conditions": conditions(), "schedules": ["1x0"]},
        "mine.yaml: schedules.0: String should match pattern '^[01]+$'",
    ),
    "a schedule that YAML read as a number": (
        {"conditions": conditions(), "schedules": [10101]},
        "mine.yaml: schedules.0: Input should be a valid string",
    ),
    "a condition without a place on the axis": (
        {"conditions": conditions(), "axis": {"key": "layer_overhead_ms", "label": "ms a layer"}},
        "mine.yaml: conditions.h100.machine: gives no number layer_overhead_ms, which the axis names",
    ),
    "schedulers of other steps": (
        {"conditions": {**conditions(), "three": {"clock": H100, "settings": {"steps": 3}}}, "fitted": "each"},
        "mine.yaml: conditions: differ in steps, and no scheduler knows two of them; give fitted: own",
    ),
    "no questions": ({"conditions": conditions(), "limit": 0}, "mine.yaml: limit: Input should be greater"),
    "decisions that give time": ({"conditions": conditions(), "decision_ms": -1}, "mine.yaml: decision_ms: Input"),
}


@pytest.mark.parametrize(("values", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_study_is_refused_by_key(study, values, message):
    with pytest.raises(UserError) as refusal:
        study(**values)

    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_a_condition_changes_goes_through_the_rules_of_a_machines_file(study, tmp_path):
    from harness.clocks.named_profiles import named_profile

    changes = {"layer_overhead_ms": 1.5, "costs": {"verify_ms": 2}}
    (tmp_path / "h100.yaml").write_text(yaml.safe_dump({"base": "h100-roofline", **changes}))
    own = named_profile(f"{tmp_path / 'h100.yaml'}/qwen3-32b-0.6b")

    found = profiles_of(study(conditions=conditions(machine=changes)), "studies/mine.yaml", get_pair("toy"))["h100"]

    assert found.name == own.name == "h100/qwen3-32b-0.6b"
    assert found.about == "h100-roofline, changed in mine.yaml"
    assert found.sources == {
        **own.sources,
        **dict.fromkeys(["layer_overhead_ms", "costs.verify_ms"], "given in mine.yaml"),
    }
    assert (found.forwards, found.costs, found.unknown) == (own.forwards, own.costs, own.unknown)
    assert found.forward_ms("middle", 1, 9) > 28 * 1.5


UNUSABLE = {
    "an unknown key of a machine": (
        conditions(machine={"layer_overhead": 1}),
        "machine: unknown key 'layer_overhead'; did you mean layer_overhead_ms",
    ),
    "a base of one's own": (conditions(machine={"base": "a100-roofline"}), "machine: unknown key 'base'"),
    "a negative number": (conditions(machine={"layer_overhead_ms": -1}), "machine: layer_overhead_ms: Input should be"),
    "changes of a measured profile": (
        {"h100": {"clock": "profile:cpu-2core", "machine": {"layer_overhead_ms": 1}}},
        "machine: cpu-2core is no packaged machine, and only those can be changed (a100-roofline,",
    ),
    "an unknown profile": ({"h100": {"clock": "profile:h1000-roofline"}}, "unknown profile 'h1000-roofline'; did you"),
    "models that do not fit": (
        {"h100": {"clock": "profile:h100-roofline/llama-70b-8b"}},
        "the weights of pair llama-70b-8b take 160 GB",
    ),
    "a middle drafter of unknown latency": (
        {"h100": {"clock": "profile:paper-online/qwen3-32b-4b"}},
        "clock: paper-online/qwen3-32b-4b knows no latency of a middle drafter; name another pair",
    ),
}


@pytest.mark.parametrize(("given", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_is_no_clock_is_refused_by_condition(study, given, message):
    with pytest.raises(UserError) as refusal:
        profiles_of(study(conditions=given), "mine.yaml", get_pair("toy"))

    assert str(refusal.value).startswith("mine.yaml: conditions.h100: ")
    assert message in str(refusal.value)


def test_a_figure_needs_an_axis_and_is_svg(study):
    bare = study(conditions=conditions())
    along = study(
        conditions=conditions(machine={"layer_overhead_ms": 0}), axis={"key": "layer_overhead_ms", "label": "ms"}
    )

    with pytest.raises(UserError, match=r"mine\.yaml: axis: missing; a figure needs a number of the machine"):
        check_figure(bare, Path("mine.yaml"), "a.svg")
    with pytest.raises(UserError, match=r"--figure a\.png: figures are SVG; give a name that ends in \.svg"):
        check_figure(along, Path("mine.yaml"), "a.png")
