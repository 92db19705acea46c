"""The 4-bit weights of a GGUF file: read, set beside the loaded model's, and kept for the engine."""

import gguf
import pytest
import torch
from pydantic import ValidationError

from foundation.errors import UserError
from harness.models.pair import Pair
from harness.models.stored_weights import keep_stored

pytestmark = pytest.mark.torch

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def in_file_order(name, weight, head):
    """Rotate heads as GGUF files of Llama do: neighbours form a pair."""
    if not name.startswith(("attn_q", "attn_k")):
        return weight
    return weight.reshape(-1, 2, head // 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture
def written(tiny, tmp_path):
    """Write a tiny model's layers in a type; return the model with the values that the file holds, and the file."""

    def write(kind="Q4_1", dtype=torch.float32):
        model = tiny.__wrapped__(seed=5, hidden_size=32, intermediate_size=64, num_attention_heads=2)
        model.to(dtype)
        file = tmp_path / f"{kind}.gguf"
        writer = gguf.GGUFWriter(file, "llama")
        for index, layer in enumerate(model.model.layers):
            for name, stored_as in NAMES.items():
                linear = layer.get_submodule(name)
                type_ = gguf.GGMLQuantizationType[kind]
                ordered = in_file_order(stored_as, linear.weight.detach().float().numpy(), 16)
                blocks = gguf.quants.quantize(ordered, type_)
                writer.add_tensor(f"blk.{index}.{stored_as}.weight", blocks, raw_dtype=type_)
                plain = gguf.quants.quantize(linear.weight.detach().float().numpy(), type_)
                linear.weight.data = torch.from_numpy(gguf.quants.dequantize(plain, type_).copy()).to(dtype)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return model, file

    return write


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_every_linear_layer_keeps_its_weights_in_four_bits(written, kind):
    model, file = written(kind)
    loaded = {name: weight.clone() for name, weight in model.state_dict().items()}

    keep_stored(model, file)

    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, loaded[name], rtol=1e-3, atol=1e-4)
    linear = model.model.layers[1].self_attn.q_proj
    torch.testing.assert_close(linear.stored.values(), linear.weight)
    assert linear.stored.levels.unique().numel() > 8


def test_in_bf16_parameters_are_the_values_of_rounded_scales(written):
    model, file = written(dtype=torch.bfloat16)

    keep_stored(model, file)

    linear = model.model.layers[0].mlp.down_proj
    assert linear.stored.scales.dtype == torch.bfloat16
    assert torch.equal(linear.weight, linear.stored.values().bfloat16())


def test_weights_of_another_model_are_refused(written):
    model, file = written()
    model.model.layers[0].self_attn.k_proj.weight.data.neg_()

    with pytest.raises(UserError, match=r"blk\.0\.attn_k\.weight differs from the loaded model; set weights: deq"):
        keep_stored(model, file)


def test_a_file_without_such_weights_is_refused(written):
    model, file = written("F16")

    with pytest.raises(UserError, match="has no weights in Q4_0 or Q4_1; set weights: dequantised"):
        keep_stored(model, file)


def test_only_a_gguf_target_can_stay_as_stored():
    with pytest.raises(ValidationError, match="weights: as-stored needs a target from a GGUF file"):
        Pair(name="x", target={"hub": "a/b"}, weights="as-stored")
