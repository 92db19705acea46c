"""What only a process of its own shows: what it imports, and everything that reaches its standard error."""

import os
import subprocess
import sys

import pytest


def python(code, folder, **environment):
    """Run code in a new interpreter; return what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TREEGRAFT_CACHE": str(folder / "cache"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_help_listings_and_validation_import_no_torch(tmp_path):
    (tmp_path / "config.yaml").write_text("pair: toy\ndata: embedded\ntasks: [nq]\nbudget: 3\n")
    code = """
import sys
from harness.cli import invoke
good = ("--help", "run --help", "--version", "ls methods", "ls tasks --json", "ls pairs", "validate config.yaml")
bad = ("run --pair smolm2", "run --pair toy --data embedded --tasks nq --budget 0", "validate nowhere.yaml")
for arguments in good + bad:
    code = invoke(arguments.split())
    assert code == (2 if arguments in bad else 0), arguments
    heavy = {"torch", "transformers", "datasets", "pandas", "scipy"} & {*sys.modules}
    assert not heavy, (arguments, heavy)
"""
    python(code, tmp_path)


@pytest.mark.torch
def test_models_that_do_not_load_leave_one_line_on_standard_error(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd.gguf").write_bytes(b"GGUF" + b"\x03\0\0\0" + b"\xff" * 64)
    (tmp_path / "no.gguf").write_bytes(b"no")
    code = """
import sys
from harness.cli import invoke
for pair in ("nobody/no-such-model", "./empty", "odd.gguf", "no.gguf"):
    print(pair, file=sys.stderr, flush=True)
    assert invoke(["run", "--data", "embedded", "--tasks", "nq", "--pair", pair]) == 2
"""
    lines = [line for line in python(code, tmp_path).stderr.split("\n") if line]
    said = [line for line in lines if "de-quantising" not in line]
    assert len(said) == 8, lines
    for pair, line in zip(said[::2], said[1::2], strict=True):
        assert line.startswith("treegraft: ")
        assert pair.removeprefix("./") in line


@pytest.mark.torch
def test_the_installed_command_runs_and_says_nothing_on_standard_error(tmp_path):
    command = "run --pair toy --data embedded --tasks nq --limit 1 --max-new-tokens 4 --out out"
    code = f"import sys\nfrom harness.cli import main\nsys.argv = ['treegraft', *{command.split()!r}]\nmain()"
    done = python(code, tmp_path)
    assert done.stderr == ""
    assert done.stdout.startswith("out: 3 rows, 0 failed, 0 different")
