import json
import shutil
from pathlib import Path

import pytest

from tasks.registry import get_task
from tasks.sources import load_questions
from treegraft.cli.main import invoke

pytestmark = pytest.mark.torch

TINY = ["--batch", "8", "--question-tokens", "8", "--answer-tokens", "8", "--article-tokens", "8", "--epochs", "2"]
TINY += ["--tasks", "nq", "--data", "embedded", "--limit", "1", "--max-new-tokens", "8", "--threads", "1"]
TOY = ["distill", "--target", "toy", "--layers", "0,2", "--tokens", "1500", "--vocabulary", "100", *TINY]


def option(name, value):
    """The tiny command with another value, or none, of a flag that it has."""
    place = TOY.index(name)
    return [*TOY[:place], *([name, value] if value is not None else []), *TOY[place + 2 :]]


@pytest.fixture(scope="session")
def distilled_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distilled")
    assert invoke([*TOY, "--out", str(folder / "drafter")]) == 0
    return folder


@pytest.fixture
def drafter(distilled_once, tmp_path):
    """Return a copy of a drafter of the toy target; its unfinished work lies beside it."""
    shutil.copytree(distilled_once, tmp_path, dirs_exist_ok=True)
    return Path("drafter")


@pytest.fixture
def pair(tmp_path):
    """Write a pair's file: the toy target with a distilled middle."""

    def write(folder="drafter", seed=0):
        keys = {"target": {"toy": {"seed": seed}}, "middle": {"distilled": str(folder)}, "dtype": "fp32"}
        (tmp_path / "own.yaml").write_text(json.dumps(keys))
        return "own.yaml"

    return write


def text():
    return {
        file.name: (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(Path("drafter-work/text").glob("*.safetensors"))
    }


def weights():
    return Path("drafter/drafter.safetensors").read_bytes()


def test_a_drafter_is_distilled_into_a_folder(drafter):
    assert {file.name for file in drafter.iterdir()} == {"README.md", "card.json", "drafter.safetensors"}
    card = json.loads((drafter / "card.json").read_text())
    assert card["layers"] == [0, 2]
    assert 50 < card["vocabulary"] <= 101  # the text's most frequent, and the end token
    assert card["floor"] < 0
    assert card["text"]["tokens"] >= 1500


def test_a_run_with_a_distilled_middle_is_identical_throughout(drafter, pair, run, rows_of):
    flags = ["--methods", "autoregressive,treegraft-fixed,assisted", "--tasks", "nq", "--limit", "3", "--out", "out"]

    result = run("--pair", pair(), *flags, "--max-new-tokens", "12")

    assert result.code == 0, result
    rows = rows_of("out")
    assert len(rows) == 4 * 3
    assert {row.verdict for row in rows if row.method != "autoregressive"} == {"identical"}
    rounds = [part for row in rows if row.method == "treegraft-fixed" for part in row.rounds]
    assert sum(forward.role == "middle" for part in rounds for forward in part.forwards) > 0
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["weights"]["middle"]["origin"] == "drafter"
    assert manifest["weights"]["middle"]["sha256"] != manifest["weights"]["target"]["sha256"]


def test_the_same_command_writes_and_trains_nothing_again(drafter, treegraft):
    before, same, state = text(), weights(), Path("drafter-work/training.safetensors").stat().st_mtime_ns

    result = treegraft(*TOY, "--out", "drafter")

    assert result.code == 0, result
    assert result.out.startswith("drafter: agreement top1 ")
    assert "middle: {distilled: drafter}" in result.out
    assert len(before) > 2
    assert text() == before
    assert weights() == same
    assert Path("drafter-work/training.safetensors").stat().st_mtime_ns == state


def test_a_command_that_lost_its_last_batch_and_its_training_ends_with_the_same_weights(drafter, treegraft):
    before, same = text(), weights()
    sorted(Path("drafter-work/text").glob("*.safetensors"))[-1].unlink()
    Path("drafter-work/training.safetensors").unlink()

    assert treegraft(*TOY, "--out", "drafter").code == 0
    assert {name: content for name, (content, _) in text().items()} == {name: one for name, (one, _) in before.items()}
    assert weights() == same


@pytest.mark.parametrize("lost", ["drafter-work/text/00001.safetensors", "drafter-work/training.safetensors"])
def test_a_disk_that_fills_up_is_told_and_costs_no_work(treegraft, refused, small_files, drafter, lost):
    same = weights()
    Path(lost).unlink()
    kept = text()
    with small_files(1000):
        assert f"{lost}: cannot be written" in refused(*TOY, "--out", "drafter")
    assert text() == kept
    assert weights() == same

    assert treegraft(*TOY, "--out", "drafter").code == 0
    assert weights() == same


def test_more_tokens_keep_the_text_that_is_there(drafter, treegraft):
    before = text()

    assert treegraft(*option("--tokens", "1900"), "--out", "drafter").code == 0
    assert text().items() > before.items()


def test_own_questions_are_answered_first(treegraft, refused):
    Path("own.jsonl").write_text('{"turns": ["Why is the sky blue?"]}\n{"turns": ["Who?", "And then?"]}\n')

    result = treegraft(*option("--tokens", "60"), "--prompts", "own.jsonl", "--out", "drafter")

    assert result.code == 0, result
    card = json.loads(Path("drafter/card.json").read_text())
    assert len(card["text"]["prompts"]) == 1

    Path("own.jsonl").write_text('{"turns": ["Why is the sea blue?"]}\n')
    assert "holds text of another prompts" in refused(
        *option("--tokens", "60"), "--prompts", "own.jsonl", "--out", "drafter"
    )


def test_no_drafter_is_trained_on_what_it_will_be_measured_on(refused):
    known = load_questions(get_task("cnndm"), data="embedded").questions[0].turns[0]
    Path("own.jsonl").write_text(json.dumps({"turns": [known.removeprefix("Summarize: ").upper()]}) + "\n")

    line = refused(*TOY, "--prompts", "own.jsonl", "--out", "drafter")

    assert "--prompts own.jsonl: line 1: a question to be measured on; take it out" in line


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (option("--layers", None), ["--layers: missing"]),
        (option("--layers", "0,3"), ["--layers: [0, 3]", "3 layers"]),
        (option("--layers", "0,x"), ["--layers: ", "'0,x'"]),
        (option("--target", "zzz"), ["unknown pair 'zzz'", "toy"]),
        (option("--target", "nowhere.yaml"), ["nowhere.yaml: cannot be read"]),
        (option("--tasks", "gsm8"), ["unknown task 'gsm8'", "gsm8k"]),
        (option("--tokens", "0"), ["--tokens: "]),
        (option("--data", "nowhere"), ["data folder 'nowhere' does not exist"]),
        (option("--tasks", ""), ["--tasks: "]),
        ([*TOY, "--seed", "-1"], ["--seed: "]),
        ([*TOY, "--dtype", "fp16"], ["--dtype: "]),
        ([*TOY, "--learning-rate", "inf"], ["--learning-rate: "]),
        ([*TOY, "--elsewhere", "0"], ["--elsewhere: "]),
        ([*TOY, "--device", "tpu"], ["--device: ", "'tpu'"]),
        ([*TOY, "--prompts", "nowhere.jsonl"], ["--prompts nowhere.jsonl: cannot be read"]),
    ],
)
def test_what_cannot_be_used_is_named_before_any_work(refused, tmp_path, command, words):
    line = refused(*command, "--out", "drafter")

    assert all(word in line for word in words), line
    assert not (tmp_path / "drafter").exists()
    assert not [*tmp_path.glob("drafter-work/text/*")]


def test_a_file_in_the_folders_place_is_refused(refused):
    Path("drafter").write_text("mine")

    assert "--out drafter: stands where a file is" in refused(*TOY, "--out", "drafter")
    assert Path("drafter").read_text() == "mine"


def test_damaged_training_is_named(drafter, refused):
    file = Path("drafter-work/training.safetensors")
    file.write_bytes(file.read_bytes()[:100])

    assert "training.safetensors: damaged" in refused(*TOY, "--out", "drafter")


def test_a_raw_line_separator_inside_a_question_is_text(treegraft):
    Path("own.jsonl").write_text('{"turns": ["Why?\u2028And who?"]}\n\n', encoding="utf-8")

    assert treegraft(*option("--tokens", "60"), "--prompts", "own.jsonl", "--out", "drafter").code == 0


def test_a_target_cannot_be_a_drafter(refused, tmp_path):
    for source in ("{distilled: drafter}", "{target_layers: [0]}"):
        Path("derived.yaml").write_text(f"target: {source}\n")
        assert "derived.yaml: pair: target: cannot be made of a target" in refused(*RUN, "derived.yaml")


def test_a_folder_to_write_to_must_be_given(refused):
    assert "--out: missing" in refused(*TOY)


@pytest.mark.parametrize("line", ["Why?", '{"turns": []}', '{"turns": "Why?"}', '{"turns": [" "]}', "{}", "[]", "{"])
def test_a_line_without_a_question_is_named(refused, line):
    Path("own.jsonl").write_text(f'{{"turns": ["Why?"]}}\n{line}\n')

    assert "--prompts own.jsonl: line 2: no question" in refused(*TOY, "--prompts", "own.jsonl", "--out", "other")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (option("--answer-tokens", "9"), "another answer_tokens"),
        (option("--batch", "9"), "another batch"),
        ([*TOY, "--seed", "1"], "another seed"),
        ([*TOY, "--dtype", "bf16"], "dtype"),
    ],
)
def test_work_that_was_asked_for_in_another_way_is_not_mixed_with(drafter, refused, changes, words):
    before = text()

    line = refused(*changes, "--work", "drafter-work", "--out", "other")

    assert "drafter-work: holds text of" in line
    assert words in line
    assert text() == before


def test_work_of_another_target_is_not_mixed_with(drafter, pair, refused):
    pair(seed=1)

    line = refused(*option("--target", "own.yaml"), "--work", "drafter-work", "--out", "other")

    assert "holds text of another target, weights" in line


@pytest.mark.parametrize("content", ["", "{", "\0"])
def test_a_work_folder_that_cannot_be_understood_is_refused(refused, content):
    Path("work").mkdir()
    Path("work/asked.json").write_text(content)

    assert "work/asked.json: cannot be used" in refused(*TOY, "--work", "work", "--out", "other")


def test_damaged_text_is_named(drafter, refused):
    file = sorted(Path("drafter-work/text").glob("*.safetensors"))[1]
    file.write_bytes(file.read_bytes()[:100])

    line = refused(*TOY, "--out", "drafter")

    assert "drafter-work/text/00001.safetensors: damaged" in line
    assert "delete it" in line


RUN = ["run", "--data", "embedded", "--tasks", "nq", "--limit", "1", "--threads", "1", "--out", "out", "--pair"]


def test_a_drafter_of_another_target_is_refused(drafter, pair, refused):
    assert "drafter: distilled from toy {'seed': 0}, other weights" in refused(*RUN, pair(seed=1))


@pytest.mark.parametrize("role", ["drafter", "nowhere"])
def test_a_folder_that_holds_no_drafter_is_refused(pair, refused, role):
    Path("drafter").mkdir()

    assert f"{role}/card.json: no such file" in refused(*RUN, pair(role))


@pytest.mark.parametrize("content", ["", "{", '{"layers": [0]}'])
def test_a_drafter_with_a_broken_card_is_refused(drafter, pair, refused, content):
    (drafter / "card.json").write_text(content)

    assert "drafter/card.json: unreadable" in refused(*RUN, pair())


def test_a_drafter_with_broken_weights_is_refused(drafter, pair, refused):
    (drafter / "drafter.safetensors").write_bytes(weights()[:1000])

    assert "drafter/drafter.safetensors: cannot be read" in refused(*RUN, pair())
