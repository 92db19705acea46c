"""Profiles as files: read back as written, refused in one line that names file and key."""

import pytest
import yaml

from foundation.errors import UserError
from hardware_profiles.profile import get_profile, profile_names, write_profile


@pytest.fixture
def file(profile, tmp_path):
    path = tmp_path / "plain.yaml"
    write_profile(profile, path)
    return path


def test_a_profile_is_read_back_as_it_was_written(profile, file):
    assert get_profile(str(file)) == profile


def test_every_packaged_profile_is_one_of_its_name():
    assert [get_profile(name).name for name in profile_names()] == profile_names()


def test_launch_overhead_is_charged_for_every_neural_forward(profile):
    slow = profile.model_copy(update={"launch_overhead_ms": 5.0})

    assert slow.forward_ms("target", 1, 0) == profile.forward_ms("target", 1, 0) + 5
    assert slow.prefill_ms("middle", 1, 0) == profile.prefill_ms("middle", 1, 0) + 5


def test_a_role_that_was_not_measured_is_refused(profile):
    alone = profile.model_copy(update={"forwards": {"target": profile.forwards["target"]}})

    with pytest.raises(UserError, match="profile plain: has no latencies of a middle"):
        alone.forward_ms("middle", 1, 0)


def without(key):
    return lambda values: values.pop(key)


def put(key, value):
    return lambda values: values.__setitem__(key, value)


CHANGES = {
    "a key is missing": (without("costs"), "costs: Field required"),
    "a key is unknown": (put("speed", 3), "speed: Extra inputs"),
    "a kind is unknown": (put("kind", "guessed"), "kind: Input should be"),
    "a number is below 0": (put("launch_overhead_ms", -1), "launch_overhead_ms: Input should be greater"),
    "a number is no number": (put("launch_overhead_ms", float("inf")), "launch_overhead_ms: Input should be"),
    "a number is beyond all bounds": (put("launch_overhead_ms", 1e300), "launch_overhead_ms: Input should be less"),
    "a number is a truth": (put("launch_overhead_ms", True), "launch_overhead_ms: Input should be a valid number"),
    "a curve is no grid": (
        put("forwards", {"target": {"tokens": [2, 1], "contexts": [0], "ms": [[1, 2]]}}),
        "forwards.target: tokens must ascend",
    ),
    "the target is missing": (put("forwards", {}), "profile: forwards: has no target"),
    "a role has no prefill": (lambda values: values["prefill"].pop("middle"), "profile: prefill: has no middle"),
    "nothing says where the numbers are from": (put("sources", {}), "sources: Dictionary should have"),
    "a name is a path": (put("name", "../x"), "name: String should match"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_a_broken_file_is_refused_by_key(file, change, message):
    values = yaml.safe_load(file.read_text())
    change(values)
    file.write_text(yaml.safe_dump(values))

    with pytest.raises(UserError) as refusal:
        get_profile(str(file))

    assert str(refusal.value).startswith(f"{file}: {message}")


def test_a_key_that_stands_twice_is_refused(file):
    file.write_text(file.read_text() + "launch_overhead_ms: 50.0\n")

    with pytest.raises(UserError, match=r"plain\.yaml: .*the key 'launch_overhead_ms' stands twice"):
        get_profile(str(file))


def test_where_a_curve_falls_to_nothing_the_error_names_it(profile):
    steep = type(profile.forwards["target"])(tokens=[64, 256], contexts=[0], ms=[[10.0, 100.0]])
    changed = profile.model_copy(update={"prefill": {"target": steep}})

    with pytest.raises(UserError, match=r"profile plain: prefill\.target: .* 8 tokens"):
        changed.prefill_ms("target", 8, 0)


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2",
        "- a",
        "",
        "!!python/object:os.system {}",
        "REST: &a {me: *a}",
        'REST: {x: !!binary "/w=="}',
        "REST: {x: 1, x: 2}",
    ],
)
def test_what_is_no_profile_is_refused(file, text):
    whole = file.read_text().replace("measured_with: {}\n", "")
    file.write_text(text.replace("REST", f"{whole}measured_with"))

    with pytest.raises(UserError, match=r"plain\.yaml: "):
        get_profile(str(file))


def test_an_unknown_name_is_refused():
    with pytest.raises(UserError, match="unknown profile 'nowhere'"):
        get_profile("nowhere")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        get_profile(str(tmp_path / "none.yaml"))
    with pytest.raises(UserError, match="cannot be read"):
        get_profile("\0.yaml")
