import pytest

SMALL = "pair: toy\ndata: embedded\ntasks: [nq]\nlimit: 1\n"


@pytest.fixture
def config(tmp_path):
    def write(text):
        file = tmp_path / "config.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pair: [toy\n", ["not YAML", "line 2"]),
        ("pair: toy\n\tlimit: 3\n", ["not YAML"]),
        (b"pair: \xff\xfe\n", ["not YAML"]),
        ("seed: 2026-13-45\n", ["not YAML", "month"]),
        ("[" * 1000, ["not YAML"]),
        (SMALL + "limit: 2\n", ["not YAML", "the key 'limit' stands twice"]),
        ("", ["holds no keys"]),
        ("- pair\n- toy\n", ["holds no keys"]),
        ("pair: toy\nbudgets: 3\n", ["unknown key 'budgets'", "budget"]),
        ("3: toy\n", ["unknown key '3'"]),
        ("temperature: hot\n", ["temperature", "'hot'"]),
        ("temperature: .nan\n", ["temperature", "finite"]),
        ("top_p: 1.5\n", ["top_p", "1.5"]),
        ("limit: [1]\n", ["limit", "[1]"]),
        ("tasks: {nq: 1}\n", ["tasks"]),
        ("tasks: []\n", ["tasks", "at least 1"]),
        ("methods: []\n", ["methods", "at least 1"]),
        ("stop: ['']\n", ["stop", "empty"]),
        ("stop: [3]\n", ["stop"]),
        ("methods: &a [*a]\n", ["methods"]),
        ("pair: toy\nlimit: true\n", ["limit: Input should be a valid integer (given: True)"]),
        ("pair: toy\nmax_new_tokens: yes\n", ["max_new_tokens: Input should be a valid integer (given: True)"]),
        ("pair: toy\nmax_new_tokens: 1:30\n", ["max_new_tokens: Input should be a valid integer (given: '1:30')"]),
        ("pair: toy\ntemperature: true\n", ["temperature: Input should be a valid number (given: True)"]),
        ("pair: toy\ntrust_remote_code: 1\n", ["trust_remote_code: Input should be a valid boolean (given: 1)"]),
        ("pair: toy\ndevice: toaster\n", ["device: not a device; give cpu, cuda or cuda:0 (given: 'toaster')"]),
        (f"pair: toy\nseed: 0x{'f' * 4000}\n", ["not YAML", "more than 64 bits"]),
        (SMALL + "methods: [{base: all-small}]\n", ["no name"]),
        (SMALL + "methods: [{name: 3, base: all-small}]\n", ["no name"]),
        (SMALL + "methods: [{name: mine}]\n", ["'mine' names no base"]),
        (SMALL + "methods: [{name: mine, base: [all-small]}]\n", ["'mine' names no base"]),
        (SMALL + "methods: [{name: mine, base: all-smal}]\n", ["unknown method 'all-smal'", "all-small"]),
        (SMALL + "methods: [{name: all-small, base: all-small}]\n", ["'all-small' is taken"]),
        (SMALL + "methods: [{name: autoregressive, base: all-small}]\n", ["'autoregressive' is taken"]),
        (SMALL + "methods: [{name: a, base: all-small}, {name: a, base: all-small}]\n", ["'a' is taken"]),
        (SMALL + "methods: [{name: a, base: all-small, budgt: 3}]\n", ["method 'a'", "'budgt'", "budget"]),
        (SMALL + "methods: [{name: a, base: all-small, budget: 0}]\n", ["method 'a'", "budget"]),
        (SMALL + "methods: [{name: a, base: all-small, schedule: [0, 1]}]\n", ["'a'", "2 entries for 5 steps"]),
        (SMALL + "methods: [{name: a, base: all-small, schedule: [0, 2], steps: 2}]\n", ["method 'a'", "schedule"]),
        (
            SMALL + "methods: [{name: a, base: all-mid, schedule: [1, 0, 1, 0, 1]}]\n",
            ["'a'", "schedule: scheduler always does not read it"],
        ),
        (SMALL + "steps: 2147483648\nmethods: [treegraft-fixed]\n", ["steps", "32"]),
        (SMALL + "methods: [{name: a, base: treegraft-release, steps: 2147483648}]\n", ["'a': steps", "32"]),
        (SMALL + "methods: [{name: a, base: all-mid, scheduler: sometimes}]\n", ["'sometimes'", "always"]),
        (SMALL + "methods: [{name: a, base: all-mid, width: 0}]\n", ["method 'a': width", "(given: 0)"]),
        (
            SMALL + "methods: [{name: a, base: csd, options: {k: [[5, 10]]}}]\n",
            ["options: k", "2 rows of 2"],
        ),
        (
            SMALL + "methods: [{name: a, base: csd, options: {leniency: 0}}]\n",
            ["options: leniency", "(given: 0)"],
        ),
        (SMALL + "methods: [{name: a, base: csd, options: {lenience: 2}}]\n", ["'a'", "'lenience'", "leniency"]),
        (SMALL + "methods: [{name: a, base: csd, options: {leniency: true}}]\n", ["leniency", "(given: True)"]),
        (
            SMALL + "methods: [{name: a, base: prompt-lookup, options: {prompt_lookup_num_token: 3}}]\n",
            ["'a'", "'prompt_lookup_num_token'", "did you mean prompt_lookup_num_tokens"],
        ),
        (
            SMALL + "methods: [{name: a, base: hf-generate, options: {max_new_tokens: 3}}]\n",
            ["'a'", "unknown option of hf-generate 'max_new_tokens'"],
        ),
        (
            SMALL + "methods: [{name: a, base: assisted, options: {num_assistant_tokens: true}}]\n",
            ["'a'", "num_assistant_tokens", "(given: True)"],
        ),
    ],
)
def test_an_unusable_configuration_is_refused_by_file_or_key(refused, config, tmp_path, text, words):
    file = config(text)
    for command in (["validate", file], ["run", file, "--out", "out"]):
        line = refused(*command)
        assert all(word in line for word in words), line
        assert "config.yaml" in line or "method" in line
    assert not (tmp_path / "out").exists()


def test_a_tag_in_yaml_runs_nothing(refused, config, tmp_path):
    marker = tmp_path / "ran"
    line = refused("run", config(f"pair: !!python/object/apply:os.system ['touch {marker}']\n"))
    assert "not YAML" in line
    assert not marker.exists()


@pytest.mark.parametrize("name", ["nowhere.yaml", "."])
def test_a_configuration_that_is_not_there_is_refused(refused, name):
    assert f"{name}: cannot be read" in refused("run", name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no keys"]),
        ("target: [", ["not YAML"]),
        ("about: 2026-13-45", ["not YAML"]),
        ("target: {hub: a/b, path: c}", ["target", "exactly one"]),
        ("target: {}", ["target", "exactly one"]),
        ("about: no target", ["target"]),
        ("target: {toy: {seed: 0}}\ntemplate: fancy", ["template"]),
        ("target: {toy: {seed: 0}}\ncolour: red", ["colour"]),
        ("target: {package: p}", ["package and file"]),
        ("target: {toy: {seed: 0}}\ndefaults: {budget: 0}", ["budget"]),
    ],
)
def test_a_broken_pair_file_is_refused_by_its_key(refused, tmp_path, text, words):
    (tmp_path / "own.yaml").write_text(text)
    line = refused("run", "--pair", "own.yaml", "--data", "embedded", "--tasks", "nq")
    assert all(word in line for word in words), line


def test_a_pair_file_that_is_not_there_is_refused(refused):
    assert "nowhere.yaml: cannot be read" in refused("run", "--pair", "nowhere.yaml")


def test_a_good_configuration_is_called_good(treegraft, config):
    result = treegraft("validate", config(SMALL + "methods: [{name: mine, base: all-small, budget: 3}]\n"))
    assert result.code == 0
    assert "1 blocks of autoregressive, mine on pair toy" in result.out
