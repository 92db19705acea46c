"""Runs from before manifests kept the facts of their methods: everything that reads them still does."""

import json
import shutil

import pytest

from hardware_profiles.profile import write_profile
from harness.records.manifest import read_manifest

pytestmark = pytest.mark.torch

FLAGS = ["--tasks", "nq,mt_bench", "--limit", "2", "--methods", "all-small,all-mid,always-early"]


@pytest.fixture
def clock(profile, tmp_path):
    write_profile(profile, tmp_path / "plain.yaml")
    return f"profile:{tmp_path / 'plain.yaml'}"


def aged(run):
    """Return a copy of a run's folder whose manifest has no traits."""
    older = shutil.copytree(run, run.with_name(f"{run.name}-older"))
    file = older / "manifest.json"
    content = json.loads(file.read_text())
    assert content.pop("traits")
    file.write_text(json.dumps(content))
    return older


@pytest.fixture
def both(run, tmp_path):
    """A run of methods with and without a middle drafter, one of which weighs times; and the same of old."""
    assert run(*FLAGS, "--latency", "40,10", "--out", "new").code == 0
    return tmp_path / "new", aged(tmp_path / "new")


def test_an_older_run_is_replayed_as_a_new_one_is(treegraft, both, contents, clock):
    for out, folder in zip(("one", "other"), both, strict=True):
        assert treegraft("replay", folder, "--clock", clock, "--out", out).code == 0

    assert contents("one") == contents("other")
    manifests = [read_manifest(both[0].with_name(out)) for out in ("one", "other")]
    assert manifests[0].traits == manifests[1].traits
    assert manifests[0].traits["always-early"].weighs_times


def test_an_older_run_is_reported_and_shown_as_a_new_one_is(treegraft, both):
    for command in (["report", "{}", "--format", "json"], ["show", "{}", "nq/1", "--method", "all-mid"]):
        new, older = (treegraft(*(part.format(folder) for part in command)) for folder in both)
        assert (new.code, new.out) == (older.code, older.out)
        assert new.code == 0


def test_an_older_run_is_compared_as_a_new_one_is(treegraft, both, clock):
    modes = ["--mode", "replay", "--clock", clock, "--format", "json"]
    new, mixed = treegraft("compare", both[0], both[0], *modes), treegraft("compare", *both, *modes)

    assert (mixed.code, mixed.out) == (new.code, new.out)
    told = json.loads(mixed.out)
    assert {line["method"] for line in told["lines"]} == {"all-small", "all-mid"}
    assert told["left_out"] == [
        "method always-early: decides by its machine's times; replay both runs first, with --out"
    ]


def test_an_older_run_goes_on(run, both, rows_of):
    _, older = both
    assert run(*FLAGS, "--latency", "40,10", "--out", older).code == 0

    assert len(rows_of(older)) == (2 + 2 * 2) * 4
    assert len(read_manifest(older).starts) == 2
