import json
from pathlib import Path

import jsonschema
import pytest

from harness.records.manifest import MANIFEST_FILE, Manifest, read_manifest
from harness.records.rows import ROWS_FILE, load_rows
from harness.records.schema import Row

pytestmark = pytest.mark.torch

ONE = ["--tasks", "nq", "--limit", "1"]


def test_a_run_writes_a_manifest_and_rows_of_schema_1(finished, rows_of):
    Manifest.model_validate_json((finished / MANIFEST_FILE).read_bytes())
    manifest = json.loads((finished / MANIFEST_FILE).read_bytes())
    jsonschema.validate(manifest, Manifest.model_json_schema())
    assert manifest["config"]["methods"] == ["autoregressive", "hf-generate", "all-small", "prompt-lookup"]
    assert manifest["tasks"]["nq"]["source"] == "embedded"
    assert len(manifest["weights"]["target"]["sha256"]) == 64
    assert manifest["starts"][0]["versions"]["torch"]
    lines = (finished / ROWS_FILE).read_bytes().split(b"\n")
    assert lines.pop() == b""
    for line in lines:
        jsonschema.validate(json.loads(line), Row.model_json_schema())
    rows = rows_of(finished)
    assert len(rows) == len(lines) == (2 + 2 * 2) * 4  # nq has one turn, mt_bench two
    assert {row.pair for row in rows} == {"toy"}
    assert {row.verdict for row in rows if row.method == "autoregressive"} == {"reference"}
    assert {row.verdict for row in rows if row.method != "autoregressive"} == {"identical"}


def test_rows_hold_together(finished, rows_of):
    for row in rows_of(finished):
        assert row.committed == len(row.token_ids) <= 12
        assert row.e2e_s == pytest.approx(row.prefill_s + row.decode_s)
        prefilled = sum(forward.tokens for forward in row.prefill)
        if row.rounds is None:
            assert row.method in ("hf-generate", "prompt-lookup")
            assert (row.engine, row.baseline) == ("hf", "hf-generate")
            assert prefilled >= row.prompt_tokens  # its first forward carries the first draft too
            assert row.decode_forwards >= 0
        else:
            assert prefilled == row.prompt_tokens - 1
            assert sum(part.accepted + 1 for part in row.rounds) >= row.committed
            assert all(sum(forward.role == "target" for forward in part.forwards) == 1 for part in row.rounds)


def test_without_out_the_folder_is_under_runs_and_printed(run, tmp_path):
    result = run(*ONE)
    assert result.code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"runs/{folder.name}: 4 rows, 0 failed, 0 different" in result.out
    assert f"treegraft report runs/{folder.name}" in result.out
    assert sorted(path.name for path in folder.iterdir()) == [MANIFEST_FILE, ROWS_FILE]


def test_a_dry_run_says_what_would_run_and_writes_nothing(run, tmp_path):
    result = run(*ONE, "--budget", "3", "--out", "out", "--dry-run")
    assert result.code == 0
    assert "nq: 1 questions (eval) from embedded" in result.out
    assert 'all-small: treegraft; budget 3 (flag), scheduler "never" (catalogue)' in result.out
    assert "4 answers of at most 8 tokens" in result.out
    assert "minutes" in result.out
    assert list(tmp_path.iterdir()) == []


def test_the_baseline_is_run_whether_named_or_not(run, rows_of):
    run(*ONE, "--methods", "all-small", "--out", "out")
    assert {row.method for row in rows_of("out")} == {"autoregressive", "all-small"}


@pytest.mark.parametrize("sampling", [[], ["--temperature", "1"], ["--temperature", "0.7", "--top-p", "0.9"]])
def test_the_same_seed_gives_the_same_rows_and_every_method_the_same_tokens(run, contents, rows_of, sampling):
    flags = ["--tasks", "nq,gsm8k", "--limit", "2", "--methods", "all-small", *sampling]
    for out in ("one", "two"):
        assert run(*flags, "--out", out).code == 0
    assert contents("one") == contents("two")
    assert [row.key for row in rows_of("one")] == [row.key for row in rows_of("two")]  # the order too
    assert {row.verdict for row in rows_of("one")} == {"reference", "identical"}


def test_another_seed_gives_other_draws_and_greedy_decoding_the_same(run, rows_of):
    for seed in ("0", "1"):
        for temperature in ("0", "1"):
            run(*ONE, "--seed", seed, "--temperature", temperature, "--out", f"{seed}-{temperature}")
    tokens = {name: rows_of(name)[0].token_ids for name in ("0-0", "1-0", "0-1", "1-1")}
    assert tokens["0-0"] == tokens["1-0"]
    assert len({tuple(tokens[name]) for name in ("0-0", "0-1", "1-1")}) == 3


def test_repeats_are_rows_of_their_own_with_draws_of_their_own(run):
    run(*ONE, "--repeats", "3", "--temperature", "1", "--methods", "all-small", "--out", "out")
    rows = load_rows("out")
    assert rows.groupby("repeat")["method"].count().to_dict() == {0: 2, 1: 2, 2: 2}
    assert rows["key"].is_unique
    assert len({tuple(tokens) for tokens in rows["token_ids"]}) == 3
    assert set(rows["verdict"]) == {"reference", "identical"}


def test_outside_peers_cannot_be_verified_when_tokens_are_drawn(run, rows_of):
    assert run(*ONE, "--methods", "prompt-lookup", "--temperature", "1", "--out", "out").code == 0
    assert {row.method: row.verdict for row in rows_of("out")}["prompt-lookup"] == "unverified"


def test_a_stop_string_ends_every_answer_at_the_same_token(run, rows_of):
    run(*ONE, "--max-new-tokens", "30", "--out", "free")
    from harness.models.toy import toy_tokenizer

    whole = rows_of("free")[0].token_ids
    text = toy_tokenizer().decode(whole)
    stop = next(text[at : at + 1] for at in range(3, len(text)) if text[at : at + 1] != "\ufffd")
    run(*ONE, "--max-new-tokens", "30", "--stop", stop, "--stop", "never said", "--out", "stopped")
    for row in rows_of("stopped"):
        assert row.finish == "stop"
        assert row.verdict in ("reference", "identical")
        assert row.token_ids == whole[: row.committed]
        assert stop in toy_tokenizer().decode(row.token_ids)
        assert stop not in toy_tokenizer().decode(row.token_ids[:-1])


def test_methods_are_interleaved_in_an_order_that_differs_between_blocks_and_follows_the_seed(run, rows_of):
    flags = ["--tasks", "nq", "--limit", "6", "--max-new-tokens", "1"]

    def orders(folder):
        methods = [row.method for row in rows_of(folder)]
        return [tuple(methods[at : at + 4]) for at in range(0, len(methods), 4)]

    for out, seed in (("one", "0"), ("two", "1")):
        run(*flags, "--seed", seed, "--out", out)
    assert all(len({*order}) == 4 for order in orders("one"))
    assert len({*orders("one")}) > 1
    assert orders("one") != orders("two")
    assert [row.question_id for row in rows_of("one")][::4] != sorted(row.question_id for row in rows_of("one"))[::4]


def test_every_task_of_the_embedded_set_runs(run, rows_of):
    result = run("--tasks", "alpaca,gsm8k,humaneval,nq,cnndm,mt_bench", "--limit", "1", "--out", "out")
    assert result.code == 0, result
    assert len(rows_of("out")) == 4 * 7


def test_the_manifest_keeps_where_data_came_from(run, questions):
    run("--tasks", "nq", "--data", questions("nq", ["Who?"]), "--out", "out")
    task = read_manifest(Path("out")).tasks["nq"]
    assert (task.source, task.origin, task.n) == ("data", "nq/question.jsonl", 1)
