"""The house rules that no linter knows: who may import whom, and what no file may do. Each test lists all offenders."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("foundation", "hardware_profiles", "harness", "methods", "reports", "tasks", "treegraft")

MAY_IMPORT = {
    "foundation": set(),
    "hardware_profiles": {"foundation"},
    "tasks": {"foundation"},
    "methods": {"foundation", "hardware_profiles"},
    "harness.config": {"foundation", "methods"},
    "harness.models": {"foundation", "hardware_profiles", "methods"},
    "harness.records": {"foundation", "hardware_profiles", "methods", "harness.config", "harness.models"},
    "harness.clocks": {
        "foundation",
        "hardware_profiles",
        "methods",
        "harness.config",
        "harness.models",
        "harness.records",
    },
    "harness.profiling": {
        "foundation",
        "hardware_profiles",
        "methods",
        "tasks",
        "harness.clocks",
        "harness.models",
        "harness.records",
    },
    "harness.distil": {"foundation", "methods", "tasks", "harness.models", "harness.records"},
    "harness.run": {
        "foundation",
        "hardware_profiles",
        "methods",
        "tasks",
        "harness.clocks",
        "harness.config",
        "harness.models",
        "harness.records",
    },
    "harness.replay": {
        "foundation",
        "hardware_profiles",
        "methods",
        "tasks",
        "harness.clocks",
        "harness.config",
        "harness.models",
        "harness.records",
        "harness.run",
    },
    "harness.training": {
        "foundation",
        "hardware_profiles",
        "methods",
        "tasks",
        "harness.clocks",
        "harness.models",
        "harness.records",
        "harness.replay",
    },
    "reports": {"foundation", "harness.records"},
    "treegraft": {*ROOMS},
}
"""By room, the rooms that it may import; CONTRIBUTING says what lives in each, and on which floor."""

NO_TORCH = (
    "foundation",
    "hardware_profiles",
    "harness.config",
    "harness.models.pair",
    "harness.models.prompting",
    "harness.records",
    "harness.run.plan",
    "methods.artifacts",
    "methods.calibrated.facts",
    "methods.catalog",
    "methods.external.facts",
    "methods.facts",
    "methods.latency",
    "methods.rivals.csd.facts",
    "methods.schedulers.artifact",
    "methods.schedulers.scheduler",
    "methods.settings",
    "methods.treegraft.facts",
    "reports",
    "tasks",
    "treegraft",
)
"""What `--help`, `validate` and reports load: none of it imports torch or transformers, nor does what it imports."""

FILES = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]


def module(file):
    return file.relative_to(ROOT).as_posix().removesuffix(".py").removesuffix("/__init__").replace("/", ".")


TREES = {module(file): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


def imported(tree, *, at_top=False):
    """Return every module that is imported in a file: anywhere, or only by importing the file."""
    for node in tree.body if at_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute: a file's path is its import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(found, prefixes):
    return any(found == prefix or found.startswith(f"{prefix}.") for prefix in prefixes)


def room_of(name):
    return next(room for room in sorted(MAY_IMPORT, key=len, reverse=True) if within(name, [room]))


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_a_room_imports_only_the_rooms_that_it_may():
    strangers = [
        f"{name} imports {found}"
        for name, tree in TREES.items()
        if name not in ("harness",)
        for found in imported(tree)
        if found in TREES and not within(found, {room_of(name), *MAY_IMPORT[room_of(name)]})
    ]
    assert strangers == []


def test_no_arrow_between_rooms_runs_back():
    order = list(MAY_IMPORT)
    back = [
        f"{room} may import {other}, which stands above it"
        for room, below in MAY_IMPORT.items()
        for other in below - {room, "harness"}
        if order.index(other) >= order.index(room)
    ]
    assert back == []


def test_the_table_of_rooms_in_contributing_is_that_of_the_code():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| `([\w/]+)/` \|", text, re.MULTILINE)
    floors = {room.replace("/", "."): int(floor) for floor, room in rows}
    assert {*floors} == {*MAY_IMPORT}
    assert [
        f"{room} may import {other}, which stands on a higher floor"
        for room, others in MAY_IMPORT.items()
        for other in others & {*floors}
        if floors[other] > floors[room]
    ] == []


def test_what_reads_and_checks_imports_no_torch():
    def heavy(name, seen):
        if name in seen or name not in TREES:
            return
        seen.add(name)
        for found in imported(TREES[name], at_top=True):
            if found.partition(".")[0] in ("torch", "transformers"):
                yield name
            yield from heavy(found, seen)
            yield from heavy(found.rpartition(".")[0], seen)

    assert {name: found for name in TREES if within(name, NO_TORCH) if (found := sorted(set(heavy(name, set()))))} == {}


def test_every_public_name_is_where_the_face_says():
    import treegraft

    shown = [
        alias.name
        for node in ast.walk(TREES["treegraft"])
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name  # what a type checker sees re-exported
    ]
    assert sorted(shown) == treegraft.__all__
    assert [name for name in treegraft.__all__ if not hasattr(treegraft, name)] == []


def test_errors_are_not_swallowed():
    swallowed = []
    for file in FILES:
        lines = file.read_text(encoding="utf-8").split("\n")
        for handler in (node for node in ast.walk(TREES[module(file)]) if isinstance(node, ast.ExceptHandler)):
            types = set() if handler.type is None else {ast.unparse(part) for part in ast.walk(handler.type)}
            if types and not types & {"Exception", "BaseException"}:
                continue
            reason = lines[handler.lineno - 1].partition("# noqa: BLE001 - ")[2]
            if not types or not (isinstance(handler.body[-1], ast.Raise) or reason):
                swallowed.append(f"{module(file)}:{handler.lineno}")
    assert swallowed == []


def test_nothing_is_printed_past_the_command_line():
    assert [
        f"{name}:{node.lineno}" for name, tree in TREES.items() for called, node in calls(tree) if called == "print"
    ] == []


WRITES = ("write_text", "write_bytes", "save_file", "savefig", "write_table")


def is_write(called, node):
    modes = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
    return called.rpartition(".")[2] in WRITES or (called.endswith("open") and {*modes} & {"w", "wb", "x", "xb"})


def test_files_are_written_whole():
    """A kill in mid-write must leave the earlier file: what writes is given to `write_whole`, as a function."""
    torn = []
    for name, tree in TREES.items():
        given = [part for called, node in calls(tree) if called == "write_whole" for part in ast.walk(node)]
        names = {part.id for part in given if isinstance(part, ast.Name)}
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names)
        allowed = {id(part) for part in (*given, *(part for one in functions for part in ast.walk(one)))}
        torn += [
            f"{name}:{node.lineno}"
            for called, node in calls(tree)
            if is_write(called, node) and id(node) not in allowed
        ]
    assert torn == []


UNSAFE_MODULES = {"pickle", "marshal", "shelve", "dill"}
UNSAFE_CALLS = {
    "torch.load",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "eval",
    "exec",
    "os.system",
    "joblib.load",
}
UNSAFE_SWITCHES = ("allow_pickle", "shell", "trust_remote_code")


def test_nothing_that_is_read_can_run_code():
    unsafe = [
        f"{name} imports {found}"
        for name, tree in TREES.items()
        for found in imported(tree)
        if found.partition(".")[0] in UNSAFE_MODULES
    ]
    for name, tree in TREES.items():
        for called, node in calls(tree):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if called in UNSAFE_CALLS or any(given.get(switch) == "True" for switch in UNSAFE_SWITCHES):
                unsafe.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    assert unsafe == []


def test_code_from_the_hub_is_not_trusted_unless_asked():
    from harness.config.run_config import RunConfig

    assert RunConfig().trust_remote_code is False
    loader = next(node for node in TREES["harness.models.loading"].body if getattr(node, "name", "") == "load_pair")
    defaults = dict(zip((part.arg for part in loader.args.kwonlyargs), loader.args.kw_defaults, strict=True))
    assert ast.unparse(defaults["trust_remote_code"]) == "False"


def test_modules_say_what_they_are():
    vague = {"utils", "util", "helpers", "helper", "manager", "misc", "common"}
    assert [name for name in TREES if name.rpartition(".")[2] in vague] == []


def defined(tree):
    """Return the public classes, functions and type aliases that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            names = [name for name in names if name[0].isupper() and not name.isupper()]  # constants are not meant
        else:
            names = []
        yield from (name for name in names if not name.startswith("_"))


def test_no_two_public_things_share_a_name():
    places: dict[str, list[str]] = {}
    for name, tree in TREES.items():
        for one in defined(tree):
            places.setdefault(one, []).append(name)
    assert {one: where for one, where in places.items() if len(where) > 1} == {}


def test_every_room_is_typed():
    assert [room for room in ROOMS if not (ROOT / room / "py.typed").is_file()] == []
