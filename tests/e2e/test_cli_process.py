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
from treegraft.cli.main import invoke
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
def test_a_run_leaves_one_line_on_standard_error_where_its_models_do_not_load_and_else_none(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd.gguf").write_bytes(b"GGUF" + b"\x03\0\0\0" + b"\xff" * 64)
    (tmp_path / "no.gguf").write_bytes(b"no")
    code = """
import sys
from treegraft.cli.main import main
for pair in ("nobody/no-such-model", "./empty", "odd.gguf", "no.gguf", "toy"):
    print(f"@@ {pair}", file=sys.stderr, flush=True)
    flags = f"--data embedded --tasks nq --limit 1 --max-new-tokens 4 --out out --pair {pair}"
    sys.argv = ["treegraft", "run", *flags.split()]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == (0 if pair == "toy" else 2)
"""
    done = python(code, tmp_path)
    assert done.stdout == "out: 4 rows, 0 failed, 0 different; see it with: treegraft report out\n"
    first, *bad, good = done.stderr.split("@@ ")
    assert (first, good) == ("", "toy\n")
    for text in bad:
        pair, *lines, last, end = text.split("\n")
        assert last.startswith("treegraft: ")
        assert pair.removeprefix("./") in last
        assert end == ""
        assert all("de-quantising" in line for line in lines)
