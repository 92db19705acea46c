import json
from pathlib import Path

import pytest

from hardware_profiles.profile import write_profile
from methods.tree_method import TreeMethod

pytestmark = pytest.mark.torch

WRONG = """
from dataclasses import replace
from treegraft import Method, TreeMethod

class Broken(TreeMethod):
    {body}

class Raises(Method):
    def generate(self, prompt_ids, params):
        raise ZeroDivisionError("no\\nluck")

class CannotBeMade(TreeMethod):
    def __init__(self, models, settings):
        raise KeyError("depth")

nothing = object()
"""
CHANGED = """
    def generate(self, prompt_ids, params):
        made = super().generate(prompt_ids, params)
        return {result}
"""


def source(result="made"):
    return WRONG.format(body=CHANGED.format(result=result).strip())


def test_a_prompt_that_is_too_long_is_a_failed_row_and_the_others_are_good(run, questions, rows_of):
    data = questions("nq", ["Short?"], ["x" * 8200], ["Also short?"])
    result = run("--tasks", "nq", "--data", data, "--out", "out")
    assert result.code == 1
    assert "12 rows, 4 failed, 0 different" in result.out
    assert "failed: nq/1/0 autoregressive" in result.err
    failed = [row for row in rows_of("out") if row.status == "failed"]
    assert {row.question_id for row in failed} == {1}
    assert all("exceeds the context of 8192" in row.error for row in failed)
    assert {(row.verdict, row.committed, row.decode_s, row.finish) for row in failed} == {(None, 0, None, None)}
    assert all(row.prompt_tokens > 8200 for row in failed)


@pytest.mark.parametrize("clock", [None, "plain.yaml"])
def test_a_baseline_that_failed_once_leaves_nothing_behind_when_it_answers(
    run, treegraft, rows_of, monkeypatch, profile, clock
):
    write_profile(profile, Path("plain.yaml"))
    flags = ["--tasks", "mt_bench", "--limit", "2", "--methods", "all-small", "--out", "out"]
    flags += ["--clock", f"profile:{clock}"] if clock else []
    answer, mended = TreeMethod.generate, []

    def fails(self, prompt, params):
        if type(self) is TreeMethod and params.draw_key[2:4] == (1, 0) and not mended:  # the first turn of one question
            raise MemoryError("out of memory")
        return answer(self, prompt, params)

    monkeypatch.setattr(TreeMethod, "generate", fails)
    assert run(*flags).code == 1
    assert {row.clock for row in rows_of("out")} == {"profile:plain" if clock else "wall"}
    mended.append(True)
    again = run(*flags)

    assert (again.code, "8 rows, 0 failed" in again.out) == (0, True), again.out
    lines = json.loads(treegraft("report", "out", "--format", "json").out)["lines"]
    assert {(line["n"], line["dropped"], line["failed"]) for line in lines} == {(2, 0, 0)}


def test_a_failed_block_is_run_again_as_a_second_attempt(run, questions, rows_of, treegraft):
    data = questions("mt_bench", ["x" * 8200, "Then?"], ["Short?", "More?"])
    flags = ["--tasks", "mt_bench", "--data", data, "--methods", "all-small", "--out", "out"]
    for attempt in (1, 2, 3):
        assert run(*flags).code == 1
        rows = rows_of("out")
        assert len(rows) == 8
        assert {row.attempt for row in rows if row.question_id == 0} == {attempt}
        assert {row.attempt for row in rows if row.question_id == 1} == {1}
    second = [row for row in rows if row.question_id == 0 and row.turn == 1]
    assert {(row.status, row.error) for row in second} == {("failed", "turn 0 of the baseline failed")}
    assert treegraft("report", "out").code == 0


@pytest.mark.parametrize(
    "result",
    [
        "replace(made, token_ids=[*made.token_ids[:-1], (made.token_ids[-1] + 1) % 256])",
        "replace(made, token_ids=made.token_ids[:-1])",
        "replace(made, token_ids=[*made.token_ids, 1])",
        "replace(made, token_ids=[])",
        "replace(made, token_ids=[100000, *made.token_ids[1:]])",
        "replace(made, token_ids=[-1, *made.token_ids[1:]])",
    ],
)
def test_a_method_that_gives_other_tokens_is_different_and_the_run_exits_with_1(run, plugin, rows_of, result):
    plugin(source(result), broken="Broken")
    result = run("--tasks", "nq", "--limit", "1", "--methods", "broken,all-small", "--out", "out")
    assert result.code == 1
    assert "different: nq/1/0 broken" in result.err
    verdicts = {row.method: row.verdict for row in rows_of("out")}
    assert verdicts == {"autoregressive": "reference", "all-small": "identical", "broken": "different"}


def test_the_second_turn_follows_the_baselines_first_answer_whatever_the_others_gave(run, plugin, questions, rows_of):
    from harness.models.toy import toy_tokenizer

    plugin(source("replace(made, token_ids=made.token_ids[:3])"), broken="Broken")
    turns = [["Hello?", "And?"]] * 4  # in one of the random orders the broken method surely comes first
    data = questions("mt_bench", *turns)
    run("--tasks", "mt_bench", "--data", data, "--methods", "broken,all-small", "--out", "out")
    rows = rows_of("out")
    assert "broken" in {row.method for row in rows[::3]}
    first = next(row for row in rows if row.method == "autoregressive" and row.turn == 0)
    answer = toy_tokenizer().decode(first.token_ids, skip_special_tokens=True)
    text = f"[user] Hello?\n[assistant] {answer}\n[user] And?\n[assistant] "
    expected = len(toy_tokenizer()(text, add_special_tokens=False)["input_ids"])
    assert {row.prompt_tokens for row in rows if row.turn == 1} == {expected}


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ("made.token_ids", "TypeError: generate gave a list, not a Generation"),
        ("None", "TypeError: generate gave a NoneType, not a Generation"),
        ("replace(made, token_ids=[str(token) for token in made.token_ids])", "TypeError: token_ids"),
    ],
)
def test_a_method_that_gives_no_generation_is_a_failed_row(run, plugin, rows_of, result, error):
    plugin(source(result), broken="Broken")
    assert run("--tasks", "nq", "--limit", "1", "--methods", "broken", "--out", "out").code == 1
    rows = {row.method: row for row in rows_of("out")}
    assert rows["autoregressive"].status == "ok"
    assert rows["broken"].status == "failed"
    assert error in rows["broken"].error


def test_a_method_that_raises_is_a_failed_row_and_the_others_are_good(run, plugin, rows_of):
    plugin(source(), raises="Raises")
    result = run("--tasks", "nq", "--limit", "2", "--methods", "raises,all-small", "--out", "out")
    assert result.code == 1
    assert "6 rows, 2 failed, 0 different" in result.out
    assert "failed: nq/1/0 raises: ZeroDivisionError: no luck" in result.err
    assert {row.error for row in rows_of("out")} == {None, "ZeroDivisionError: no luck"}


@pytest.mark.parametrize(
    ("points", "method", "words"),
    [
        ({"made": "CannotBeMade"}, "made", ["method 'made' cannot be made", "KeyError", "depth"]),
        ({"odd": "nothing"}, "odd", ["'odd'", "no subclass of Method"]),
        ({"odd": "missing"}, "odd", ["method 'odd'", "testing_plugin:missing", "does not load"]),
        ({"all_small": "Broken"}, "all-small", ["testing_plugin:Broken", "'all-small'"]),
        ({"csd": "Broken"}, "csd", ["claims the method name 'csd'"]),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_refused(refused, plugin, tmp_path, points, method, words):
    plugin(source(), **points)
    flags = ["--pair", "toy", "--data", "embedded", "--tasks", "nq"]
    line = refused("run", *flags, "--methods", method, "--out", "out")
    assert all(word in line for word in words), line
    assert not (tmp_path / "out").exists()


def test_a_conversation_that_the_template_refuses_is_a_failed_row(run, questions, rows_of, monkeypatch):
    from harness.models import loading
    from harness.models.toy import toy_tokenizer

    def strict():
        tokenizer = toy_tokenizer()
        refuse = "{% if messages|length > 1 %}{{ raise_exception('one turn only') }}{% endif %}"
        tokenizer.chat_template = refuse + tokenizer.chat_template
        return tokenizer

    monkeypatch.setattr(loading, "toy_tokenizer", strict)
    data = questions("mt_bench", ["Hello?", "And?"])
    assert run("--tasks", "mt_bench", "--data", data, "--methods", "all-small", "--out", "out").code == 1
    rows = rows_of("out")
    assert [row.status for row in rows if row.turn == 0] == ["ok", "ok"]
    assert all("one turn only" in row.error for row in rows if row.turn == 1)
    assert {row.prompt_tokens for row in rows if row.turn == 1} == {None}


@pytest.fixture
def windowed(tiny, tmp_path):
    """Write a pair whose target sees a window shorter than any prompt; return its file."""
    from harness.models.toy import toy_tokenizer

    tiny("Mistral", vocab_size=257, sliding_window=16, eos_token_id=256).save_pretrained(tmp_path / "model")
    toy_tokenizer().save_pretrained(tmp_path / "model")

    def write(attention):
        pair = f"target: {{path: model}}\nmiddle: {{target_layers: [0, 1]}}\nattention: {attention}\ndtype: fp32\n"
        (tmp_path / "windowed.yaml").write_text(pair)
        return "windowed.yaml"

    return write


@pytest.mark.parametrize(("attention", "breaks"), [("sdpa", False), ("eager", False), ("eager", True)])
def test_a_peer_that_windows_break_is_a_failed_row_or_different_and_ours_are_identical(
    run, windowed, rows_of, monkeypatch, attention, breaks
):
    if breaks:  # as assisted generation did in some versions
        from transformers import GenerationMixin

        monkeypatch.setattr(GenerationMixin, "_assisted_decoding", lambda *_, **__: 1 / 0)
    flags = ["--tasks", "nq", "--limit", "1", "--pair", windowed(attention), "--out", "out"]
    run(*flags, "--methods", "all-small,treegraft-fixed,assisted,prompt-lookup")
    rows = {row.method: row for row in rows_of("out")}

    assert rows["all-small"].verdict == rows["treegraft-fixed"].verdict == "identical"
    for peer in (rows.pop("assisted"), rows.pop("prompt-lookup")):
        same = peer.token_ids == rows["autoregressive"].token_ids
        assert (peer.status, peer.verdict) in [("failed", None), ("ok", "identical" if same else "different")]
        assert breaks == (peer.status == "failed"), peer.error
    assert {row.status for row in rows.values()} == {"ok"}
