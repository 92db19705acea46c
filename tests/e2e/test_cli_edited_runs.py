"""Runs whose files were edited, joined or put together: one line that names the file, never a traceback."""

import json

import pytest

from hardware_profiles.profile import write_profile

pytestmark = pytest.mark.torch


@pytest.fixture
def clock(profile, tmp_path):
    write_profile(profile, tmp_path / "plain.yaml")
    return f"profile:{tmp_path / 'plain.yaml'}"


@pytest.fixture
def edit(finished):
    """Edit the finished run's manifest, and its rows if asked; return the run."""

    def call(manifest=lambda content: None, rows=lambda row: None):
        file = finished / "manifest.json"
        content = json.loads(file.read_text())
        manifest(content)
        file.write_text(json.dumps(content))
        file = finished / "rows.jsonl"
        lines = [json.loads(line) for line in file.read_text().split("\n") if line]
        for line in lines:
            rows(line)
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return finished

    return call


def put(value, *path):
    def change(content):
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return change


MANIFESTS = {
    "a profile of another shape": (put({"unknown": 5}, "profile"), "not a manifest (profile."),
    "a name that is no text": (put({"a": 1}, "methods", 1, "name"), "not a manifest (methods.1.name: Input should"),
    "tokens beyond reason": (put(10**30, "config", "max_new_tokens"), "not a manifest (config.max_new_tokens: "),
    "fewer questions than none": (put(-5, "tasks", "nq", "n"), "not a manifest (tasks.nq.n: Input should be"),
    "a seed beyond reason": (put({"seed": 10**30}, "pair", "target", "toy"), "not a manifest (pair.target.toy"),
    "a key of another kind": (put("x", "config", "seed"), "not a manifest (config.seed: Input should be"),
    "a pair without a target": (lambda content: content["pair"].pop("target"), "not a manifest (pair.target: Field"),
    "a method without a name": (lambda content: content["methods"][1].pop("name"), "not a manifest (methods.1.name"),
    "a setting out of range": (put(0, "methods", 1, "settings", "steps"), "not a manifest (methods.1.settings.steps"),
}


@pytest.mark.parametrize(("change", "message"), MANIFESTS.values(), ids=MANIFESTS)
def test_an_edited_manifest_is_refused_by_key(refused, edit, clock, change, message):
    run, line = edit(change), f"manifest.json: {message}"

    assert line in refused("replay", run, "--clock", clock)
    assert line in refused("show", run, "nq/1", "--method", "all-small")


def test_the_gate_refuses_an_edited_method(refused, edit, clock):
    run = edit(put(0, "methods", 1, "settings", "steps"))

    assert "methods.1.settings.steps" in refused("compare", run, run, "--mode", "replay", "--clock", clock)


def renamed(field, value):
    return lambda row: row.update({field: value}) if row["method"] == "all-small" else None


def test_rows_of_a_method_that_the_manifest_does_not_know_are_refused(refused, edit, clock):
    run = edit(rows=renamed("method", "stranger"))

    for command in (["compare", run, run, "--mode", "replay"], ["replay", run]):
        assert "rows of method stranger" in refused(*command, "--clock", clock)


def test_text_of_questions_that_were_not_asked_is_not_drafted_along(refused, edit, clock):
    run = edit(rows=lambda row: row.update(question_id=99) if row["question_id"] == 1 else None)
    assert "no question mt_bench/99" in refused("replay", run, "--clock", clock, "--methods", "all-mid")

    run = edit(lambda content: content["tasks"].pop("mt_bench"))
    assert "mt_bench: its questions have changed" in refused("replay", run, "--clock", clock, "--methods", "all-mid")


def test_weights_that_the_pair_lacks_are_refused(refused, edit, clock):
    run = edit(put({"origin": "elsewhere"}, "weights", "reader"))

    assert "its reader had other weights (elsewhere)" in refused("show", run, "nq/1", "--method", "all-small")

    run = edit(put({}, "weights"))
    assert "its target had other weights" in refused("show", run, "nq/1", "--method", "all-small")


def test_a_prefill_by_a_look_up_drafter_is_refused(refused, edit, clock):
    run = edit(rows=lambda row: [forward.update(role="small") for forward in row["prefill"]])

    assert "look-up drafter has no prefill" in refused("replay", run, "--clock", clock)
