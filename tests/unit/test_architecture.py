"""The house rules that no linter knows: who may import whom, and what no file may do."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("hardware_profiles", "harness", "methods", "reports", "tasks")
LEAVES = {"harness.errors", "harness.registry"}
MAY_IMPORT = {
    "hardware_profiles": LEAVES,
    "methods": {"hardware_profiles", *LEAVES},
    "tasks": LEAVES,
    "reports": {"harness.results", "methods.core.reliability", *LEAVES},
    "harness": {"hardware_profiles", "methods", "tasks"},
}
FILES = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))] + [ROOT / "treegraft.py"]
LONGEST_FILE = 300
LONGEST_FUNCTION = 60


def name(file):
    return file.relative_to(ROOT).as_posix()


def module(file):
    return name(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@pytest.fixture(params=FILES, ids=name)
def file(request):
    return request.param


@pytest.fixture
def tree(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def imported(tree):
    """Return every module that is imported anywhere in a file, lazily or for type checkers too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute: a file's path is its import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module in ROOMS)


def of_rooms(tree):
    return {found for found in imported(tree) if found.partition(".")[0] in ROOMS and found not in ROOMS}


def within(found, allowed):
    return any(found == prefix or found.startswith(f"{prefix}.") for prefix in allowed)


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_a_room_imports_only_the_rooms_that_it_may(file, tree):
    room = file.relative_to(ROOT).parts[0]
    allowed = {room, *MAY_IMPORT.get(room, set(ROOMS))}
    if name(file) == "harness/cli.py":
        allowed.add("reports")
    strangers = {found for found in of_rooms(tree) if not within(found, allowed)}
    assert strangers == set()


@pytest.mark.parametrize(
    ("leaf", "allowed"),
    [
        ("harness.errors", set()),
        ("harness.registry", {"harness.errors"}),
        ("methods.core.reliability", set()),
        ("methods.core.generation", {"methods.core.reliability"}),
        ("harness.results", {"harness.errors", "methods.core.generation", "methods.core.reliability"}),
    ],
)
def test_a_module_that_every_room_may_import_is_a_leaf(leaf, allowed):
    tree = ast.parse((ROOT / f"{leaf.replace('.', '/')}.py").read_text(encoding="utf-8"))
    assert {found for found in of_rooms(tree) if not within(found, allowed)} == set()
    assert not {"torch", "transformers"} & {found.partition(".")[0] for found in imported(tree)}


def test_rooms_that_know_no_model_import_no_torch(file, tree):
    if file.relative_to(ROOT).parts[0] in ("tasks", "reports", "hardware_profiles"):
        assert not {"torch", "transformers"} & {found.partition(".")[0] for found in imported(tree)}


def test_the_public_face_re_exports_and_does_nothing_else():
    tree = ast.parse((ROOT / "treegraft.py").read_text(encoding="utf-8"))
    names = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert [type(node) for node in tree.body if not isinstance(node, ast.ImportFrom)] == [ast.Expr, ast.Assign]
    assert sorted(names) == ast.literal_eval(tree.body[-1].value)


def test_errors_are_not_swallowed(file, tree):
    lines = file.read_text(encoding="utf-8").split("\n")
    for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)):
        assert handler.type is not None, f"bare except in line {handler.lineno}"
        broad = {"Exception", "BaseException"} & {ast.unparse(part) for part in ast.walk(handler.type)}
        if broad and not isinstance(handler.body[-1], ast.Raise):
            reason = lines[handler.lineno - 1].partition("# noqa: BLE001 - ")[2]
            assert reason, f"line {handler.lineno} catches everything and does not say why"


def test_nothing_is_printed_past_the_command_line(tree):
    assert [node.lineno for called, node in calls(tree) if called == "print"] == []


def test_nothing_that_is_read_can_run_code(tree):
    assert {found.partition(".")[0] for found in imported(tree)}.isdisjoint({"pickle", "marshal", "shelve", "dill"})
    unsafe = {
        "torch.load",
        "yaml.load",
        "yaml.unsafe_load",
        "yaml.full_load",
        "eval",
        "exec",
        "os.system",
        "joblib.load",
    }
    assert [called for called, _ in calls(tree) if called in unsafe] == []
    for called, node in calls(tree):
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        assert given.get("allow_pickle") != "True", f"line {node.lineno}"
        assert given.get("shell") != "True", f"line {node.lineno}"
        assert given.get("trust_remote_code") != "True", f"{called} in line {node.lineno}"


def test_code_from_the_hub_is_not_trusted_unless_asked():
    from harness.config import RunConfig

    assert RunConfig().trust_remote_code is False
    source = (ROOT / "harness" / "loading.py").read_text(encoding="utf-8")
    loader = next(node for node in ast.parse(source).body if getattr(node, "name", "") == "load_pair")
    defaults = dict(zip((part.arg for part in loader.args.kwonlyargs), loader.args.kw_defaults, strict=True))
    assert ast.unparse(defaults["trust_remote_code"]) == "False"


def test_files_and_functions_stay_short(file, tree):
    assert len(file.read_text(encoding="utf-8").split("\n")) <= LONGEST_FILE
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [node.name for node in functions if node.end_lineno - node.lineno >= LONGEST_FUNCTION] == []


def test_modules_say_what_they_are(file):
    assert file.stem not in {"utils", "util", "helpers", "helper", "manager", "misc", "common"}


def test_every_package_is_typed():
    assert [room for room in ROOMS if not (ROOT / room / "py.typed").is_file()] == []


def test_no_file_hides_from_its_import_path():
    assert {module(file).partition(".")[0] for file in FILES} == {*ROOMS, "treegraft"}
