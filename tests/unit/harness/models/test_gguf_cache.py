import threading

import pytest
import torch

from foundation.errors import UserError
from harness.models import gguf as conversion
from harness.models.pair import ModelSource, Pair
from harness.models.toy import toy_model, toy_tokenizer

pytestmark = pytest.mark.torch


@pytest.fixture
def gguf(tmp_path, monkeypatch):
    monkeypatch.setenv("TREEGRAFT_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF and weights")
    return file


@pytest.fixture
def conversions(monkeypatch):
    """Stand in for the conversion, which would need a real GGUF; remember each one."""
    done = []

    def convert(gguf, folder):
        done.append(folder)
        toy_model(0).save_pretrained(folder)
        toy_tokenizer().save_pretrained(folder)

    monkeypatch.setattr(conversion, "_convert", convert)
    return done


def test_a_gguf_is_converted_once_and_found_again(gguf, conversions):
    first = conversion.dequantised(gguf)
    assert conversion.dequantised(gguf) == first
    assert len(conversions) == 1
    assert (first / "model.safetensors").is_file()
    assert list(first.parent.iterdir()) == [first]


def test_other_weights_are_converted_into_a_folder_of_their_own(gguf, conversions):
    first = conversion.dequantised(gguf)
    gguf.write_bytes(b"GGUF and other weights")
    assert conversion.dequantised(gguf) != first
    assert len(conversions) == 2


def test_the_same_weights_under_another_name_are_not_converted_again(gguf, conversions):
    conversion.dequantised(gguf)
    conversion.dequantised(gguf.rename(gguf.with_name("moved.gguf")))
    assert len(conversions) == 1


def test_a_pair_loads_from_the_converted_folder_and_keeps_the_gguf_as_its_origin(gguf, conversions):
    from foundation.digests import file_digest
    from harness.models import loading

    pair = Pair(name="p", target=ModelSource(gguf=str(gguf)))
    for _ in range(2):
        loaded = loading.load_pair(pair, dtype="bf16", device="cpu")
    assert len(conversions) == 1
    assert loaded.weights == {"target": {"origin": str(gguf), "sha256": file_digest(gguf)}}
    assert loaded.models.target.dtype == torch.bfloat16


def test_two_processes_that_convert_at_once_end_with_one_folder(gguf, conversions, monkeypatch):
    both = threading.Barrier(2)
    convert = conversion._convert

    def together(gguf, folder):
        convert(gguf, folder)
        both.wait(timeout=20)

    monkeypatch.setattr(conversion, "_convert", together)
    found = []
    threads = [threading.Thread(target=lambda: found.append(conversion.dequantised(gguf))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(conversions) == 2
    assert found[0] == found[1]
    assert list(found[0].parent.iterdir()) == [found[0]]


def test_a_conversion_that_fails_leaves_nothing_behind(gguf, monkeypatch):
    def convert(gguf, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(conversion, "_convert", convert)
    with pytest.raises(UserError, match="No space left on device"):
        conversion.dequantised(gguf)
    assert list((gguf.parent / "cache").iterdir()) == []


def test_a_cache_folder_that_cannot_be_written_is_named_with_its_variable(gguf, monkeypatch):
    monkeypatch.setenv("TREEGRAFT_CACHE", str(gguf / "below"))
    with pytest.raises(UserError, match="TREEGRAFT_CACHE"):
        conversion.dequantised(gguf)


def test_the_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.delenv("TREEGRAFT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert str(conversion.cache_folder()) == "/xdg/treegraft"
    monkeypatch.setenv("TREEGRAFT_CACHE", "/own")
    assert str(conversion.cache_folder()) == "/own"
