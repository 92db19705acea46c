"""Machines as files: every number with its source, a user's own on a packaged one, refused in one clear line."""

import pytest
import yaml

from foundation.errors import UserError
from hardware_profiles.machine import Datasheet, Publication, get_machine, machine_names
from hardware_profiles.profile import Costs, get_profile, write_profile
from hardware_profiles.roofline import known_architectures

QWEN = {"target": known_architectures()["Qwen/Qwen3-32B"], "middle": known_architectures()["Qwen/Qwen3-0.6B"]}
LLAMA = {"target": known_architectures()["meta-llama/Llama-3.3-70B-Instruct"]}


@pytest.fixture
def machine(tmp_path):
    """Write a machine's file; return what is read back."""

    def write(**values):
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump(values))
        return get_machine(str(file))

    return write


def packaged(name):
    return get_machine(name).model_dump(mode="json", exclude_unset=True)


def test_every_packaged_machine_is_one_of_its_name():
    names = {"a100-roofline", "h20-roofline", "h100-roofline", "h200-roofline", "paper-online"}

    assert {get_machine(name).name for name in machine_names()} == {*machine_names()} == names


@pytest.mark.parametrize("name", machine_names())
def test_every_number_has_a_source_and_is_refused_without(name, machine):
    values = packaged(name)
    machine(**values)
    for source in values["sources"]:
        rest = {key: text for key, text in values["sources"].items() if key != source}

        with pytest.raises(UserError, match=rf"mine\.yaml: profile: sources: say where {source}(\.\S+)? is from"):
            machine(**{**values, "sources": rest})


@pytest.mark.parametrize("name", machine_names())
def test_costs_that_nobody_knows_are_free_and_named(name):
    machine = get_machine(name)
    profile = (
        machine.profile("pair", "bfloat16", QWEN)
        if isinstance(machine, Datasheet)
        else machine.profile("pair", {"target": "Qwen/Qwen3-32B"})
    )

    unknown = [cost for cost in Costs.model_fields if cost not in machine.costs]
    assert profile.unknown == unknown + (["prefill"] if isinstance(machine, Publication) else [])
    assert {cost: getattr(profile.costs, cost) for cost in unknown} == dict.fromkeys(unknown, 0.0)
    assert {"verify_ms", "middle_call_ms"} <= {*unknown}


@pytest.mark.parametrize("name", [name for name in machine_names() if name.endswith("-roofline")])
def test_costs_that_a_roofline_borrows_are_those_of_the_measured_profile(name):
    measured = get_profile("cpu-2core-hf").costs

    assert get_machine(name).costs == measured.model_dump(include=get_machine(name).costs.keys())


def test_a_machines_profile_names_the_machine_and_the_pair_and_is_read_back_as_written(tmp_path):
    profile = get_machine("h100-roofline").profile("qwen3-32b-0.6b", "bfloat16", QWEN)
    write_profile(profile, tmp_path / "kept.yaml")

    assert (profile.name, profile.pair) == ("h100-roofline/qwen3-32b-0.6b", "qwen3-32b-0.6b")
    assert (profile.kind, profile.dtype, profile.device) == ("roofline", "bfloat16", "NVIDIA H100 SXM 80 GB")
    assert "Qwen3" not in profile.sources["bandwidth_gb_s"]
    assert profile.sources["target"].startswith("config.json")
    assert get_profile(str(tmp_path / "kept.yaml")) == profile


def test_logits_are_charged_in_a_trees_forward_alone():
    profile = get_machine("a100-roofline").profile("pair", "bfloat16", QWEN)
    head_ms = 2 * 5120 * 151936 / 2039e9 * 1e3

    assert profile.forward_ms("target", 1, 9) == pytest.approx(profile.prefill_ms("target", 1, 9) + head_ms)


def test_a_file_gives_only_what_differs_from_its_base(machine):
    own = machine(base="h100-roofline", launch_overhead_ms=3, layer_overhead_ms=1.5, costs={"verify_ms": 2})
    base = get_machine("h100-roofline")

    assert (own.name, own.about) == ("mine", "h100-roofline, changed in mine.yaml")
    assert (own.bandwidth_gb_s, own.tflops) == (base.bandwidth_gb_s, base.tflops)
    assert own.costs == {**base.costs, "verify_ms": 2}
    assert own.sources == {
        **base.sources,
        **dict.fromkeys(["launch_overhead_ms", "layer_overhead_ms", "costs.verify_ms"], "given in mine.yaml"),
    }
    slow, fast = (one.profile("pair", "bfloat16", QWEN) for one in (own, base))
    head_ms = fast.forward_ms("middle", 1, 9) - fast.prefill_ms("middle", 1, 9)
    assert slow.forward_ms("middle", 1, 9) == pytest.approx(3 + 28 * 1.5 + head_ms)
    assert slow.unknown == ["middle_call_ms"]


def test_a_file_may_say_where_its_numbers_are_from(machine):
    own = machine(
        base="h20-roofline", name="h20-141", tflops={"bfloat16": 100}, sources={"tflops.bfloat16": "a measured matmul"}
    )

    assert own.name == "h20-141"
    assert own.tflops == {"bfloat16": 100, "float32": 44}
    assert own.sources["tflops.bfloat16"] == "a measured matmul"
    assert "flops_counter" in own.sources["tflops"]


def test_weights_that_do_not_fit_are_refused_until_devices_share_them(machine):
    for name, devices in (("a100-roofline", 2), ("h20-roofline", 2), ("h200-roofline", 2)):
        with pytest.raises(UserError, match=rf"take 141 GB, and it has \d+; give devices: {devices} in a YAML file"):
            get_machine(name).profile("llama", "bfloat16", LLAMA)
    two = machine(base="a100-roofline", devices=2).profile("llama", "bfloat16", LLAMA)

    assert two.device == "2 × NVIDIA A100 SXM 80 GB, tensor parallel"
    weights_ms = 2 * (LLAMA["target"].parameters - 8192 * 128256) / (2 * 2039e6)
    assert two.forward_ms("target", 1, 0) == pytest.approx(weights_ms, rel=1e-4)


def test_a_floating_point_type_without_a_rate_is_refused():
    with pytest.raises(UserError, match=r"knows no peak rate in float16; give it under tflops \(known: bfloat16, floa"):
        get_machine("a100-roofline").profile("pair", "float16", QWEN)


def test_a_drafter_that_nothing_was_published_of_is_left_out_and_a_target_refused():
    paper = get_machine("paper-online")
    profile = paper.profile("pair", {"target": "Qwen/Qwen3-32B", "middle": "Qwen/Qwen3-4B", "small": None})

    assert {*profile.forwards} == {"target"}
    assert {profile.forward_ms("target", tokens, context) for tokens in (1, 64) for context in (0, 999)} == {77.6}
    with pytest.raises(UserError, match="paper-online: no latency of pair mine's target was published; name a pair of"):
        paper.profile("mine", {"target": "Qwen/Qwen3-14B", "middle": "Qwen/Qwen3-0.6B"})


BROKEN = {
    "an unknown base": ({"base": "h1000-roofline"}, "mine.yaml: base: unknown machine 'h1000-roofline'; did you mean"),
    "a base that is a profile": ({"base": "cpu-2core"}, "mine.yaml: base: unknown machine 'cpu-2core'"),
    "a base that is no name": ({"base": ["h20-roofline"]}, "mine.yaml: base: unknown machine"),
    "an unknown key": ({"base": "h20-roofline", "bandwith": 3}, "mine.yaml: bandwith: Extra inputs"),
    "an unknown cost": (
        {"base": "h20-roofline", "costs": {"verify": 3}},
        "profile: unknown cost 'verify'; did you mean",
    ),
    "costs of another shape": ({"base": "h20-roofline", "costs": 3}, "mine.yaml: costs: Input should be a valid dict"),
    "sources of another shape": ({"base": "h20-roofline", "sources": 3}, "sources: Input should be a valid dict"),
    "a negative overhead": (
        {"base": "h20-roofline", "launch_overhead_ms": -1},
        "launch_overhead_ms: Input should be g",
    ),
    "an endless rate": (
        {"base": "h20-roofline", "bandwidth_gb_s": float("inf")},
        "bandwidth_gb_s: Input should be a fi",
    ),
    "no device at all": ({"base": "h20-roofline", "devices": 0}, "devices: Input should be greater"),
    "a name that is a path": ({"base": "h20-roofline", "name": "a/b"}, "name: String should match"),
    "too little": ({"bandwidth_gb_s": 3}, "mine.yaml: name: Field required"),
}


@pytest.mark.parametrize(("values", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_machine_is_refused_by_key(machine, values, message):
    with pytest.raises(UserError) as refusal:
        machine(**values)

    assert message in str(refusal.value)


def test_other_names_and_files_are_no_machines(profile, tmp_path, machine):
    write_profile(profile, tmp_path / "plain.yaml")
    (tmp_path / "broken.yaml").write_text("[1, 2")

    names = ["cpu-2core", "nowhere", tmp_path / "none.yaml", tmp_path / "broken.yaml", tmp_path / "plain.yaml"]
    assert [get_machine(str(name)) for name in names] == [None] * 5
