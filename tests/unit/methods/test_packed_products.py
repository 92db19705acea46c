"""Products with packed weights: every kernel multiplies alike, and the choice among them is measured."""

import pytest
import torch
from torch import nn

from methods.core.engines import products
from methods.core.engines.products import KernelChoice, Matrix, Packer, measured_choice
from methods.core.engines.stored import StoredWeight

pytestmark = pytest.mark.torch

KERNELS = ("torch", "onednn")


@pytest.fixture
def layer():
    torch.manual_seed(3)
    return nn.Linear(48, 24).requires_grad_(False)


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 16, 64, 65, 300])
@pytest.mark.parametrize(
    "names", [("torch",) * 5, ("onednn",) * 5, ("torch", "onednn", "torch", "onednn", "torch")], ids=str
)
def test_every_kernel_multiplies_alike(layer, rows, names):
    inputs = torch.randn(rows, 48)

    torch.testing.assert_close(Packer(KernelChoice(names)).product(layer)(inputs), layer(inputs))


def test_a_kernel_in_fp32_rounds_once(layer):
    half = layer.bfloat16()
    inputs = torch.randn(5, 48).bfloat16()
    exact = nn.functional.linear(inputs.float(), half.weight.float(), half.bias.float())

    assert torch.equal(Packer(KernelChoice(("onednn-fp32",) * 5)).product(half)(inputs), exact.bfloat16())


def test_a_number_of_rows_takes_the_kernel_of_the_next_measured_one(layer, monkeypatch):
    called = []

    def naming(name):
        return lambda matrix: lambda rows: called.append(name) or rows

    monkeypatch.setattr(products, "_KERNELS", {name: naming(name) for name in "abcde"})
    product = Packer(KernelChoice(tuple("abcde"))).product(layer)
    for rows in (1, 2, 4, 5, 8, 9, 16, 17, 64, 1000):
        product(torch.ones(rows, 48))

    assert called == list("abbccddeee")


def timed(monkeypatch, seconds):
    """Let kernels take these times by name, whatever the machine; a kernel without one is missing."""
    monkeypatch.setattr(products, "_SMALLEST", 0)
    monkeypatch.setattr(products, "_made", lambda name, matrix: name if name in seconds else None)
    monkeypatch.setattr(
        products, "_seconds", lambda kernels, rows: {name: seconds[name][len(rows)] for name in kernels}
    )


def test_the_fastest_kernel_is_chosen_for_each_size(monkeypatch):
    timed(monkeypatch, {"onednn": {1: 3, 4: 3, 8: 3, 16: 3, 64: 9}, "torch": {1: 1, 4: 3, 8: 3, 16: 9, 64: 1}})

    assert measured_choice(Matrix(torch.ones(4, 4))).names == ("torch", "onednn", "onednn", "onednn", "torch")


def test_a_kernel_that_is_a_hundred_times_slower_is_left_out_and_a_near_tie_goes_to_the_first(monkeypatch):
    timed(
        monkeypatch, {"onednn": {1: 100, 4: 1.1, 8: 1.1, 16: 1.1, 64: 1.1}, "torch": {1: 1, 4: 1, 8: 1, 16: 1, 64: 1}}
    )

    assert measured_choice(Matrix(torch.ones(4, 4))).names == ("torch", "onednn", "onednn", "onednn", "onednn")


def test_without_packed_operators_torchs_own_is_taken(monkeypatch):
    monkeypatch.setattr(products, "_SMALLEST", 0)

    def refuse(matrix):
        raise RuntimeError("needs the cpu support avx512bw")

    monkeypatch.setattr(products, "_KERNELS", {**products._KERNELS, "onednn": refuse, "onednn-fp32": refuse})

    assert set(measured_choice(Matrix(torch.ones(8, 8))).names) == {"torch"}


def test_small_matrices_are_not_worth_a_measurement():
    assert measured_choice(Matrix(torch.ones(64, 64))) == KernelChoice()


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
        (("onednn",) * 5, "onednn"),
        (("torch", "onednn", "onednn", "onednn", "onednn"), "torch to 1 rows, then onednn"),
        (("torch", "onednn", "onednn", "onednn", "torch"), "torch to 1 rows, onednn to 16 rows, then torch"),
    ],
)
def test_a_choice_is_told_in_words(names, words):
    assert str(KernelChoice(names)) == words


@pytest.fixture
def stored_layer():
    """A layer whose weights are the values of 4-bit ones, both rounded to the type of its parameter."""

    def build(dtype, outputs=24):
        generator = torch.Generator().manual_seed(7)
        layer = nn.Linear(64, outputs, dtype=dtype).requires_grad_(False)
        layer.stored = StoredWeight(
            torch.randint(0, 256, (outputs, 32), dtype=torch.uint8, generator=generator),
            torch.rand(outputs, 2, generator=generator).to(dtype),
            torch.randn(outputs, 2, generator=generator).to(dtype),
        )
        layer.weight.data = layer.stored.values().to(dtype)
        return layer

    return build


@pytest.mark.parametrize("rows", [1, 3, 8, 20])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-5)])
def test_weights_in_four_bits_multiply_as_their_values_do(stored_layer, rows, dtype, close):
    layers = [stored_layer(dtype, 32), stored_layer(dtype, 64)]
    inputs = torch.randn(rows, 128, generator=torch.Generator().manual_seed(1)).to(dtype)[:, ::2]  # as norms give them
    truth = torch.cat(
        [nn.functional.linear(inputs.double(), one.weight.double(), one.bias.double()) for one in layers], 1
    )

    product = Packer(KernelChoice(), KernelChoice(("int4",) * 5)).product(*layers)(inputs)

    assert product.dtype == dtype
    assert (product.float() - truth).abs().max() <= close * truth.abs().max()
    layers[0].stored.offsets.add_(0.5)
    changed = Packer(KernelChoice(), KernelChoice(("int4",) * 5)).product(layers[0])(inputs)
    assert not torch.allclose(changed, product[:, :32])  # the kernel reads what is stored


def test_weights_in_four_bits_take_kernels_of_their_own(stored_layer, monkeypatch):
    called = []
    monkeypatch.setattr(
        products, "_KERNELS", {name: lambda matrix, name=name: lambda rows: called.append(name) for name in "ab"}
    )
    packer = Packer(KernelChoice(("a",) * 5), KernelChoice(("b",) * 5))
    stored, plain = stored_layer(torch.float32), nn.Linear(64, 24)
    for layers in ([stored], [plain], [stored, plain]):
        packer.product(*layers)(torch.ones(1, 64))

    assert called == ["b", "a", "a"]
    assert str(packer) == "a; of 4-bit weights: b"
