"""Synthetic rows: the few fields that a report reads are arguments, the rest follow from them."""

import json

import numpy as np
import pytest

from harness.records.schema import Row
from methods.core.generation import Round, Spans


def _row(method, question_id=1, decode_s=1.0, committed=10, **changes):
    defaults = {"clock": "wall", "pair": "toy", "task": "mini", "turn": 0, "repeat": 0, "seed": 0}
    place = {name: changes.get(name, default) for name, default in defaults.items()}
    baseline = method == "autoregressive"
    accepted = changes.pop("accepted", [0] * committed if baseline else [max(0, committed - 1)])
    peer = changes.pop("peer", False)
    content = {
        **place,
        "key": "/".join(map(str, (*place.values(), question_id, method))),
        "attempt": 1,
        "question_id": question_id,
        "method": method,
        "status": "ok",
        "verdict": "reference" if baseline else "identical",
        "prompt_tokens": 5,
        "token_ids": list(range(committed)),
        "committed": committed,
        "finish": "length",
        "rounds": None if peer else [Round(None, max(4, number), number, []) for number in accepted],
        "prefill_tokens": 1 if peer else 0,
        "decode_forwards": committed - 1 if peer else None,
        "prefill_s": 0.5,
        "decode_s": decode_s,
        "e2e_s": decode_s + 0.5,
        "spans": None if peer else Spans(0.1 * decode_s, 0.2 * decode_s, 0.0, 0.6 * decode_s, 0.1 * decode_s),
    }
    return Row(**{**content, **changes})


@pytest.fixture
def row():
    """Build a row of a method on a question."""
    return _row


@pytest.fixture
def failed():
    """Build a failed row."""

    def build(method, question_id=1, **changes):
        nothing = dict.fromkeys(("verdict", "finish", "rounds", "spans", "prefill_s", "decode_s", "e2e_s"))
        empty = {"status": "failed", "error": "out of memory", "committed": 0, "token_ids": [], **nothing}
        return _row(method, question_id, **changes).model_copy(update=empty)

    return build


@pytest.fixture
def run_folder(tmp_path):
    """Write rows, and a manifest where given, into the folder of a run."""

    def write(rows, manifest=None, tail=""):
        lines = "".join(row.model_dump_json() + "\n" for row in rows)
        (tmp_path / "rows.jsonl").write_text(lines + tail, encoding="utf-8")
        if manifest is not None:
            (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return tmp_path

    return write


FAMILIES = {"autoregressive": "autoregressive", "tree": "treegraft", "chain": "treegraft"}
"""By method of the simulated runs, whose code it runs."""


def _manifest(**changes):
    """A manifest as a run writes it; keys of its parts that differ are arguments."""
    config = {"pair": "toy", "max_new_tokens": 10, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0}
    config |= {"repetition_penalty": 1.0, "stop": [], "device": "cpu", "dtype": None, "methods": list(FAMILIES)}
    pair = {"name": "toy", "target": {"toy": {"seed": 0}}, "performance": True, "dtype": "fp32"}
    machine = {"system": "Linux x86_64", "cpu": "a processor", "cores": 2, "memory_gib": 8.0, "threads": 2}
    start = {"at": "2000-01-01T00:00:00", "command": [], "git": {"commit": "a" * 40, "dirty": False}}
    settings = {"budget": 15, "steps": 5, **changes.get("settings", {})}
    data = {"source": "data", "origin": "x", "split": "eval", "sha256": "d" * 64, **changes.get("data", {})}
    return {
        "schema_version": 1,
        "config": {**config, **changes.get("config", {})},
        "pair": {**pair, **changes.get("pair", {})},
        "weights": {"target": {"origin": "toy", "sha256": changes.get("weights", "e" * 64)}},
        "engines": {"target": "hf", **changes.get("engines", {})},
        "methods": [{"name": name, "family": family, "settings": settings} for name, family in FAMILIES.items()],
        "tasks": {task: {**data, "n": 20} for task in changes.get("tasks", "abcdef")},
        "starts": [{**start, "versions": {"torch": "2"}, "machine": {**machine, **changes.get("machine", {})}}],
        "profile": changes.get("profile"),
    }


@pytest.fixture
def manifest():
    """Build a manifest."""
    return _manifest


def simulated_times(rng, tasks, prompts, methods, noise=0.05, prompt_seed=0):
    """Return decode seconds by (task, question, method), with the noise of real runs.

    Prompts differ; the session has a pace of its own, which drifts from block to block; each row's noise is
    log-normal, and one row in thirty is disturbed, by up to 65%. `methods` maps names to their true speedup.
    """
    pace = rng.normal(0.0, 0.1)
    times = {}
    for task in tasks:
        for question in range(prompts):
            hard = np.random.default_rng([prompt_seed, ord(task), question])  # a prompt is the same in every session
            base, gains = np.exp(hard.normal(0.0, 0.2)), hard.normal(0.0, 0.25, len(methods))
            pace += rng.normal(0.0, 0.01)
            for (method, speedup), gain in zip(methods.items(), gains, strict=True):
                own = 0.0 if method == "autoregressive" else gain
                disturbed = rng.uniform(0.0, 0.5) * (rng.random() < 1 / 30)
                times[task, question, method] = base / speedup * np.exp(own + pace + rng.normal(0.0, noise) + disturbed)
    return times


@pytest.fixture
def session(tmp_path, row):
    """Write a simulated run; `slower` lengthens the tree method's time by a share; return its folder."""

    def run(name, seed, *, slower=0.0, tasks="abcdef", prompts=20, noise=0.05, clock="wall", **changes):
        speedups = {"autoregressive": 1.0, "chain": 1.2, "tree": 1.5 / (1.0 + slower)}
        times = simulated_times(np.random.default_rng(seed), tasks, prompts, speedups, noise)
        rows = [
            row(method, question, seconds, task=task, clock=clock)
            for (task, question, method), seconds in times.items()
        ]
        return write_run(tmp_path / name, rows, _manifest(tasks=tasks, **changes))

    return run


def write_run(folder, rows, manifest):
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(one.model_dump_json() + "\n" for one in rows), encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture
def written(tmp_path):
    """Write a run of given rows; return its folder."""
    return lambda name, rows, manifest=None: write_run(tmp_path / name, rows, manifest or _manifest())


@pytest.fixture
def times():
    """Simulate the times of a run; see `simulated_times`."""
    return simulated_times
