"""The learned scheduler reads its artifact, and says what is wrong with one."""

import json
from pathlib import Path

import pytest

from foundation.errors import UserError
from harness.models.pair import get_pair
from methods.artifacts.files import artifact_names
from methods.catalog import resolve
from methods.latency import Latency
from methods.schedulers.artifact import Network, artifact_digest, load_artifact, load_planner
from methods.schedulers.learned import Margin
from methods.schedulers.scheduler import make_scheduler
from methods.schedulers.signals import signal_groups
from methods.settings import Settings


def test_a_network_is_evaluated_layer_by_layer():
    network = Network(
        signals=["step_share", "call_share"], weights=[[[1, 2], [-1, 0]], [[3, -1]]], biases=[[0, 1], [0.5]]
    )
    margin = Margin(network)
    assert margin([2.0, 1.0]) == 3 * 4 - 0 + 0.5  # the second hidden unit is -1, rectified to 0
    assert margin([-1.0, 0.0]) == 0 - 2 + 0.5


def test_it_calls_where_the_margin_is_above_0_and_calls_are_left(random_artifact, state):
    scheduler = make_scheduler(Settings(scheduler="learned", artifact=random_artifact(), max_calls=2))
    scheduler.begin(50, Latency(40.0, 10.0))
    seen = set()
    for step in range(1, 6):
        for score in (-0.1, -2.0, -5.0):
            one = state([score, score - 1], step)
            seen.add(scheduler.should_call(one))
            assert scheduler.should_call(one) == (scheduler.margin(scheduler.reader.read(one)) > 0)
    assert seen == {True, False}
    assert not scheduler.should_call(state([-1.0], 3, [1, 1]))


@pytest.mark.parametrize("variant", ["full", "no-context", "no-history", "no-tree", "plus"])
def test_a_variant_does_not_see_what_it_leaves_out(random_artifact, variant):
    scheduler = make_scheduler(Settings(scheduler="learned", artifact=random_artifact(), signals=variant))
    signals = load_artifact(random_artifact(), Settings()).variants[variant].signals
    left_out = {"no-context": "log_prompt_tokens", "no-history": "called_1", "no-tree": "depth_before"}
    assert (left_out.get(variant) in signals) is False
    assert ("root_match" in signals) is (variant == "plus")
    scheduler.begin(50, Latency(40.0, 10.0))


def test_a_specification_names_what_was_in_the_artifact(random_artifact):
    def spec(artifact):
        return resolve("treegraft", definitions={}, pair={"artifact": artifact}, config={}, flags={})

    assert spec(random_artifact()).artifact_sha256 == artifact_digest(random_artifact())
    fixed = resolve("all-small", definitions={}, pair={"artifact": random_artifact()}, config={}, flags={})
    assert fixed.artifact_sha256 is None
    with pytest.raises(UserError, match=r"method 'treegraft': unknown scheduler artifact 'nothing'"):
        spec("nothing")


def broken(source, folder, changes):
    folder.mkdir()
    for file in ("scheduler.json", "planner.json"):
        content = json.loads(Path(source, file).read_text())
        (folder / file).write_text(changes(content, file) or json.dumps(content))
    return str(folder)


def without_rate(content, file):
    content.pop("rate", None)


def strange_signal(content, file):
    for network in content.get("variants", {}).values():
        network["signals"][0] = "mood"


def other_steps(content, file):
    if "drafting" in content:
        content["drafting"]["steps"] = 3


def without_full(content, file):
    content.get("variants", {}).pop("full", None)


def of_full(change):
    def changed(content, file):
        if "variants" in content:
            change(content["variants"]["full"])

    return changed


def of_steps(change):
    def changed(content, file):
        if "steps" in content:
            change(content["steps"])

    return changed


FULL = r"scheduler.json: variants.full: "


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (of_full(lambda network: network["biases"].pop()), FULL + "has 2 layers of weights and 1 of biases"),
        (of_full(lambda network: network["weights"][0].pop()), FULL + "layer 1: needs weights"),
        (of_full(lambda network: network["weights"][0][2].pop()), FULL + "layer 1: needs weights"),
        (of_full(lambda network: network["signals"].pop()), FULL + "layer 1: needs weights"),
        (of_full(lambda network: network["biases"].__setitem__(1, [])), FULL + "layer 2: needs weights"),
        (
            of_full(lambda network: (network["weights"][1].append([0.0] * 6), network["biases"][1].append(0.0))),
            FULL + "its last layer has 2 outputs instead of 1",
        ),
        (of_full(lambda network: network["signals"].__setitem__(0, network["signals"][1])), "one stands twice"),
        (of_full(lambda network: network["biases"][0].__setitem__(0, float("nan"))), "biases.0.0: .*finite number"),
        (without_rate, r"scheduler.json: rate: Field required; write it anew"),
        (strange_signal, "unknown signals mood; fit it anew"),
        (other_steps, "fitted for 3 steps, not 5; fit another"),
        (without_full, "has no variant 'full'; fit it anew"),
        (lambda content, file: "{", r"scheduler.json: file: Invalid JSON"),
    ],
)
def test_a_broken_artifact_is_refused_in_one_line(random_artifact, tmp_path, changes, message):
    folder = broken(random_artifact(), tmp_path / "broken", changes)
    with pytest.raises(UserError, match=message):
        make_scheduler(Settings(scheduler="learned", artifact=folder))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (of_steps(lambda steps: steps["2"].pop("skip")), r"planner.json: steps.2.skip: Field required"),
        (of_steps(lambda steps: steps.update({"6": steps["1"]})), r"planner.json: steps.6: there is no such step"),
        (of_steps(lambda steps: steps["3"].update(call="tree")), r"planner.json: steps.3: .*; fit it anew"),
        (of_steps(lambda steps: steps.clear()), r"planner.json: steps: "),
        (
            lambda content, file: content["signals"].pop() and None if "steps" in content else None,
            r"planner.json: steps.1: its models do not take \d+ signals",
        ),
        (
            lambda content, file: content["signals"].__setitem__(0, "mood") if "steps" in content else None,
            "unknown signals mood; fit it anew",
        ),
    ],
)
def test_broken_value_models_are_refused_in_one_line(random_artifact, tmp_path, changes, message):
    folder = broken(random_artifact(), tmp_path / "broken", changes)
    with pytest.raises(UserError, match=message):
        make_scheduler(Settings(scheduler="planner", artifact=folder))


def test_a_folder_that_lacks_a_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"scheduler.json cannot be read; write it with treegraft fit"):
        load_artifact(str(tmp_path), Settings())
    with pytest.raises(UserError, match=r"planner.json cannot be read"):
        load_planner(str(tmp_path), Settings())


@pytest.mark.parametrize("name", artifact_names())
def test_packaged_artifacts_load(name):
    artifact = load_artifact(name, Settings())
    assert set(artifact.variants) == {"full", "no-context", "no-history", "no-tree", "plus"}
    assert load_planner(name, Settings()).boosters(name).keys() == {1, 2, 3, 4, 5}
    groups = signal_groups(5)
    for variant, network in artifact.variants.items():
        seen = {group for group, names in groups.items() if {*names} & {*network.signals}}
        left_out = {"plus": set()}.get(variant, {"lookup", variant.removeprefix("no-")})
        assert seen == {*groups} - left_out


def test_a_pair_s_defaults_are_those_that_its_artifact_was_fitted_to():
    defaults = get_pair("smollm2").defaults
    artifact = load_artifact(defaults["artifact"], Settings())
    spec = resolve("treegraft", definitions={}, pair=defaults, config={}, flags={})
    assert artifact.fitted_to.difference("smollm2", "wall", spec.settings) is None
    assert round(artifact.call_gain, 3) == defaults["call_gain"]
    neural = spec.settings.model_copy(update={"small": "neural"})
    assert artifact.fitted_to.difference("smollm2", "wall", neural) == "with small ngram, not neural"
