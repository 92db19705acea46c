"""A target whose layers do not all lie on one device: here some lie on the disk and are read when their turn comes."""

import pytest
import torch

from harness.run.losslessness import certify
from methods.core.engines.choice import Engines
from methods.core.model import TreeModel
from methods.core.sampling import DecodingParams

pytestmark = pytest.mark.torch

PLACES = {
    "some layers": {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"},
    "the first weights": {"model.embed_tokens": "disk", "model.layers.0": "cpu", "model.layers.1": "disk"},
}


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def spread(request, tiny, tmp_path):
    """A model with layers on the disk."""
    from accelerate import dispatch_model

    rest = {"model.layers.2": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk"}
    model = tiny.__wrapped__(seed=41)
    return dispatch_model(model, {**request.param, **rest}, main_device="cpu", offload_dir=str(tmp_path))


def test_it_runs_on_hugging_faces_forward(spread):
    assert Engines("auto", spread).of(spread).name == "hf"
    assert TreeModel(spread).device == torch.device("cpu")


@pytest.mark.parametrize("name", ["autoregressive", "all-small", "treegraft-fixed"])
def test_it_decodes_what_the_whole_model_decodes(spread, tiny, method, echo, hf_tokens, prompts, name):
    whole = tiny(seed=41)
    decoder = method(name, spread, middle=echo(whole))
    for prompt in prompts[:4]:
        answer = decoder.generate(prompt, DecodingParams(12)).token_ids
        assert answer == hf_tokens(whole, prompt, 12)
        assert certify(decoder.models.target, DecodingParams(12), prompt, answer, answer) == "identical"
