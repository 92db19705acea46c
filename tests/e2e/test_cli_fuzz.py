"""Configurations, rows and manifests with one to three mutations: whatever they hold, no traceback and no false number.

Configurations are generated from their schemas; rows and manifests are those of a run of the toy pair.
"""

import copy
import io
import json
import math
import shutil
import traceback
from collections import defaultdict
from contextlib import redirect_stderr, redirect_stdout

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.config.run_config import config_schema
from harness.records.manifest import MANIFEST_FILE, Manifest
from harness.records.rows import ROWS_FILE, read_rows
from harness.records.schema import DECODING_KEYS, Row
from methods.schedulers.scheduler import UNCHANGING
from methods.settings import DRAFTING_KEYS, Settings
from treegraft.cli.main import invoke

pytestmark = pytest.mark.torch

NAMES = [
    "autoregressive",
    "all-small",
    "all-mid",
    "treegraft-fixed",
    "always-early",
    "csd",
    "prompt-lookup",
    "assisted",
]
WORDS = ["a", "out", "Ünïcödé", "two words", "toy", "0", "nq"]
WEIRD = [
    "\u202e<script>alert(1)</script>|`*_#",
    "=cmd()\t,\"'",
    "line\nbreak\r\u2028",
    "\x00\x1b[31m",
    "half a pair \ud800",
    "é" * 300,
    "",
    " ",
]
DEEP = json.loads("[" * 300 + "]" * 300)
HUGE = [10**30, -(10**30), 2**63, 2**31, 1e308, -1e308, 10**400]
LARGEST_TREE = 2**16  # nodes; ours stay under a thousand
NUMBERS = [math.nan, math.inf, -math.inf, -1, -0.0, 0.5, 1e-300]
FORMATS = st.sampled_from(["table", "markdown", "latex", "csv"])


def of_schema(schema, definitions):
    """Return a strategy of the values that a JSON schema allows, none of them extreme."""
    if "$ref" in schema:
        return of_schema(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return st.one_of(*(of_schema(one, definitions) for one in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    low, high = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum", 30)
    kinds = {
        "boolean": st.booleans(),
        "integer": st.integers(low, max(low, high)),
        "null": st.none(),
        "number": st.floats(low, max(low, high), exclude_min="exclusiveMinimum" in schema),
        "string": st.sampled_from(WORDS),
    }
    if schema.get("format") == "date":
        return st.dates().map(str)
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return st.tuples(*(of_schema(one, definitions) for one in schema["prefixItems"])).map(list)
        items = of_schema(schema.get("items", {}), definitions)
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=3)
    if schema.get("type") == "object":
        return st.fixed_dictionaries({}, optional=_properties(schema, definitions))
    return kinds.get(schema.get("type"), st.sampled_from([*WORDS, 1, None, True]))


def _properties(schema, definitions):
    return {key: of_schema(one, definitions) for key, one in schema.get("properties", {}).items()}


def configurations():
    """Return a strategy of configuration files of the toy pair, most of which can be run."""
    schema = config_schema()
    keys = _properties(schema, schema["$defs"])
    assert {*DECODING_KEYS} < {*keys}
    method = _methods(_properties(Settings.model_json_schema(), schema["$defs"]))
    known = {
        "pair": st.just("toy"),
        "tasks": st.lists(st.sampled_from(["nq", "mt_bench", "gsm8k"]), min_size=1, max_size=2, unique=True),
        "methods": st.lists(
            method, min_size=1, max_size=3, unique_by=lambda one: one if isinstance(one, str) else one["name"]
        ),
        "data": st.just("embedded"),
        "clock": st.just("wall"),
        "device": st.just("cpu"),
        "split": st.just("eval"),
        "latency": st.none() | st.lists(st.floats(0.1, 100), min_size=2, max_size=2),
    }
    return st.fixed_dictionaries(known, optional={key: value for key, value in keys.items() if key not in known})


def _methods(parameters):
    """Return a strategy of methods: names, and definitions with some of the drafting parameters."""
    drafting = {key: parameters[key] for key in DRAFTING_KEYS if key != "steps"}  # a schedule has as many
    named = {"name": st.sampled_from(["mine", "yours", "Ünïcödé"])}
    grafted = {**named, "base": st.just("treegraft-fixed"), "scheduler": st.sampled_from(UNCHANGING)}
    plain = {**named, "base": st.sampled_from(NAMES)}
    return st.sampled_from(NAMES) | st.fixed_dictionaries(plain) | st.fixed_dictionaries(grafted, optional=drafting)


def numbers(value, path=()):
    """Yield the path to every number inside a value."""
    if isinstance(value, int | float):
        yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from numbers(part, (*path, key))


@st.composite
def places(draw, document):
    """A path to a value inside a document: to any number, or from the top down to anything.

    Either way, what stands in a long list is drawn no more often than what stands in a key of its own.
    """
    by_kind = defaultdict(list)
    for path in numbers(document) if draw(st.booleans()) else ():
        by_kind[tuple(key for key in path if isinstance(key, str))].append(path)
    if by_kind:
        return draw(st.sampled_from(draw(st.sampled_from([*by_kind.values()]))))
    path, value = [], document
    while isinstance(value, dict | list) and value and not (path and draw(st.integers(0, 7)) == 0):
        path.append(draw(st.sampled_from([*value] if isinstance(value, dict) else range(len(value)))))
        value = value[path[-1]]
    return path


def inside(value, path):
    for key in path:
        value = value[key]
    return value


def keys_of(*models):
    """Return the names of all fields of some models, and of what they hold."""
    schemas = [model.model_json_schema() for model in models]
    parts = [part for schema in schemas for part in (schema, *schema.get("$defs", {}).values())]
    return sorted({key for part in parts for key in part.get("properties", {})} | {"unknown"})


KEYS = keys_of(Manifest, Row, Settings)


@st.composite
def replacements(draw, old, another):
    """What takes a value's place: one that is wrong in some way, or `another`'s."""
    key = draw(st.sampled_from(KEYS))
    is_number = isinstance(old, int | float) and abs(old) < 1e300
    choices = {
        "near": [old + 1, old - 1, -old, old * 10, old / 2, float(old)] if is_number else [None],
        "huge": [*HUGE, "x" * 5000, [None if isinstance(old, dict | list) else old] * 500],
        "number": NUMBERS,
        "retyped": [str(old), [old], {key: old}, None, True, False, 0, "", [], {}],
        "unicode": WEIRD,
        "nested": [[[old]], {key: {"b": [old]}}, [[]] * 3, DEEP],
        "another's": [another],
    }
    kinds = ["near", "near", "near", "huge", "number", "retyped"] if is_number else [*choices][1:]
    return copy.deepcopy(draw(st.sampled_from(choices[draw(st.sampled_from(kinds))])))


@st.composite
def mutated(draw, recall):
    """A copy of what `recall` returns with one to three mutations: dropped, added, renamed, replaced."""
    document = copy.deepcopy(recall())
    for _ in range(draw(st.integers(1, 3))):
        if not document:
            break
        *above, key = draw(places(document))
        parent, another = inside(document, above), inside(document, draw(places(document)))
        kind = draw(st.sampled_from(["drop", "add", "rename", *["replace"] * 9]))
        if kind == "drop":
            del parent[key]
        elif kind == "add" and isinstance(parent, dict):
            parent[draw(st.sampled_from(KEYS))] = draw(replacements(parent[key], another))
        elif kind == "rename" and isinstance(parent, dict):
            parent[draw(st.sampled_from([*KEYS, *WEIRD]))] = parent.pop(key)
        else:
            parent[key] = draw(replacements(parent[key], another))
    return document


def call(*arguments):
    """Call the command line as a process would, with streams of bytes; return exit code, output, error."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        try:
            code = invoke([str(argument) for argument in arguments])
        except Exception:  # noqa: BLE001 - what a user would see as a traceback
            code = traceback.format_exc()
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return code, *texts


def checked(*arguments, allowed=(0,)):
    """Call the command line; it must exit as its command may, or with 2 and one line; return its output, if any."""
    code, out, err = call(*arguments)
    assert code in (*allowed, 2), f"{' '.join(map(str, arguments))}: {code}"
    if code == 2:
        assert err.startswith("treegraft: "), err
        assert err.count("\n") == 1, err
        assert len(err) < 1100, err
        assert out == "" or arguments[0] == "show", out  # it draws round by round
        return None
    return out


def contradicts_itself(row, baseline):
    """Return whether an answered row says what no run can, by rules of its own; `baseline` is its block's, if any."""
    tokens, times = row["token_ids"], [row["prefill_s"], row["decode_s"], row["e2e_s"]]
    if row["committed"] != len(tokens) or not 0 <= row["prefill_tokens"] < max(1, len(tokens)):
        return True
    if None in times or min(times) < 0 or not math.isclose(times[0] + times[1], times[2], rel_tol=1e-5):
        return True
    if row["verdict"] == "identical" and baseline is not None and tokens != baseline["token_ids"]:
        return True
    if row["spans"] and not math.isclose(sum(row["spans"].values()), row["decode_s"], rel_tol=0.021):
        return True
    if row["rounds"] is None:
        return not 1 <= row["decode_forwards"] <= len(tokens) - row["prefill_tokens"]
    return _rounds_contradict(row, row["rounds"])


def _rounds_contradict(row, rounds):
    bonus = len(row["token_ids"]) - row["prefill_tokens"] - sum(one["accepted"] for one in rounds)
    if bonus not in (len(rounds), len(rounds) - 1):
        return True
    most = (row["prompt_tokens"] or 0) + len(row["token_ids"]) + LARGEST_TREE
    for one in rounds:
        if not 0 <= (one["by_middle"] or 0) <= one["accepted"] <= one["drafted"] <= LARGEST_TREE:
            return True
        forwards = one["forwards"]
        if not all(0 <= forward[size] <= most for forward in forwards for size in ("tokens", "context")):
            return True
        if forwards and [one["drafted"] + 1] != [each["tokens"] for each in forwards if each["role"] == "target"]:
            return True
    edges = [one for bins in (row["edges"] or {}).values() for one in bins]
    return any(not 0 <= accepted <= count <= LARGEST_TREE * len(rounds) for count, _, accepted in edges)


def most_compared(rows):
    """Return by method and task the most prompts that may be compared: all of whose turns some row answers soundly."""
    baselines = {_block(row): row for row in rows if row["method"] == "autoregressive" and row["status"] == "ok"}
    turns, sound = defaultdict(set), defaultdict(set)
    for row in rows:
        prompt = row["task"], row["question_id"]
        turns[prompt].add(row["turn"])
        if row["status"] == "ok" and not contradicts_itself(row, baselines.get(_block(row))):
            sound[row["method"], *prompt].add(row["turn"])
    most = defaultdict(int)
    for (method, *prompt), answered in sound.items():
        most[method, prompt[0]] += answered == turns[tuple(prompt)]
    return most


def _block(row):
    return tuple(row[key] for key in ("pair", "clock", "seed", "repeat", "task", "question_id", "turn"))


def check_report(text, run):
    """Every number of a report is possible, and none comes from a row that contradicts itself."""
    report = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} in a report"))
    most = most_compared([row.model_dump() for row in read_rows(run)])
    for line in report["lines"]:
        values = {key: value for key, value in line.items() if isinstance(value, int | float)}
        shares = [value for key, value in values.items() if key.endswith("_pct")]
        assert all(-1e-9 <= share <= 100 + 1e-9 for share in shares), line
        assert all(value > 0 for key, value in values.items() if key in ("speedup", "total_ratio", "e2e_ratio")), line
        assert all(0 <= value <= 1 for key, value in values.items() if key in ("p", "p_holm", "p_bh")), line
        assert all(0 <= rate <= 1 for rate in line["call_rates"] or ()), line
        assert (line["tokens_per_round"] or 1) >= 0.5, line
        assert 0 <= values.get("calls_per_round", 0) <= 32, line
        assert 0 <= values.get("tokens_per_call", 0) <= 10_000, line
        task = line["task"].partition(" (")[0]
        if task != "overall":
            assert line["n"] <= most[line["method"], task], line
    for section in report["reliability"]:
        for edges, believed, accepted in section["bins"]:
            assert 0 <= accepted <= edges, section
            assert 0 <= believed <= edges + 1e-3, section


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of methods with and without rounds and a middle drafter: its folder, rows and manifest."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    flags = ["--pair", "toy", "--data", "embedded", "--tasks", "nq,mt_bench", "--limit", "1", "--threads", "1"]
    methods = ["--methods", "all-small,treegraft-fixed,prompt-lookup", "--max-new-tokens", "8", "--latency", "40,10"]
    assert invoke(["run", *flags, *methods, "--out", str(folder)]) == 0
    rows = [json.loads(line) for line in (folder / ROWS_FILE).read_bytes().split(b"\n")[:-1]]
    assert not any(contradicts_itself(row, None) for row in rows)
    return folder, rows, json.loads((folder / MANIFEST_FILE).read_text())


def fuzz(examples, strategy, check):
    """Check so many examples; return how many there were."""
    count = 0

    @settings(max_examples=examples, derandomize=True, suppress_health_check=[*HealthCheck], database=None)
    @given(strategy)
    def each(case):
        nonlocal count
        count += 1
        check(*case)

    each()
    print(f"{count} cases")  # noqa: T201 - `-rP` shows it


EXAMPLES = pytest.mark.parametrize("share", [1, pytest.param(100, marks=pytest.mark.slow)])


@EXAMPLES
def test_a_mutated_configuration_is_good_or_refused_in_one_line(share, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.run.dry_run.one_token_seconds", lambda plan: 0.01)  # loads the pair
    file = tmp_path / "fuzzed.yaml"

    def check(configuration):
        file.write_text(yaml.safe_dump(configuration, allow_unicode=False), encoding="utf-8")
        good = checked("validate", file)
        dry = checked("run", file, "--dry-run")
        assert (good is None) == (dry is None)

    fuzz(80 * share, st.tuples(configurations().flatmap(lambda one: mutated(lambda: one))), check)


@pytest.mark.parametrize("share", [1, pytest.param(200, marks=pytest.mark.slow)])
def test_a_configuration_that_is_called_good_runs(share, tmp_path):
    file, out = tmp_path / "fuzzed.yaml", tmp_path / "out"
    few = ["--tasks", "nq", "--limit", "1", "--max-new-tokens", "3", "--repeats", "1", "--threads", "1", "--out", out]

    def check(configuration):
        file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
        if checked("validate", file) is not None:
            assert ", 0 failed, 0 different" in (checked("run", file, *few) or "")
            shutil.rmtree(out)

    fuzz(5 * share, st.tuples(configurations().flatmap(lambda one: st.just(one) | mutated(lambda: one))), check)


@EXAMPLES
def test_mutated_rows_give_no_traceback_and_no_number_that_contradicts_itself(share, recorded, tmp_path):
    folder, rows, _ = recorded
    run = shutil.copytree(folder, tmp_path / "run")

    def check(changed, kind, is_base):
        lines = [json.dumps(row) for row in changed]
        (run / ROWS_FILE).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        report = checked("report", run, "--format", "json")
        if report is not None:
            check_report(report, run)
        assert (checked("report", run, "--format", kind) is None) == (report is None)
        both = (run, folder) if is_base else (folder, run)
        checked("compare", *both, "--format", "json", allowed=(0, 1, 3))

    fuzz(70 * share, st.tuples(mutated(lambda: rows), FORMATS, st.booleans()), check)


@EXAMPLES
def test_a_mutated_manifest_is_read_or_refused_in_one_line(share, recorded, tmp_path):
    folder, _, manifest = recorded
    run = shutil.copytree(folder, tmp_path / "run")

    def check(changed, kind, draws):
        (run / MANIFEST_FILE).write_text(json.dumps(changed), encoding="utf-8")
        report = checked("report", run, "--format", "json")
        if report is not None:
            check_report(report, run)
        checked("compare", folder, run, "--format", kind, allowed=(0, 1, 3))
        checked("replay", run, "--clock", "profile:cpu-2core", allowed=(0, 1))
        if draws:
            checked("show", run, "nq/1", "--method", "treegraft-fixed")

    fuzz(
        50 * share,
        st.tuples(mutated(lambda: manifest), st.sampled_from(["table", "markdown", "json"]), st.booleans()),
        check,
    )
