"""Installs the example package the way an installer does, without a network: its module and its metadata."""

import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from methods.catalog import FAMILIES, catalogue
from methods.method import METHODS

PACKAGE = Path(__file__).parent / "treegraft-backwards"


@pytest.fixture
def project():
    """Return what the package's pyproject.toml says."""
    return tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def install(project, tmp_path, monkeypatch):
    """Install the package into a folder of its own; its entry points may be given other names."""
    before = dict(METHODS._objects)
    (module,) = project["tool"]["setuptools"]["py-modules"]

    def put(names=None):
        site = tmp_path / "site"
        info = site / f"{module}-{project['project']['version']}.dist-info"
        info.mkdir(parents=True)
        shutil.copy(PACKAGE / f"{module}.py", site)
        about = project["project"]
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
        lines = []
        for group, points in about["entry-points"].items():
            lines.append(f"[{group}]")
            lines += [f"{(names or {}).get(name, name)} = {target}" for name, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
        monkeypatch.syspath_prepend(site)
        catalogue.cache_clear()
        return site

    yield put
    sys.modules.pop(module, None)
    for name in {*METHODS._objects} - {*before} - {*FAMILIES}:  # our own may have come in meanwhile, and stay
        del METHODS._objects[name]
    catalogue.cache_clear()


@pytest.fixture
def installed(install, tmp_path, monkeypatch):
    """Install the package and work in a folder of the test's own."""
    import torch

    install()
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    yield
    torch.set_num_threads(threads)
