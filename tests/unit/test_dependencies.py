"""Dependencies stand twice: ranges for users, and exact versions that were tested together."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    return [Requirement(line) for line in (*project["dependencies"], *extras)]


def pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split("\n")
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}


def test_every_range_holds_the_version_that_was_tested():
    versions = pinned()
    assert [one.name for one in required() if canonicalize_name(one.name) not in versions] == []
    assert [str(one) for one in required() if not one.specifier.contains(versions[canonicalize_name(one.name)])] == []


def test_libraries_whose_caches_and_masks_we_rely_on_have_an_end_to_their_range():
    """Their internals change between minor versions: a cache's crop, the name of its argument, how masks are taken."""
    ranges = {one.name: one.specifier for one in required()}
    assert [name for name in ("torch", "transformers") if ranges[name].contains("99")] == []
