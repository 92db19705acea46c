import pytest

from harness.config.run_config import RunConfig

BASE = ["run", "--pair", "toy", "--data", "embedded", "--tasks", "nq", "--out", "out"]
COUNT = ["0", "-1", "nan", "1.5", "many", ""]
NUMBERS = {
    "limit": COUNT,
    "max_new_tokens": COUNT,
    "seed": ["-1", "nan", "1e3", str(2**63)],
    "temperature": ["-0.1", "1e-40", "0.0009", "1001", "nan", "inf", "hot"],
    "top_p": ["0", "-1", "1.01", "nan", "inf", "x"],
    "top_k": ["-1", "nan", "1.5"],
    "repetition_penalty": ["0", "1e-300", "1001", "-1", "nan", "inf"],
    "repeats": [*COUNT, "1001"],
    "steps": [*COUNT, "33"],
    "width": [*COUNT, "65"],
    "budget": [*COUNT, "1025"],
    "threads": [*COUNT, "1025", str(10**20)],
}


def test_every_numeric_flag_has_its_refusals_tested():
    numeric = {name for name, field in RunConfig.model_fields.items() if {"int", "float"} & {*_types(field)}}
    assert numeric == {*NUMBERS}


def _types(field):
    return str(field.annotation).replace("<class '", "").replace("'>", "").split(" | ")


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in NUMBERS.items() for value in values])
def test_a_number_out_of_range_is_refused_by_the_name_of_its_flag(refused, tmp_path, key, value):
    line = refused(*BASE, f"--{key.replace('_', '-')}", value)
    assert key in line or f"--{key.replace('_', '-')}" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--pair", "smolm2"], ["unknown pair 'smolm2'", "smollm2"]),
        (["--pair", "zzz"], ["unknown pair 'zzz'", "toy", "hub id"]),
        (["--tasks", "gsm8"], ["unknown task 'gsm8'", "gsm8k"]),
        (["--tasks", "nq,mtbench"], ["unknown task 'mtbench'", "mt_bench"]),
        (["--tasks", ""], ["unknown task ''", "nq"]),
        (["--tasks", "nq,,gsm8k"], ["unknown task ''"]),
        (["--methods", "all-smal"], ["unknown method 'all-smal'", "all-small"]),
        (["--methods", ""], ["unknown method ''", "all-small"]),
        (["--methods", "all-small,all-small"], ["methods", "'all-small' is there twice"]),
        (["--stop", ""], ["--stop", "empty"]),
        (["--dtype", "fp16"], ["--dtype", "'bf16' or 'fp32'"]),
        (["--clock", "sundial"], ["--clock", "give wall or profile:NAME"]),
        (["--split", "train"], ["--split", "'eval' or 'fit'"]),
        (["--data", "nowhere"], ["data folder 'nowhere' does not exist"]),
        (["--data", ""], ["data folder ''"]),
        (["--limt", "3"], ["--limt", "--limit"]),
    ],
)
def test_an_unknown_word_is_answered_with_the_known_ones(refused, tmp_path, flags, words):
    line = refused(*BASE, *flags)
    assert all(word in line for word in words), line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["<b>/\u202e", "owner/n\name", f"owner/{'x' * 90}", "x" * 5000, "é" * 300 + ".yaml"])
def test_a_pair_that_cannot_be_a_name_is_refused_in_a_line_that_can_be_read(refused, name):
    line = refused(*BASE, "--pair", name)
    assert line.rstrip("\n").isprintable()
    assert len(line) < 1100
    assert any(words in line for words in ("give a name", "unknown pair", "give an existing pair file", "too long"))


@pytest.mark.torch
@pytest.mark.parametrize("device", ["tpu", "", "cuda:99", "meta", "nonsense:0", "cuda:-1"])
def test_a_device_that_is_not_there_is_refused(refused, tmp_path, device):
    line = refused(*BASE, "--device", device)
    assert any(words in line for words in (f"--device {device}: ", f"cpu, cuda or cuda:0 (given: {device!r})")), line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["runn"], "'runn'"),
        (["ls"], "methods"),
        (["ls", "models"], "models"),
        (["report", "--format", "pdf"], "pdf"),
        (["validate"], "CONFIG"),
        (["show", "x", "nq/1"], "--method"),
    ],
)
def test_a_command_that_is_not_one_is_one_line(refused, arguments, word):
    assert word in refused(*arguments)


@pytest.mark.parametrize(
    "command",
    [["report"], ["compare", "a"], ["run", "--dry-run", "--pair"], ["run", "--dry-run", "--data"], ["validate"]],
    ids=" ".join,
)
def test_a_name_too_long_for_a_path_is_one_short_line(refused, command):
    assert len(refused(*command, "x" * 5000)) < 1100


def test_debug_adds_the_traceback_above_the_line(treegraft):
    result = treegraft(*BASE, "--tasks", "gsm8", "--debug")
    assert result.code == 2
    assert "Traceback (most recent call last)" in result.err
    assert result.err.split("\n")[-2].startswith("treegraft: unknown task 'gsm8'")


def test_no_command_shows_the_help(treegraft):
    result = treegraft()
    assert result.code == 0
    assert "Commands:" in result.out
