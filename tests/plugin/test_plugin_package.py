import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.records.rows import last_attempts, load_rows, read_rows
from treegraft.cli.main import invoke

pytestmark = pytest.mark.torch

MODULE = Path(__file__).parent / "treegraft-backwards" / "treegraft_backwards.py"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    import torch

    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    yield
    torch.set_num_threads(threads)


def run(*flags):
    small = ["--pair", "toy", "--data", "embedded", "--threads", "1", "--max-new-tokens", "8"]
    return invoke(["run", *small, "--tasks", "nq,mt_bench", "--limit", "2", "--out", "out", *flags])


def test_the_package_relies_on_the_public_face_alone():
    tree = ast.parse(MODULE.read_text(encoding="utf-8"))
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    ours = [module for module in modules if module.partition(".")[0] not in sys.stdlib_module_names]
    assert ours == ["treegraft"]


def test_the_method_is_listed_beside_ours(install, capsys):
    install()
    assert invoke(["ls", "methods", "--json"]) == 0
    (line,) = (line for line in json.loads(capsys.readouterr().out) if line["name"] == "backwards")
    assert line["about"] == "plug-in treegraft_backwards:Backwards"
    assert invoke(["run", "--pair", "toy", "--methods", "backward"]) == 2
    assert "did you mean backwards?" in capsys.readouterr().err


def test_without_the_package_the_name_is_unknown(capsys):
    assert invoke(["run", "--pair", "toy", "--methods", "backwards"]) == 2
    assert "unknown method 'backwards'" in capsys.readouterr().err


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_a_run_uses_the_method_and_its_rows_are_certified_identical(install, capsys, temperature):
    install()
    assert run("--methods", "backwards", "--temperature", temperature) == 0
    rows = load_rows("out")
    mine = rows[rows["method"] == "backwards"]
    assert len(mine) == 6
    assert set(mine["verdict"]) == {"identical"}
    assert all(part.drafted <= 5 for rounds in mine["rounds"] for part in rounds)
    assert max(part.drafted for rounds in mine["rounds"] for part in rounds) == 5
    assert invoke(["report", "out"]) == 0
    assert "backwards" in capsys.readouterr().out


def test_a_configuration_can_define_a_method_on_it_with_options_of_its_own(install, tmp_path, capsys):
    install()
    (tmp_path / "config.yaml").write_text("methods: [{name: two, base: backwards, options: {length: 2}}]\n")
    assert run(str(tmp_path / "config.yaml")) == 0
    rows = [row for row in last_attempts(read_rows(tmp_path / "out")) if row.method == "two"]
    assert max(part.drafted for row in rows for part in row.rounds) == 2
    assert invoke(["show", "out", "nq/1", "--method", "two", "--round", "0"]) == 0
    assert "2 drafted" in capsys.readouterr().out


@pytest.mark.parametrize("taken", ["all-small", "autoregressive"])
def test_a_name_that_the_catalogue_has_is_an_error_of_one_line(install, capsys, taken):
    install({"backwards": taken})
    assert invoke(["ls", "methods"]) == 2
    claim = f"treegraft: plug-in treegraft_backwards:Backwards claims the method name '{taken}'"
    assert capsys.readouterr().err == f"{claim}: uninstall or rename it\n"


def test_a_process_of_its_own_finds_the_package_too(install):
    site = install()
    code = "from treegraft.cli.main import invoke; import sys; sys.exit(invoke(['ls', 'methods']))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "backwards" in done.stdout
