import json

import pytest

pytestmark = pytest.mark.torch

RUN = ["run", "--data", "embedded", "--tasks", "nq", "--limit", "1", "--threads", "1", "--out", "out", "--pair"]


@pytest.fixture
def saved(tmp_path):
    """Save the toy model where a user would keep a model of their own."""
    from harness.models.toy import toy_model, toy_tokenizer

    folder = tmp_path / "model"
    toy_model(0).save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return folder


def test_a_hub_id_that_cannot_be_reached_is_refused_with_the_ways_out(refused, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    line = refused(*RUN, "nobody/no-such-model")
    assert "nobody/no-such-model does not load" in line
    assert "local folder" in line
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_no_model_is_refused(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "empty does not load" in refused(*RUN, "./empty")


def test_a_gguf_that_is_not_there_is_refused(refused, tmp_path):
    assert "nowhere.gguf: no such file" in refused(*RUN, "nowhere.gguf")
    (tmp_path / "own.yaml").write_text("target: {gguf: nowhere.gguf}")
    assert "nowhere.gguf: no such file" in refused(*RUN, "own.yaml")


@pytest.mark.parametrize("content", [b"", b"not a model", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64])
def test_a_file_that_is_no_gguf_is_refused(refused, tmp_path, content):
    (tmp_path / "model.gguf").write_bytes(content)
    assert "model.gguf" in refused(*RUN, "model.gguf")
    assert not [*(tmp_path / "cache").glob("*")]


@pytest.mark.parametrize("size", [0, 4, 1000])
def test_weights_cut_short_are_refused(refused, saved, size):
    weights = saved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    assert "does not load" in refused(*RUN, "./model")


@pytest.mark.parametrize(
    "config",
    ["{", "{}", "[]", '{"model_type": "no-such-model"}', '{"model_type": "llama", "hidden_size": "wide"}'],
)
def test_a_model_configuration_that_is_broken_is_refused(refused, saved, config):
    (saved / "config.json").write_text(config)
    assert "does not load" in refused(*RUN, "./model")


def test_weights_of_another_shape_are_refused(refused, saved):
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))
    assert "does not load" in refused(*RUN, "./model")


def test_weights_that_lack_a_tensor_are_refused_rather_than_made_up(refused, saved):
    from safetensors.torch import load_file, save_file

    weights = load_file(saved / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    line = refused(*RUN, "./model")
    assert "lacks weights (model.layers.1.mlp.up_proj.weight" in line


def test_pickled_weights_are_refused_and_run_nothing(refused, saved, tmp_path):
    class Opens:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    import torch

    (saved / "model.safetensors").unlink()
    torch.save({"model.embed_tokens.weight": Opens()}, saved / "pytorch_model.bin")
    assert "model does not load" in refused(*RUN, "./model")
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_without_a_chat_template_is_refused_unless_the_pair_is_plain(refused, treegraft, saved, tmp_path):
    (saved / "chat_template.jinja").unlink()
    line = refused(*RUN, "./model")
    assert "no chat template" in line
    assert "template: plain" in line
    (tmp_path / "own.yaml").write_text("target: {path: ./model}\ntemplate: plain\ndtype: fp32\n")
    assert treegraft(*RUN, "own.yaml", "--max-new-tokens", "4").code == 0


def test_a_middle_of_layers_that_the_target_lacks_is_refused(refused, tmp_path):
    (tmp_path / "own.yaml").write_text("target: {toy: {seed: 0}}\nmiddle: {target_layers: [0, 3]}\n")
    line = refused(*RUN, "own.yaml")
    assert "middle.target_layers" in line
    assert "3 layers" in line


def test_a_package_that_is_not_installed_is_named_with_the_line_that_installs_it(refused, tmp_path):
    (tmp_path / "own.yaml").write_text("target: {package: no-such-package, file: model.gguf}\n")
    line = refused(*RUN, "own.yaml")
    assert "not installed" in line
    assert "pip install" in line


@pytest.mark.parametrize("name", ["all-mid", "csd"])
def test_a_pair_without_a_middle_says_so_in_its_own_words_to_a_method_that_needs_one(refused, tmp_path, name):
    (tmp_path / "own.yaml").write_text("target: {toy: {seed: 0}}\nno_middle: train one first\n")
    line = refused(*RUN, "own.yaml", "--methods", name)
    assert f"method '{name}'" in line
    assert "train one first" in line
    assert not (tmp_path / "out").exists()
