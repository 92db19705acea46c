"""What crosses from host to device and back, with a device that is made up."""

from types import SimpleNamespace

import torch

from methods.core.transfer import on_device, on_host

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


class Fake:
    """A tensor that remembers how it was moved."""

    def __init__(self, device, moves=()):
        self.device, self.moves = device, moves

    def pin_memory(self):
        return Fake(self.device, (*self.moves, "pinned"))

    def to(self, device, non_blocking=False):
        return Fake(torch.device(device), (*self.moves, ("moved", str(device), non_blocking)))


def test_a_tensor_stays_where_it_is_on_a_cpu():
    tensor = torch.arange(3)

    assert on_device(tensor, CPU) is tensor
    assert on_host(tensor)[0] is tensor


def test_a_gpu_reads_pinned_memory_and_nobody_waits_for_it():
    assert on_device(Fake(CPU), GPU).moves == ("pinned", ("moved", "cuda:0", True))


def test_the_host_waits_once_for_all_that_it_reads_of_a_gpu(monkeypatch):
    waits = []

    def current_stream(device):
        return SimpleNamespace(synchronize=lambda: waits.append(device))

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    found = on_host(Fake(GPU), Fake(GPU))

    assert [one.moves for one in found] == [(("moved", "cpu", True),)] * 2
    assert waits == [GPU]
