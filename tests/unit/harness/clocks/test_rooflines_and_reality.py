"""Rooflines beside latencies that others measured: never above them, and how far below, as docs/machines.md states."""

import pytest
import yaml

from hardware_profiles.machine import get_machine
from hardware_profiles.roofline import Architecture
from harness.clocks.named_profiles import named_profile

# Llama-2's configurations, and tokens/s with compiled forwards on A100 80 GB, from gpt-fast's README
# (github.com/pytorch-labs/gpt-fast at 0f925b5d), batch size 1, 5 prompt tokens, bf16.
SEVEN = Architecture(
    layers=32, hidden=4096, heads=32, kv_heads=32, head_dim=128, intermediate=11008, vocabulary=32000, tied=False,
    source="Llama-2-7b",
)  # fmt: skip
SEVENTY = Architecture(
    layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128, intermediate=28672, vocabulary=32000, tied=False,
    source="Llama-2-70b",
)  # fmt: skip
COMPILED = [
    (SEVEN, 1, 104.9, "1.47"),
    (SEVENTY, 2, 21.32, "1.39"),
    (SEVENTY, 4, 38.01, "1.56"),
    (SEVENTY, 8, 62.50, "1.90"),
]


@pytest.fixture
def a100s(tmp_path):
    """Build a machine of some A100."""

    def build(**changes):
        (tmp_path / "own.yaml").write_text(yaml.safe_dump({"base": "a100-roofline", **changes}))
        return tmp_path / "own.yaml"

    return build


@pytest.mark.parametrize(("model", "devices", "tokens_per_s", "ratio"), COMPILED)
def test_compiled_forwards_take_half_as_long_again_and_more_with_every_device(
    a100s, model, devices, tokens_per_s, ratio
):
    profile = get_machine(str(a100s(devices=devices))).profile("llama-2", "bfloat16", {"target": model})

    assert f"{1e3 / tokens_per_s / profile.forward_ms('target', 1, 100):.2f}" == ratio


# Table 6 of the paper, whose page names no device; Table 14 says that one of its transfers starts from an A100.
TABLE_6 = {
    ("llama-70b-1b", "target"): (122.2, 2, "3.6", "1.01"),
    ("llama-8b-1b", "target"): (48.9, 1, "6.6", "1.01"),
    ("llama-8b-1b", "middle"): (29.1, 1, "23.8", "1.20"),
    ("qwen3-32b-0.6b", "target"): (77.6, 1, "2.5", "0.80"),
    ("qwen3-32b-0.6b", "middle"): (44.8, 1, "73.1", "1.06"),
    ("qwen3-8b-0.6b", "target"): (55.0, 1, "7.4", "1.01"),
}


@pytest.mark.parametrize(("pair", "role"), TABLE_6)
def test_the_papers_latencies_are_those_of_launching_layers(a100s, pair, role):
    published, devices, bare, eager = TABLE_6[pair, role]
    files = (a100s(devices=devices, layer_overhead_ms=overhead) for overhead in (0, 1.5))
    times = [named_profile(f"{file}/{pair}").forward_ms(role, 1, 500) for file in files]

    assert (f"{published / times[0]:.1f}", f"{published / times[1]:.2f}") == (bare, eager)
