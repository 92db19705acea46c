"""Products with packed weights: every kernel multiplies alike, and the choice among them is measured."""

import pytest
import torch
from torch import nn

from methods.core.engines import products
from methods.core.engines.products import KernelChoice, Packer, measured_choice

pytestmark = pytest.mark.torch

KERNELS = ("torch", "onednn")


@pytest.fixture
def layer():
    torch.manual_seed(3)
    return nn.Linear(48, 24).requires_grad_(False)


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 16, 64, 65, 300])
@pytest.mark.parametrize("names", [("torch",) * 4, ("onednn",) * 4, ("torch", "onednn", "torch", "onednn")], ids=str)
def test_every_kernel_multiplies_alike(layer, rows, names):
    inputs = torch.randn(rows, 48)

    torch.testing.assert_close(Packer(KernelChoice(names)).product(layer)(inputs), layer(inputs))


def test_a_kernel_in_fp32_rounds_once(layer):
    half = layer.bfloat16()
    inputs = torch.randn(5, 48).bfloat16()
    exact = nn.functional.linear(inputs.float(), half.weight.float(), half.bias.float())

    assert torch.equal(Packer(KernelChoice(("onednn-fp32",) * 4)).product(half)(inputs), exact.bfloat16())


def test_a_number_of_rows_takes_the_kernel_of_the_next_measured_one(layer, monkeypatch):
    called = []

    def naming(name):
        return lambda weight, bias: lambda rows: called.append(name) or rows

    monkeypatch.setattr(products, "_KERNELS", {name: naming(name) for name in "abcd"})
    product = Packer(KernelChoice(tuple("abcd"))).product(layer)
    for rows in (1, 2, 4, 5, 16, 17, 64, 1000):
        product(torch.ones(rows, 48))

    assert called == list("abbccddd")


def timed(monkeypatch, seconds):
    """Let kernels take these times by name, whatever the machine; a kernel without one is missing."""
    monkeypatch.setattr(products, "_SMALLEST", 0)
    monkeypatch.setattr(products, "_made", lambda name, weight: name if name in seconds else None)
    monkeypatch.setattr(
        products, "_seconds", lambda kernels, rows: {name: seconds[name][len(rows)] for name in kernels}
    )


def test_the_fastest_kernel_is_chosen_for_each_size(monkeypatch):
    timed(monkeypatch, {"onednn": {1: 3, 4: 3, 16: 3, 64: 9}, "torch": {1: 1, 4: 3, 16: 9, 64: 1}})

    assert measured_choice(torch.ones(4, 4)).names == ("torch", "onednn", "onednn", "torch")


def test_a_kernel_that_is_a_hundred_times_slower_is_left_out_and_a_near_tie_goes_to_the_first(monkeypatch):
    timed(monkeypatch, {"onednn": {1: 100, 4: 1.1, 16: 1.1, 64: 1.1}, "torch": {1: 1, 4: 1, 16: 1, 64: 1}})

    assert measured_choice(torch.ones(4, 4)).names == ("torch", "onednn", "onednn", "onednn")


def test_without_packed_operators_torchs_own_is_taken(monkeypatch):
    monkeypatch.setattr(products, "_SMALLEST", 0)

    def refuse(weight, bias):
        raise RuntimeError("needs the cpu support avx512bw")

    monkeypatch.setattr(products, "_KERNELS", {**products._KERNELS, "onednn": refuse, "onednn-fp32": refuse})

    assert set(measured_choice(torch.ones(8, 8)).names) == {"torch"}


def test_small_matrices_are_not_worth_a_measurement():
    assert measured_choice(torch.ones(64, 64)) == KernelChoice()


def test_stacked_layers_share_their_memory_with_the_stack():
    layers = [nn.Linear(8, rows, bias=bias) for rows, bias in ((5, True), (3, True))]
    inputs = torch.randn(2, 8)
    truth = torch.cat([layer(inputs) for layer in layers], -1)

    product = Packer(KernelChoice()).product(*layers)

    torch.testing.assert_close(product(inputs), truth)
    storages = {layer.weight.untyped_storage().data_ptr() for layer in layers}
    assert len(storages) == 1


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("onednn",) * 4, "onednn"),
        (("torch", "onednn", "onednn", "onednn"), "torch to 1 rows, then onednn"),
        (("torch", "onednn", "onednn", "torch"), "torch to 1 rows, onednn to 16 rows, then torch"),
    ],
)
def test_a_choice_is_told_in_words(names, words):
    assert str(KernelChoice(names)) == words
