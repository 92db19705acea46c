"""Entry points without a package."""

import pytest

from foundation import registry


class Point:
    """An entry point whose loading is a function."""

    def __init__(self, name, load, value="package:thing"):
        self.name, self.load, self.value = name, load, value


@pytest.fixture
def point():
    return Point


@pytest.fixture
def points(monkeypatch):
    """Install entry points that registries see."""

    def install(*points):
        monkeypatch.setattr(registry, "entry_points", lambda group: points)

    return install
