"""Matrix products with weights packed once; the kernel for each number of rows is the one measured fastest at load."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import torch
from torch.nn.functional import linear

from methods.core.engines.stored import GROUP, StoredWeight, stacked

Product = Callable[[torch.Tensor], torch.Tensor]
"""Takes inputs [rows, in], gives outputs [rows, out] of the same type."""

_SIZES = (1, 4, 8, 16, 64)  # rows at which kernels are measured
_SMALLEST = 2**19  # weights; below it every kernel is fast enough, and times are noise
_SLACK = 1.15  # a kernel further down the list must win by more: a choice should not change from run to run
_REPEATS = 4


@dataclass(frozen=True, slots=True)
class Matrix:
    """What a product multiplies by."""

    weight: torch.Tensor
    """[out, in]"""
    bias: torch.Tensor | None = None
    """[out]"""
    stored: StoredWeight | None = None
    """The weights as their file holds them."""


def _plain(matrix: Matrix) -> Product:
    return lambda rows: linear(rows, matrix.weight, matrix.bias)


def _packed(matrix: Matrix) -> Product:
    bias, packed = matrix.bias, torch.ops.mkldnn._reorder_linear_weight(matrix.weight)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda rows: multiply(rows, packed, bias, "none", [], "")


def _packed_wide(matrix: Matrix) -> Product:
    """Multiply in fp32: on CPUs without bf16 instructions it is many times faster, and no less exact."""
    if matrix.weight.dtype == torch.float32:
        raise RuntimeError("the weights are in fp32 as they are")
    multiply = _packed(Matrix(matrix.weight.float(), None if matrix.bias is None else matrix.bias.float()))
    return lambda rows: multiply(rows.float()).to(rows.dtype)


def _four_bit(matrix: Matrix) -> Product:
    if matrix.stored is None:
        raise RuntimeError("the weights are not stored in 4 bits")
    bias, packed = matrix.bias, torch.ops.aten._convert_weight_to_int4pack_for_cpu(matrix.stored.levels, 2)
    groups = torch.stack([matrix.stored.scales.T, matrix.stored.offsets.T], -1).contiguous()
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu.default
    if bias is None:
        return lambda rows: multiply(rows.contiguous(), packed, GROUP, groups)
    return lambda rows: multiply(rows.contiguous(), packed, GROUP, groups).add_(bias)


_KERNELS: dict[str, Callable[[Matrix], Product]] = {
    "int4": _four_bit,
    "onednn": _packed,
    "onednn-fp32": _packed_wide,
    "torch": _plain,
}
"""By preference. All but the last are private operators of torch's, and missing or slow on some machines."""


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """Which kernel multiplies how many rows."""

    names: tuple[str, ...] = ("torch",) * len(_SIZES)
    """One for each of the measured sizes; a size between takes that of the next."""

    def __str__(self) -> str:
        runs = [name for name, _ in groupby(self.names)]
        if len(runs) == 1:
            return runs[0]
        ends = [
            size for size, (name, following) in zip(_SIZES, pairwise(self.names), strict=False) if name != following
        ]
        return ", ".join(
            [*(f"{name} to {end} rows" for name, end in zip(runs, ends, strict=False)), f"then {runs[-1]}"]
        )

    @property
    def widens(self) -> bool:
        """Whether several rows are multiplied in fp32."""
        return self.names[-1] == "onednn-fp32"


def measured_choice(matrix: Matrix) -> KernelChoice:
    """Return the fastest kernel of each size for a matrix, which should be the model's largest of its kind."""
    if matrix.weight.device.type != "cpu" or matrix.weight.numel() < _SMALLEST:
        return KernelChoice()
    kernels = {name: kernel for name in _KERNELS if (kernel := _made(name, matrix)) is not None}
    names = []
    for size in _SIZES:
        rows = torch.ones(size, matrix.weight.shape[1], dtype=matrix.weight.dtype)
        taken = _seconds(kernels, rows)
        names.append(next(name for name in taken if taken[name] <= _SLACK * min(taken.values())))
    return KernelChoice(tuple(names))


def _made(name: str, matrix: Matrix) -> Product | None:
    """Return a matrix's kernel, None where this machine, this torch or these weights have none."""
    try:
        kernel = _KERNELS[name](matrix)
        kernel(torch.ones(1, matrix.weight.shape[1], dtype=matrix.weight.dtype))
    except (AttributeError, RuntimeError):  # the operator is missing, or refuses this machine's instructions
        return None
    return kernel


def _seconds(kernels: Mapping[str, Product], rows: torch.Tensor) -> dict[str, float]:
    """Return each kernel's shortest time of a few, in turns: what else the machine does can only lengthen them."""
    taken: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(_REPEATS):
        for name, kernel in kernels.items():
            start = time.perf_counter()
            kernel(rows)
            taken[name].append(time.perf_counter() - start)
    return {name: min(times) for name, times in taken.items()}


class Packer:
    """Makes the products of a pair's models; matrices that models share are packed once.

    Args:
        choice: the kernels to use.
        stored: those for weights that are kept in 4 bits; None treats these like all others.
    """

    def __init__(self, choice: KernelChoice, stored: KernelChoice | None = None) -> None:
        self.choice = choice
        self._stored = stored
        self._made: dict[tuple[int, ...], Product] = {}

    def __str__(self) -> str:
        return str(self.choice) if self._stored is None else f"{self.choice}; of 4-bit weights: {self._stored}"

    def product(self, *layers: torch.nn.Module) -> Product:
        """Return one product with the weights, and biases, of several linear layers, stacked."""
        key = tuple(id(layer.weight) for layer in layers)
        if key not in self._made:
            biased = any(getattr(layer, "bias", None) is not None for layer in layers)
            stored: list[Any] = [getattr(layer, "stored", None) for layer in layers]
            matrix = Matrix(
                _stacked(layers, "weight"),
                _stacked(layers, "bias") if biased else None,
                stacked(stored) if self._stored and all(stored) else None,
            )
            choice = self.choice if self._stored is None or matrix.stored is None else self._stored
            self._made[key] = _by_rows(matrix, choice)
        return self._made[key]


def _by_rows(matrix: Matrix, choice: KernelChoice) -> Product:
    kernels = {name: _KERNELS[name](matrix) for name in dict.fromkeys(choice.names)}
    if len(kernels) == 1:
        return next(iter(kernels.values()))
    largest = _SIZES[-1]
    by_rows = [kernels[choice.names[bisect_left(_SIZES, rows)]] for rows in range(largest + 1)]
    return lambda rows: by_rows[min(len(rows), largest)](rows)


def _stacked(layers: Sequence[torch.nn.Module], name: str) -> torch.Tensor:
    """Return a parameter of several layers, one below the other; theirs become views of it, to take no more memory."""
    parts: list[torch.Tensor] = [getattr(layer, name) for layer in layers]
    if len(parts) == 1:
        return parts[0].detach()
    whole = torch.cat([part.detach() for part in parts])
    for part, view in zip(parts, torch.split(whole, [len(part) for part in parts]), strict=True):
        part.data = view
    return whole
