import pytest

from harness.config.run_config import RunConfig
from harness.records.manifest import read_manifest
from harness.records.rows import last_attempts, read_rows

SAMPLE = {
    "pair": "toy",
    "tasks": ["nq", "gsm8k"],
    "methods": ["autoregressive", "all-small"],
    "limit": 1,
    "max_new_tokens": 5,
    "data": "embedded",
    "split": "eval",
    "out": "out",
    "seed": 7,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "repetition_penalty": 1.2,
    "stop": ["END, now", "\n\n"],
    "template_date": "2025-03-01",
    "dtype": "fp32",
    "repeats": 2,
    "steps": 3,
    "width": 4,
    "budget": 6,
    "threads": 1,
    "device": "cpu",
    "engine": "hf",
    "follow": "reference",
    "clock": "wall",
    "latency": [69.4, 44.2],
    "trust_remote_code": True,
}


def as_flags(values):
    flags = []
    for key, value in values.items():
        name = f"--{key.replace('_', '-')}"
        if value is True:
            flags.append(name)
        elif key == "stop":
            flags += [part for text in value for part in (name, text)]
        else:
            flags += [name, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return flags


def test_every_key_has_a_flag_and_the_help_says_what_it_means(treegraft):
    text = " ".join(treegraft("run", "--help").out.split())
    assert {*SAMPLE} == {*RunConfig.model_fields}
    for name, field in RunConfig.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert field.description.split(";")[0][:40] in text
    assert "[default: 128]" in text


@pytest.mark.torch
def test_every_flag_and_its_key_have_the_same_effect(treegraft, tmp_path):
    import yaml

    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**SAMPLE, "out": "by-key"}))
    assert treegraft("run", "config.yaml").code == 0
    assert treegraft("run", *as_flags({**SAMPLE, "out": "by-flag"})).code == 0
    by_key, by_flag = read_manifest(tmp_path / "by-key"), read_manifest(tmp_path / "by-flag")
    assert by_key.config.model_dump(mode="json") == {**SAMPLE, "out": "by-key"}
    assert by_flag.config.model_dump(mode="json") == {**SAMPLE, "out": "by-flag"}
    assert by_key.identity() == by_flag.identity()
    assert by_key.methods[1].settings.model_dump().items() >= {"steps": 3, "width": 4, "budget": 6}.items()
    rows = [{row.key: row.token_ids for row in read_rows(tmp_path / name)} for name in ("by-key", "by-flag")]
    assert rows[0] == rows[1]


@pytest.mark.torch
def test_a_flag_wins_over_the_configuration_which_wins_over_the_environment(
    treegraft, questions, tmp_path, monkeypatch
):
    questions("nq", ["From the folder?"])
    monkeypatch.setenv("TREEGRAFT_DATA", str(tmp_path / "data"))
    bare = "pair: toy\ntasks: [nq]\nlimit: 1\nmax_new_tokens: 2\nthreads: 1\nmethods: [all-small]\nseed: 3\n"
    (tmp_path / "bare.yaml").write_text(bare)
    (tmp_path / "full.yaml").write_text(f"{bare}data: embedded\n")
    cases = {"environment": ["bare.yaml"], "key": ["full.yaml", "--seed", "0"], "flag": ["full.yaml", "--data", "data"]}
    for out, flags in cases.items():
        assert treegraft("run", *flags, "--out", out).code == 0
    found = {out: read_manifest(tmp_path / out) for out in cases}
    assert {out: manifest.tasks["nq"].source for out, manifest in found.items()} == {
        "environment": "data",
        "key": "embedded",
        "flag": "data",
    }
    assert {out: manifest.config.seed for out, manifest in found.items()} == {"environment": 3, "key": 0, "flag": 3}


@pytest.mark.torch
def test_methods_that_a_configuration_defines_run_under_their_own_names(treegraft, tmp_path):
    (tmp_path / "config.yaml").write_text(
        "pair: toy\ndata: embedded\ntasks: [nq]\nlimit: 1\nmax_new_tokens: 6\nthreads: 1\nsteps: 2\n"
        "methods:\n- all-small\n- {name: narrow, base: all-small, budget: 2, width: 1}\n"
        "- {name: deep, base: all-small, steps: 4, exhaustion: release}\n"
    )
    assert treegraft("run", "config.yaml", "--out", "out", "--width", "3").code == 0
    specs = {spec.name: spec.settings for spec in read_manifest(tmp_path / "out").methods}
    assert list(specs) == ["autoregressive", "all-small", "narrow", "deep"]
    assert {name: (spec.steps, spec.width, spec.budget) for name, spec in specs.items()} == {
        "autoregressive": (2, 3, 15),
        "all-small": (2, 3, 15),
        "narrow": (2, 3, 2),  # the flag wins over its own width
        "deep": (4, 3, 15),  # its own steps win over the top level
    }
    rows = last_attempts(read_rows(tmp_path / "out"))
    assert {row.method: row.verdict for row in rows} == {
        "autoregressive": "reference",
        "all-small": "identical",
        "narrow": "identical",
        "deep": "identical",
    }
    assert len({row.key for row in rows}) == 4
    drafted = {row.method: max(part.drafted for part in row.rounds) for row in rows}
    assert drafted["narrow"] <= 2
