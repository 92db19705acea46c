"""A run is killed with -9 while it writes, and the same command continues it.

Processes are forked from a server that has imported the harness already, since importing torch takes
seconds and the kill is what is tested.
"""

import multiprocessing
import os
import signal
import time

import pytest

from harness.records.manifest import MANIFEST_FILE
from harness.records.rows import ROWS_FILE
from treegraft.cli.main import invoke

pytestmark = pytest.mark.torch

RUN = ["run", "--pair", "toy", "--data", "embedded", "--tasks", "nq,mt_bench", "--limit", "5", "--threads", "1"]
FLAGS = [*RUN, "--max-new-tokens", "24", "--methods", "all-small", "--seed", "3", "--temperature", "1"]
PRELOADED = [
    "treegraft.cli.main",
    "harness.run.block_runner",
    "harness.run.execution",
    "methods.tree_method",
    "rich.progress",
]


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert invoke([*FLAGS, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def kill_when(processes, tmp_path):
    """Start the command and kill it as soon as a condition on its folder holds."""

    def act(condition):
        folder = tmp_path / "killed"
        process = processes.Process(target=invoke, args=([*FLAGS, "--out", str(folder)],))
        process.start()
        try:
            patience = time.monotonic() + 60
            while not condition(folder):
                assert process.is_alive(), "the run ended before it could be killed"
                assert time.monotonic() < patience
                time.sleep(0.001)
        finally:
            process.kill()
            process.join()
        assert process.exitcode == -signal.SIGKILL
        return folder

    return act


def size(folder):
    try:
        return os.path.getsize(folder / ROWS_FILE)
    except FileNotFoundError:
        return 0


def resumed_like(folder, undisturbed, contents, rows_of):
    """Continue the killed run; it must end as the undisturbed one did."""
    killed = (folder / ROWS_FILE).read_bytes()
    assert killed.count(b"\n") < len(rows_of(undisturbed))
    assert invoke([*FLAGS, "--out", str(folder)]) == 0
    assert (folder / ROWS_FILE).read_bytes().startswith(killed[: killed.rfind(b"\n") + 1])
    assert contents(folder) == contents(undisturbed)
    assert all(row.attempt <= 2 for row in rows_of(folder))


def last_block_at(folder, rows):
    """Return at which byte of the file the last block begins: a run can be killed until it is written."""
    rows = rows(folder)
    lines = (folder / ROWS_FILE).read_bytes().split(b"\n")[:-1]
    of_last = sum((row.task, row.question_id) == (rows[-1].task, rows[-1].question_id) for row in rows)
    return sum(len(line) + 1 for line in lines[:-of_last])


def check(share, kill_when, undisturbed, contents, rows_of):
    least = max(1, int(share * last_block_at(undisturbed, rows_of)) - 500)  # times differ in their number of digits
    folder = kill_when(lambda folder: size(folder) >= least)
    resumed_like(folder, undisturbed, contents, rows_of)


@pytest.mark.parametrize("share", [0.0, 0.49])
def test_a_run_killed_after_its_first_row_is_continued_to_the_same_rows(
    kill_when, undisturbed, contents, rows_of, share
):
    check(share, kill_when, undisturbed, contents, rows_of)


@pytest.mark.slow
@pytest.mark.parametrize("share", [index / 19 for index in range(20)])
def test_twenty_runs_killed_at_as_many_moments_are_continued_to_the_same_rows(
    kill_when, undisturbed, contents, rows_of, share
):
    check(share, kill_when, undisturbed, contents, rows_of)


@pytest.mark.parametrize(
    "moment",
    [
        lambda folder: folder.exists(),
        lambda folder: (folder / ROWS_FILE).exists(),
        lambda folder: (folder / MANIFEST_FILE).exists(),
    ],
    ids=["folder made", "rows opened", "manifest written"],
)
def test_a_run_killed_before_its_first_row_is_continued_too(kill_when, undisturbed, contents, rows_of, moment):
    folder = kill_when(moment)
    assert invoke([*FLAGS, "--out", str(folder)]) == 0
    assert contents(folder) == contents(undisturbed)


def test_a_run_killed_twice_is_continued_to_the_same_rows(kill_when, undisturbed, contents, rows_of):
    for share in (0.2, 0.6):
        folder = kill_when(lambda folder, share=share: size(folder) >= share * size(undisturbed))
    resumed_like(folder, undisturbed, contents, rows_of)
