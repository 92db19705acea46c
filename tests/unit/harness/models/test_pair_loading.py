from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from foundation.digests import files_digest, tensors_digest
from foundation.errors import UserError
from harness.models import loading
from harness.models.pair import ModelSource, Pair, get_pair, pair_names
from harness.models.toy import toy_model, toy_tokenizer

pytestmark = pytest.mark.torch


class Library:
    """Stands in for a transformers Auto class; remembers what it was asked for."""

    def __init__(self, thing):
        self.thing, self.calls = thing, []

    def from_pretrained(self, name, **options):
        self.calls.append((name, options))
        return (self.thing, {"missing_keys": set()}) if options.pop("output_loading_info", False) else self.thing


@pytest.fixture
def library(monkeypatch):
    models, tokenizers = Library(toy_model(0)), Library(toy_tokenizer())
    monkeypatch.setattr(loading, "AutoModelForCausalLM", models)
    monkeypatch.setattr(loading, "AutoTokenizer", tokenizers)
    return SimpleNamespace(models=models, tokenizers=tokenizers)


@pytest.fixture
def saved(tmp_path):
    def save(seed=0):
        folder = tmp_path / f"model-{seed}"
        toy_model(seed).save_pretrained(folder)
        toy_tokenizer().save_pretrained(folder)
        return folder

    return save


def test_a_hub_id_is_loaded_as_the_pair_states_it_and_brings_no_code(library):
    source = ModelSource(hub="owner/name", revision="abc123")
    pair = Pair(name="p", target=source, attention="eager")
    loaded = loading.load_pair(pair, dtype="bf16", device="cpu")
    expected = {
        "dtype": torch.bfloat16,
        "attn_implementation": "eager",
        "use_safetensors": True,
        "trust_remote_code": False,
        "revision": "abc123",
    }
    assert library.models.calls == [("owner/name", expected)]
    assert library.tokenizers.calls == [("owner/name", {"trust_remote_code": False, "revision": "abc123"})]
    assert loaded.weights["target"]["origin"] == "owner/name@abc123"


def test_a_bare_hub_id_is_a_target_alone_at_the_newest_revision(library):
    pair = get_pair("owner/name")
    loaded = loading.load_pair(pair, dtype="fp32", device="cpu", trust_remote_code=True)
    ((name, options),) = library.models.calls
    assert name == "owner/name"
    assert "revision" not in options
    assert options["trust_remote_code"] is True
    assert options["dtype"] == torch.float32
    assert loaded.models.middle is None


def test_a_middle_with_weights_of_its_own_is_loaded_beside_the_target(library):
    pair = Pair(name="p", target=ModelSource(hub="a/target"), middle=ModelSource(hub="b/middle"))
    loaded = loading.load_pair(pair, dtype="fp32", device="cpu")
    assert [name for name, _ in library.models.calls] == ["a/target", "b/middle"]
    assert {*loaded.weights} == {"target", "middle"}


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_folder_saved_by_transformers_loads_in_the_asked_type(saved, dtype):
    loaded = loading.load_pair(get_pair(str(saved())), dtype=dtype, device="cpu")
    assert loaded.models.target.dtype == loading.DTYPES[dtype]
    assert loaded.pair.name == "model-0"
    assert loaded.eos_ids == {256}
    assert not loaded.models.target.model.training
    assert not any(weight.requires_grad for weight in loaded.models.target.model.parameters())
    expected = toy_model(0).to(loading.DTYPES[dtype]).state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in loaded.models.target.model.state_dict().items())


def test_digests_are_stable_and_change_with_the_weights(saved):
    one, again, other = saved(0), saved(0), saved(1)
    assert files_digest(one) == files_digest(again) != files_digest(other)
    toys = [tensors_digest(toy_model(seed).state_dict()) for seed in (0, 0, 1)]
    assert toys[0] == toys[1] != toys[2]
    one_weight = toy_model(0)
    with torch.no_grad():
        one_weight.lm_head.weight[3, 4] += 1e-3
    assert tensors_digest(one_weight.state_dict()) != toys[0]
    assert tensors_digest(toy_model(0).bfloat16().state_dict()) != toys[0]


def test_the_toy_pair_has_a_middle_of_the_targets_own_layers():
    loaded = loading.load_pair(get_pair("toy"), dtype="fp32", device="cpu")
    target, middle = loaded.models.target.model, loaded.models.middle.model
    assert middle.config.num_hidden_layers == 2
    assert target.config.num_hidden_layers == 3
    assert middle.model.embed_tokens.weight is target.model.embed_tokens.weight
    assert loaded.weights["middle"]["sha256"] == loaded.weights["target"]["sha256"]


def test_building_the_toy_leaves_the_global_draws_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    toy_model(0)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("generation", "tokenizer", "expected"),
    [(7, 1, {7}), ([7, 8], 1, {7, 8}), (None, 1, {1}), (None, None, set()), (0, 1, {0}), ([], 1, set())],
)
def test_end_of_sequence_ids_are_none_one_or_many(generation, tokenizer, expected):
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=generation))
    assert loading.eos_ids(model, SimpleNamespace(eos_token_id=tokenizer)) == expected


def test_a_model_without_a_generation_config_takes_the_tokenizers_end():
    assert loading.eos_ids(SimpleNamespace(generation_config=None), SimpleNamespace(eos_token_id=2)) == {2}


def test_packaged_pairs_are_good_and_named_by_their_files():
    assert {"smollm2", "smollm2-skip", "toy"} <= {*pair_names()}
    for name in pair_names():
        assert get_pair(name).name == name
    assert get_pair("smollm2-skip").performance is False


def test_a_target_alone_is_a_hub_id_a_folder_or_a_gguf(tmp_path):
    (tmp_path / "m.gguf").touch()
    assert get_pair("owner/name").target == ModelSource(hub="owner/name")
    assert get_pair(str(tmp_path)).target == ModelSource(path=str(tmp_path))
    assert get_pair(str(tmp_path / "m.gguf")).target == ModelSource(gguf=str(tmp_path / "m.gguf"))


@pytest.mark.parametrize("name", ["owner/name/more", "../name", "/owner/name", "./name"])
def test_a_path_that_is_not_there_is_not_taken_for_a_hub_id(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="unknown pair"):
        get_pair(name)


def test_a_folder_in_a_pair_file_that_is_not_there_is_named(tmp_path):
    pair = Pair(name="p", target=ModelSource(path=str(tmp_path / "gone")))
    with pytest.raises(UserError, match="gone: no such folder"):
        loading.load_pair(pair, dtype="fp32", device="cpu")


def test_a_gguf_inside_a_package_is_found_there(monkeypatch, tmp_path):
    (tmp_path / "model.gguf").touch()
    distribution = SimpleNamespace(locate_file=lambda file: tmp_path / file)
    monkeypatch.setattr(loading.importlib.metadata, "distribution", lambda name: distribution)
    pair = Pair(name="p", target=ModelSource(package="weights", file="model.gguf"))
    assert loading._gguf_file(pair.target, pair) == Path(tmp_path / "model.gguf")
    gone = Pair(name="p", target=ModelSource(package="weights", file="gone.gguf"))
    with pytest.raises(UserError, match=r"has no gone\.gguf"):
        loading._gguf_file(gone.target, gone)


CORES = [
    ("", 4, 4, 4),
    ("", 4, 1, 1),
    ("", 2, 8, 2),
    ("3", 4, 1, 3),
    ("0", 4, 4, 4),
    ("many", 4, 2, 2),
    ("", None, None, 1),
]


@pytest.mark.parametrize(("given", "cores", "allowed", "threads"), CORES)
def test_threads_follow_the_environment_and_the_cores_that_may_be_used(monkeypatch, given, cores, allowed, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr("psutil.cpu_count", lambda logical: cores)
    monkeypatch.setattr(loading, "allowed_cores", lambda: allowed)
    assert loading.default_threads() == threads


def test_a_container_with_two_cpus_of_quota_on_a_large_host_gets_two_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 64)
    monkeypatch.setattr("psutil.Process.cpu_affinity", lambda self: list(range(64)), raising=False)
    monkeypatch.setattr("hardware_profiles.cpu.cpu_quota", lambda: 2.0)

    assert loading.default_threads() == 2


@pytest.mark.parametrize(("threads", "warned"), [(2, False), (3, True)])
def test_more_threads_than_the_quota_are_warned_of_in_one_line_and_set(monkeypatch, caplog, threads, warned):
    taken = []
    monkeypatch.setattr("hardware_profiles.cpu.cpu_quota", lambda: 2.0)
    monkeypatch.setattr("torch.set_num_threads", taken.append)
    loading.set_threads(SimpleNamespace(threads=threads))

    assert taken == [threads]
    assert [record.getMessage() for record in caplog.records] == [
        "3 threads, but the CPU quota of the control group is 2: they would be stopped in turn; give --threads 2"
    ] * warned


def test_a_tokenizer_that_splits_the_markers_of_its_template_is_refused_unless_the_pair_is_plain(monkeypatch, library):
    monkeypatch.setattr(loading, "split_markers", lambda tokenizer: ["<|user|>"])
    source = ModelSource(hub="owner/name")

    with pytest.raises(UserError, match=r"pair p: the tokenizer splits <\|user\|> .*; give the model's own tokenizer"):
        loading.load_pair(Pair(name="p", target=source), dtype="fp32", device="cpu")
    loading.load_pair(Pair(name="p", target=source, template="plain"), dtype="fp32", device="cpu")
