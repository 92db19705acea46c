"""How much of the CPU a control group grants, read from files as kernels write them."""

import os

import pytest

from hardware_profiles import cpu
from hardware_profiles.cpu import allowed_cores, cpu_quota, over_quota

V1_LINE = "4:memory:/box\n3:cpu,cpuacct:/box/inner\n0::/\n"
QUOTAS = {
    "version 2": ("0::/\n", {"cpu.max": "250000 100000"}, 2.5),
    "version 2 without a limit": ("0::/\n", {"cpu.max": "max 100000"}, None),
    "version 1": (V1_LINE, {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
    "version 1 without a limit": (V1_LINE, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    "version 1 without its period": (V1_LINE, {"cpu/cpu.cfs_quota_us": "200000"}, None),
    "the process's own group": (
        V1_LINE,
        {"cpu/box/inner/cpu.cfs_quota_us": "50000", "cpu/box/inner/cpu.cfs_period_us": "100000"},
        0.5,
    ),
    "a parent that grants less": (
        "0::/slice/run\n",
        {"slice/cpu.max": "150000 100000", "slice/run/cpu.max": "400000 100000"},
        1.5,
    ),
    "a stranger's group": ("0::/slice/run\n", {"slice/other/cpu.max": "100000 100000"}, None),
    "another controller's group": ("4:memory:/box\n", {"cpu/box/cpu.max": "100000 100000"}, None),
    "a container whose group has another path outside": ("0::/docker/abc\n", {"cpu.max": "300000 100000"}, 3.0),
    "a group whose name is not UTF-8": ("0::/caf\udce9\n", {"caf\udce9/cpu.max": "100000 100000"}, 1.0),
    "no control groups": (None, {}, None),
}


@pytest.mark.parametrize(("own", "files", "quota"), QUOTAS.values(), ids=QUOTAS)
def test_the_least_quota_of_the_groups_that_hold_the_process_counts(tmp_path, own, files, quota):
    if own is not None:
        (tmp_path / "own").write_bytes(os.fsencode(own))
    for name, text in files.items():
        file = tmp_path / "mount" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    assert cpu_quota(tmp_path / "mount", tmp_path / "own") == quota


@pytest.mark.parametrize(
    ("affinity", "quota", "cores"),
    [(64, 2.0, 2), (64, 2.9, 2), (64, 0.5, 1), (4, 8.0, 4), (4, None, 4), (None, 2.0, 2), (None, None, None)],
)
def test_as_many_cores_may_be_used_as_affinity_and_whole_cpus_of_the_quota_allow(monkeypatch, affinity, quota, cores):
    if affinity is None:
        monkeypatch.delattr("psutil.Process.cpu_affinity", raising=False)
    else:
        monkeypatch.setattr("psutil.Process.cpu_affinity", lambda self: list(range(affinity)), raising=False)
    monkeypatch.setattr(cpu, "cpu_quota", lambda: quota)

    assert allowed_cores() == cores


@pytest.mark.parametrize(("threads", "quota"), [(2, 2.0), (2, 2.5), (1, 0.5), (64, None)])
def test_threads_within_the_quota_are_no_problem(monkeypatch, threads, quota):
    monkeypatch.setattr(cpu, "cpu_quota", lambda: quota)

    assert over_quota(threads) is None


@pytest.mark.parametrize(("threads", "quota", "fix"), [(3, 2.5, 2), (2, 0.5, 1), (64, 2.0, 2)])
def test_threads_above_the_quota_are_told_with_the_most_that_fit(monkeypatch, threads, quota, fix):
    monkeypatch.setattr(cpu, "cpu_quota", lambda: quota)
    problem = over_quota(threads)

    assert problem.startswith(f"{threads} threads, but the CPU quota of the control group is {quota:g}: ")
    assert problem.endswith(f"give --threads {fix}")
