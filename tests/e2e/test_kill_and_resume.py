"""A command is killed with -9 while it works, and the same command continues what it began.

Processes are forked from a server that has imported the harness already, since importing torch takes
seconds and the kill is what is tested.
"""

import json
import multiprocessing
import os
import random
import shutil
import signal
import time

import pytest
import yaml

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
PRELOADED_TOO = [
    "harness.distil.distil",
    "harness.profiling.profile_pair",
    "harness.training.fit_scheduler",
    "lightgbm",
]


@pytest.fixture(scope="module")
def processes(request):
    context = multiprocessing.get_context("forkserver")
    is_slow = any(item.get_closest_marker("slow") for item in request.session.items)
    context.set_forkserver_preload([*PRELOADED, *(PRELOADED_TOO if is_slow else [])])
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


FIT_TEXTS = ["tell me a story", "one two three one two three", "abcabcabc", "why?", "to be or not to be"]
TEXT = ["--batch", "8", "--question-tokens", "8", "--answer-tokens", "8", "--article-tokens", "8", "--tokens", "1500"]
TRAINING = [
    "--layers",
    "0,2",
    "--vocabulary",
    "100",
    "--epochs",
    "2",
    "--tasks",
    "nq",
    "--data",
    "embedded",
    "--limit",
    "1",
]
COMMANDS = {
    "run": [*FLAGS, "--out", "out"],
    "fit": ["fit", "base", "--clock", "profile:cpu-2core", "--out", "out"],
    "distill": [
        "distill",
        "--target",
        "toy",
        *TEXT,
        *TRAINING,
        "--max-new-tokens",
        "8",
        "--threads",
        "1",
        "--out",
        "out",
    ],
    "profile": ["profile", "--pair", "toy", "--repeats", "3", "--threads", "1", "--out", "out.yaml"],
}
QUICK = {
    "harness.profiling.profiler.CONTEXTS": (64, 256),
    "harness.profiling.profiler.SIZES": (1, 4, 16, 64),
    "harness.run.block_runner._WARM_UP_MOST": 1,
    "harness.training.distillation._EPOCHS": 10,
    "harness.training.q_values.ITERATIONS": 2,
}
CHILD = """
import importlib, os, signal, sys
from pathlib import Path

def die(event, given):
    global touched
    place = given[0] if event in ("open", "os.rename", "os.mkdir", "os.remove") else None
    if isinstance(place, (str, Path)) and (not os.path.isabs(place) or str(place).startswith(folder)):
        touched += 1
        if touched == last:
            signal.setitimer(signal.ITIMER_REAL, delay)  # its signal ends the process, in the middle of any call

touched = 0
os.chdir(folder)
for place, value in quick.items():
    module, _, name = place.rpartition(".")
    setattr(importlib.import_module(module), name, value)
from treegraft.cli.main import invoke
sys.addaudithook(die)
code = invoke(arguments)
Path(folder + "-touched").write_text(str(touched))
sys.exit(code)
"""
KILLS = 25
"""Of each command."""


class Work:
    """A command in a folder of its own, killed and started again until it has finished."""

    def __init__(self, name, folder, base):
        self.name, self.folder = name, folder
        folder.mkdir()
        if name == "fit":
            shutil.copytree(base, folder / "base")

    def start(self, processes, after=None, last=None, delay=0.0):
        """Run the command; kill it after some seconds, or a `delay` after it touched its files for the `last` time.

        Return whether it finished.
        """
        moment = {"last": last, "delay": delay, "folder": str(self.folder)}
        what = {"arguments": COMMANDS[self.name], "quick": QUICK, **moment}
        process = processes.Process(target=exec, args=(CHILD, what))
        process.start()
        process.join(after)
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL, -signal.SIGALRM)
        return process.exitcode == 0

    @property
    def touches(self):
        """How often the command that finished touched its files."""
        return int(self.folder.with_name(f"{self.folder.name}-touched").read_text())

    def done(self):
        """Return the units of work that are done and must neither be lost nor done again, by name."""
        if self.name == "run":
            return self._blocks()
        files = [*self.folder.glob("base/traces/*.parquet"), *self.folder.glob("out-work/text/*.safetensors")]
        return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}

    def _blocks(self):
        """Return the lines of whole blocks, every attempt."""
        blocks = {}
        for line in (
            (self.folder / "out" / ROWS_FILE).read_bytes().split(b"\n")[:-1] if size(self.folder / "out") else []
        ):
            row = json.loads(line)
            blocks.setdefault((row["task"], row["question_id"]), []).append(line)
        whole = {"nq": 2, "mt_bench": 4}
        return {block: lines for block, lines in blocks.items() if len({*map(_place, lines)}) == whole[block[0]]}

    def files(self):
        """Return the names of all its files."""
        return sorted(str(file.relative_to(self.folder)) for file in self.folder.rglob("*") if file.is_file())

    def result(self, contents):
        """Return what must not depend on kills: all but times."""
        out = self.folder / "out"
        if self.name == "run":
            return contents(out)
        if self.name == "profile":
            profile = yaml.safe_load((self.folder / "out.yaml").read_text())
            profile["measured_with"].pop("marks")  # what disturbed it
            return _without_numbers(profile)
        made = {file.name: file.read_bytes() for file in out.iterdir()}
        if self.name == "distill":
            made.pop("README.md")  # what the card says, in words
            card = json.loads(made.pop("card.json"))
            card["figures"].pop("latency")
            return made, card
        return made


def _place(line):
    row = json.loads(line)
    return row["turn"], row["method"]


def _without_numbers(value):
    if isinstance(value, dict):
        return {key: _without_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_numbers(one) for one in value]
    return None if isinstance(value, int | float) else value


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_killed_at_random_moments_ends_with_what_an_undisturbed_one_makes(
    processes, name, tmp_path, contents, monkeypatch
):
    base = tmp_path / "base"
    if name == "fit":
        questions = tmp_path / "data" / "gsm8k" / "fit.jsonl"
        questions.parent.mkdir(parents=True)
        lines = (json.dumps({"question_id": number, "turns": [text]}) for number, text in enumerate(FIT_TEXTS))
        questions.write_text("\n".join(lines) + "\n")
        flags = [
            "--pair",
            "toy",
            "--threads",
            "1",
            "--data",
            str(tmp_path / "data"),
            "--split",
            "fit",
            "--tasks",
            "gsm8k",
        ]
        assert invoke(["run", *flags, "--methods", "autoregressive", "--max-new-tokens", "16", "--out", str(base)]) == 0
    undisturbed = Work(name, tmp_path / "undisturbed", base)
    assert undisturbed.start(processes)  # the server imports what it has not yet
    shutil.rmtree(undisturbed.folder)
    undisturbed = Work(name, tmp_path / "undisturbed", base)
    began = time.monotonic()
    assert undisturbed.start(processes)
    seconds = time.monotonic() - began

    rng, kills, results = random.Random(name), 0, 0
    while kills < KILLS:
        work, before = Work(name, tmp_path / str(results), base), {}
        finished = False
        while not finished:
            moment = {"after": rng.uniform(0, 1.1 * seconds)}
            if rng.random() < 0.5:
                moment = {"last": rng.randint(1, undisturbed.touches), "delay": 10 ** rng.uniform(-6, -3)}
            finished = work.start(processes, **moment)
            kills += not finished
            now = work.done()
            assert {key: now.get(key) for key in before} == before, moment
            before = now
        assert work.result(contents) == undisturbed.result(contents)
        assert work.files() == undisturbed.files()
        results += 1
    print(f"{name}: {kills} kills, {results} results, each equal to the undisturbed one")  # noqa: T201 - `-rP` shows it
