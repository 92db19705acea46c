"""The public face costs nothing until it is used."""

import subprocess
import sys

import pytest

import treegraft


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_face_and_reading_rows_loads_no_torch():
    code = "import sys, treegraft; from treegraft import load_rows, Manifest, Settings, MethodFacts; "
    assert python(code + "print('torch' in sys.modules, 'transformers' in sys.modules)") == "False False"


def test_help_loads_no_torch():
    code = "import sys; from treegraft.cli.main import invoke; invoke(['run', '--help']); print('torch' in sys.modules)"
    assert python(code).endswith("False")


def test_a_name_that_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        treegraft.walk  # noqa: B018
    assert dir(treegraft) == treegraft.__all__


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "treegraft", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("treegraft, version ")
