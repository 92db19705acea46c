import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from harness.models.tensor_file import write_tensors

pytestmark = pytest.mark.torch

OLD, NEW = {"a": torch.zeros(3)}, {"a": torch.ones(500)}


def test_what_is_written_is_read_with_its_metadata(tmp_path):
    write_tensors(tmp_path / "a.safetensors", NEW, "make room", {"step": "3"})

    assert torch.equal(load_file(tmp_path / "a.safetensors")["a"], NEW["a"])
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        assert file.metadata() == {"step": "3"}


def test_a_write_that_was_broken_off_leaves_the_earlier_file_and_later_nothing_else(tmp_path, monkeypatch):
    write, file = Path.write_bytes, tmp_path / "a.safetensors"
    write_tensors(file, OLD, "make room")

    def half(path, data):
        write(path, data[: len(data) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(KeyboardInterrupt):
            write_tensors(file, NEW, "make room")
    assert torch.equal(load_file(file)["a"], OLD["a"])

    write_tensors(file, NEW, "make room")
    assert os.listdir(tmp_path) == ["a.safetensors"]
