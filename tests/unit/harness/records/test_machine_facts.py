"""What a manifest says of the machine."""

import pytest

from harness.records.provenance import machine


@pytest.mark.torch
@pytest.mark.parametrize("quota", [1.5, None])
def test_the_cpu_quota_is_kept(monkeypatch, quota):
    monkeypatch.setattr("harness.records.provenance.cpu_quota", lambda: quota)

    assert machine()["cpu_quota"] == quota
