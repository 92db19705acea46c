"""The command line called in this process; plug-ins installed for one test; a finished run to look at."""

import json
import resource
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.records.rows import last_attempts, read_rows
from methods.catalog import FAMILIES, catalogue
from treegraft.cli.main import invoke

TIMES = {"prefill_s", "decode_s", "e2e_s", "spans", "telemetry", "marks"}
SMALL = ["run", "--pair", "toy", "--data", "embedded", "--threads", "1", "--max-new-tokens", "8"]


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every command runs in a folder of its own and leaves torch's threads as they were."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TREEGRAFT_DATA", raising=False)
    monkeypatch.setenv("TREEGRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("gc.collect", lambda: 0)  # slow beside all that the tests hold, and no time is tested
    monkeypatch.setattr("harness.run.block_runner._WARM_UP_MOST", 1)
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    yield
    if threads is not None:
        torch.set_num_threads(threads)


@pytest.fixture
def treegraft(capsys):
    """Call the command line; return its exit code and what it wrote."""

    def call(*arguments):
        capsys.readouterr()
        code = invoke([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def refused(treegraft):
    """Call the command line with something unusable; return the one line that it must answer with."""

    def call(*arguments):
        result = treegraft(*arguments)
        assert result.code == 2, result
        assert result.err.startswith("treegraft: ")
        assert result.err.endswith("\n")
        assert len(result.err.split("\n")) == 2, result.err
        assert "Traceback" not in result.err
        assert result.out == ""
        return result.err

    return call


@pytest.fixture
def run(treegraft):
    """Run the toy pair on embedded questions, few tokens; flags given later win."""
    return lambda *flags: treegraft(*SMALL, *flags)


@pytest.fixture(scope="session")
def rows_of():
    """Return a run's rows, last attempts, in file order."""
    return lambda folder: last_attempts(read_rows(Path(folder)))


@pytest.fixture(scope="session")
def contents(rows_of):
    """Return what must not depend on when and how often a run was started: rows by key, times aside."""
    return lambda folder: {row.key: row.model_dump(exclude={*TIMES, "attempt", "start"}) for row in rows_of(folder)}


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory):
    """Run once a session; see `finished`."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    flags = ["--tasks", "nq,mt_bench", "--limit", "2", "--max-new-tokens", "12", "--out", str(folder)]
    assert invoke([*SMALL, *flags]) == 0
    return folder


@pytest.fixture
def finished(finished_once, tmp_path):
    """Return a copy of a finished run of three methods on nq and mt_bench, two questions each."""
    return shutil.copytree(finished_once, tmp_path / "finished")


@pytest.fixture
def small_files():
    """Let no file grow past a size, as on a full disk, inside a context."""

    @contextmanager
    def limit(size):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit


@pytest.fixture
def questions(tmp_path):
    """Write <task>/question.jsonl under a data folder; each question is its list of turns."""

    def write(task, *turns):
        file = tmp_path / "data" / task / "question.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"question_id": number, "turns": list(texts)}) for number, texts in enumerate(turns)]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file.parent.parent

    return write


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install a module whose objects are entry points of treegraft.methods, for one test."""
    from methods.method import METHODS

    before = dict(METHODS._objects)

    def install(source, **points):
        site = tmp_path / "site"
        info = site / "testing_plugin-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "testing_plugin.py").write_text(source, encoding="utf-8")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: testing-plugin\nVersion: 1.0\n")
        lines = [f"{name.replace('_', '-')} = testing_plugin:{target}" for name, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[treegraft.methods]", *lines, ""]))
        monkeypatch.syspath_prepend(site)
        catalogue.cache_clear()

    yield install
    sys.modules.pop("testing_plugin", None)
    for name in {*METHODS._objects} - {*before} - {*FAMILIES}:  # our own may have come in meanwhile, and stay
        del METHODS._objects[name]
    catalogue.cache_clear()
