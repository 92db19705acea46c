import errno
import fcntl
import os
import shutil

import pytest

from harness.records.manifest import MANIFEST_FILE
from harness.records.rows import ROWS_FILE
from treegraft.cli.main import invoke

pytestmark = pytest.mark.torch

SAME = ["--tasks", "nq,mt_bench", "--limit", "2", "--max-new-tokens", "12"]


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("out", ["taken", "taken/below", "/proc/x", "/proc/version", "n" * 300])
def test_a_place_that_cannot_be_written_is_refused(refused, tmp_path, out):
    (tmp_path / "taken").write_text("a file of mine")
    line = refused("run", "--pair", "toy", "--data", "embedded", "--tasks", "nq", "--out", out)
    assert "--out" in line
    assert (tmp_path / "taken").read_text() == "a file of mine"


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(refused, tmp_path):
    for name in ("notes.txt", ROWS_FILE):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text("mine\n")
        assert MANIFEST_FILE in refused("run", "--pair", "toy", "--data", "embedded", "--out", folder)
        assert content(folder) == {name: b"mine\n"}


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        (["--seed", "1"], ["seed"]),
        (["--temperature", "1", "--top-k", "3"], ["temperature", "top_k"]),
        (["--limit", "1"], ["limit"]),
        (["--methods", "all-small"], ["methods"]),
        (["--budget", "3"], ["budget"]),
    ],
)
def test_a_folder_of_another_run_is_refused_by_what_differs(run, finished, flags, keys):
    before = content(finished)
    result = run(*SAME, *flags, "--out", finished)
    assert result.code == 2
    assert f"holds another run ({', '.join(keys)} differ)" in result.err
    assert content(finished) == before


def test_questions_that_changed_are_another_run(run, questions):
    flags = ["--tasks", "nq", "--out", "out", "--data", questions("nq", ["Who?"])]
    assert run(*flags).code == 0
    questions("nq", ["When?"])
    result = run(*flags)
    assert result.code == 2
    assert "tasks differ" in result.err


def test_a_finished_run_is_not_run_again(run, finished):
    before = content(finished)[ROWS_FILE]
    result = run(*SAME, "--threads", "2", "--out", finished)
    assert result.code == 0
    assert "24 rows, 0 failed, 0 different" in result.out
    assert content(finished)[ROWS_FILE] == before


def test_a_folder_that_another_run_writes_to_is_refused(run, finished):
    before = content(finished)
    with (finished / ROWS_FILE).open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        result = run(*SAME, "--out", finished)
    assert result.code == 2
    assert "another run is writing there" in result.err
    assert content(finished) == before


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b'{"schema_version": 2}'])
def test_a_broken_manifest_is_refused_and_the_rows_stay(run, refused, finished, manifest):
    (finished / MANIFEST_FILE).write_bytes(manifest)
    before = content(finished)
    result = run(*SAME, "--out", finished)
    assert result.code == 2
    assert MANIFEST_FILE in result.err
    assert content(finished) == before
    assert MANIFEST_FILE in refused("show", finished, "nq/1", "--method", "all-small")


def test_a_broken_row_in_the_middle_is_refused_by_its_line_and_the_rows_stay(run, refused, finished):
    rows = finished / ROWS_FILE
    lines = rows.read_bytes().split(b"\n")
    rows.write_bytes(b"\n".join([*lines[:2], lines[2][:-20], *lines[3:]]))
    before = content(finished)
    assert f"{ROWS_FILE}:3" in run(*SAME, "--out", finished).err
    assert f"{ROWS_FILE}:3" in refused("report", finished)
    assert content(finished) == before


@pytest.mark.parametrize("share", [0.6, 0.99])
def test_a_disk_that_fills_up_costs_no_earlier_row(run, finished, contents, small_files, share, tmp_path):
    size = (finished / ROWS_FILE).stat().st_size
    with small_files(int(size * share)):
        result = run(*SAME, "--out", "full")
    assert result.code == 2
    assert result.err.startswith("treegraft: full/rows.jsonl: cannot be written (")
    assert result.err.count("\n") == 1
    rows = (tmp_path / "full" / ROWS_FILE).read_bytes()
    assert len(rows) <= size * share
    assert rows.endswith(b"\n")
    assert run(*SAME, "--out", "full").code == 0
    assert (tmp_path / "full" / ROWS_FILE).read_bytes().startswith(rows)
    assert contents(tmp_path / "full") == contents(finished)


def test_a_disk_that_takes_half_a_block_keeps_none_of_it(run, monkeypatch, tmp_path):
    real, calls = os.write, []

    def write(handle, data):
        calls.append(len(data))
        if len(calls) == 3:
            return real(handle, data[:50])
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, data)

    monkeypatch.setattr(os, "write", write)
    result = run(*SAME, "--out", "full")
    monkeypatch.undo()
    assert result.code == 2
    assert "No space left on device" in result.err
    assert (tmp_path / "full" / ROWS_FILE).stat().st_size == sum(calls[:2])


def test_a_disk_without_room_for_the_manifest_leaves_no_folder(run, small_files, tmp_path):
    with small_files(100):
        result = run(*SAME, "--out", "full")
    assert result.code == 2
    assert "manifest.json: cannot be written" in result.err
    assert not (tmp_path / "full").exists()
    assert run("--tasks", "nq", "--limit", "1", "--out", "full").code == 0


def test_an_interrupted_run_says_so_and_can_be_continued(run, finished, contents, monkeypatch, tmp_path):
    from harness.records.store import Store

    real, calls = Store.append, []

    def append(store, rows):
        real(store, rows)
        calls.append(len(rows))
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "append", append)
    result = run(*SAME, "--out", "out")
    assert result.code == 130
    assert "treegraft: interrupted; the same command with --out continues the run" in result.err
    assert "Traceback" not in result.err
    monkeypatch.setattr(Store, "append", real)
    assert run(*SAME, "--out", "out").code == 0
    assert contents(tmp_path / "out") == contents(finished)


def test_what_a_run_leaves_that_is_killed_while_it_loads_can_be_continued(run, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / ROWS_FILE).touch()
    (folder / ".manifest.json.new").write_text('{"schema_ver')
    assert run("--tasks", "nq", "--limit", "1", "--out", folder).code == 0
    assert sorted(content(folder)) == [MANIFEST_FILE, ROWS_FILE]


def test_rows_whose_manifest_vanishes_during_the_run_are_kept(finished):
    from harness.records.store import Store

    with Store(finished):
        (finished / MANIFEST_FILE).unlink()
    assert (finished / ROWS_FILE).stat().st_size


@pytest.mark.parametrize("output", ["taken/report.md", ".", "/proc/x"])
def test_a_report_that_cannot_be_written_is_refused(refused, finished, tmp_path, output):
    (tmp_path / "taken").touch()
    assert "--output" in refused("report", finished, "--output", output)


@pytest.mark.parametrize("name", [ROWS_FILE, MANIFEST_FILE])
def test_a_report_does_not_take_the_place_of_the_run_that_it_is_of(refused, finished, name):
    before = content(finished)
    assert "a run's own file" in refused("report", finished, "--output", finished / name)
    assert content(finished) == before


def test_a_report_on_nothing_is_refused(refused, finished, tmp_path):
    assert "give the folder" in refused("report")
    assert "nowhere" in refused("report", "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no rows" in refused("report", "empty")
    shutil.copy(finished / MANIFEST_FILE, tmp_path / "empty")
    for torn in (b"", b'{"schema_ver', b"\n\n"):
        (tmp_path / "empty" / ROWS_FILE).write_bytes(torn)
        assert "no rows" in refused("report", "empty")


def test_main_exits_with_the_code_of_the_command(monkeypatch):
    from treegraft.cli import main as cli

    monkeypatch.setattr("sys.argv", ["treegraft", "ls", "tasks"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == invoke(["ls", "pairs"]) == 0
