"""A run knows what it is a run of: prompts, where answers end, and which start each row is of."""

import json

import pytest

from harness.models import loading
from harness.models.toy import toy_model, toy_tokenizer
from harness.records.manifest import read_manifest
from harness.records.rows import read_rows
from treegraft.cli.main import invoke

pytestmark = pytest.mark.torch

FLAGS = ["--tasks", "mt_bench", "--limit", "2", "--methods", "all-small"]
DATED = "It is {{ strftime_now('%d %b %Y') }}. "


def tokenizer_of(monkeypatch, change):
    def changed():
        tokenizer = toy_tokenizer()
        change(tokenizer)
        return tokenizer

    monkeypatch.setattr(loading, "toy_tokenizer", changed)


def new_template(monkeypatch):
    def change(tokenizer):
        tokenizer.chat_template = f"Be brief. {tokenizer.chat_template}"

    tokenizer_of(monkeypatch, change)


def same_length_template(monkeypatch):
    def change(tokenizer):
        tokenizer.chat_template = tokenizer.chat_template.replace("[{{", "<{{")

    tokenizer_of(monkeypatch, change)


def new_tokenizer(monkeypatch):
    from tokenizers import pre_tokenizers

    def change(tokenizer):
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)

    tokenizer_of(monkeypatch, change)


def new_ends(monkeypatch):
    def changed(seed):
        model = toy_model(seed)
        model.generation_config.eos_token_id = [256, 7]
        return model

    monkeypatch.setattr(loading, "toy_model", changed)


CHANGES = {
    "chat_template": new_template,
    "tokenizer": new_tokenizer,
    "eos_ids": new_ends,
}


def without_last_block(folder):
    """Cut a run's last block, so that the same command has something to go on with."""
    lines = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    (folder / "rows.jsonl").write_text("".join(lines[:-4]))


def aged(folder):
    """Make a run one from before rows and manifests said what its prompts were."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest.pop("prompting")
    del manifest["config"]["template_date"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        assert row.pop("prompt_sha256")
        del row["start"]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def done(run, tmp_path):
    """A run of two conversations; return its folder."""
    assert run(*FLAGS, "--out", "out").code == 0
    return tmp_path / "out"


@pytest.mark.parametrize("what", CHANGES)
def test_a_run_does_not_go_on_with_other_prompts_or_ends(run, done, monkeypatch, what):
    without_last_block(done)
    before = (done / "rows.jsonl").read_bytes(), (done / "manifest.json").read_bytes()
    CHANGES[what](monkeypatch)
    result = run(*FLAGS, "--out", "out")

    assert result.code == 2
    assert result.err == f"treegraft: out: holds another run ({what} differ); give another --out\n"
    assert ((done / "rows.jsonl").read_bytes(), (done / "manifest.json").read_bytes()) == before


@pytest.mark.parametrize("what", CHANGES)
def test_runs_of_other_prompts_or_ends_are_not_compared(treegraft, run, done, monkeypatch, what):
    CHANGES[what](monkeypatch)
    assert run(*FLAGS, "--out", "other").code == 0
    told = treegraft("compare", done, "other", "--format", "json")

    assert told.code == 3
    (reason,) = json.loads(told.out)["obstacles"]
    assert reason.startswith(f"{what} differs: ")
    assert len(reason) < 100


def test_a_drawing_under_another_prompt_of_the_same_length_is_refused(treegraft, done, monkeypatch, refused):
    show = ["show", done, f"mt_bench/{next(read_rows(done)).question_id}", "--method", "all-small"]
    assert treegraft(*show).code == 0
    same_length_template(monkeypatch)
    line = refused(*show)
    assert "the prompt of mt_bench/" in line
    assert "chat template" in line


def test_the_day_that_a_template_writes_is_pinned_and_part_of_the_run(treegraft, run, monkeypatch, tmp_path):
    def change(tokenizer):
        tokenizer.chat_template = DATED + tokenizer.chat_template

    tokenizer_of(monkeypatch, change)
    assert run(*FLAGS, "--out", "out").code == 0
    assert str(read_manifest(tmp_path / "out").prompting.template_date) == "2024-07-26"
    without_last_block(tmp_path / "out")
    result = run(*FLAGS, "--out", "out", "--template-date", "2025-03-01")
    assert (result.code, "(template_date differ)" in result.err) == (2, True)
    assert run(*FLAGS, "--out", "out", "--template-date", "2024-07-26").code == 0

    assert run(*FLAGS, "--out", "later", "--template-date", "2025-03-01").code == 0
    told = treegraft("compare", "out", "later", "--format", "json")
    assert json.loads(told.out)["obstacles"] == ["template_date differs: 2024-07-26 in BASE, 2025-03-01 in HEAD"]
    digests = [{row.prompt_sha256 for row in read_rows(tmp_path / out)} for out in ("out", "later")]
    assert not digests[0] & digests[1]
    question = f"mt_bench/{next(read_rows(tmp_path / 'later')).question_id}"
    assert treegraft("show", "later", question, "--method", "all-small").code == 0


def test_the_day_means_nothing_to_a_template_that_writes_none(run, done):
    without_last_block(done)
    assert run(*FLAGS, "--out", "out", "--template-date", "2025-03-01").code == 0
    assert read_manifest(done).prompting.template_date is None


@pytest.mark.parametrize("value", ["today", "0", "20250301", "2025-02-30", "2025-03-01T10:00", ""])
def test_what_is_no_day_is_refused(refused, tmp_path, value):
    line = refused("run", "--pair", "toy", "--data", "embedded", "--out", "new", "--template-date", value)
    assert "--template-date" in line
    assert "such as 2024-07-26" in line
    assert not (tmp_path / "new").exists()


def test_rows_of_one_prompt_share_its_digest_and_those_of_others_do_not(done):
    by_place = {}
    for row in read_rows(done):
        by_place.setdefault((row.question_id, row.turn), set()).add((row.prompt_sha256, row.prompt_tokens))
    assert {len(found) for found in by_place.values()} == {1}
    assert len({digest for ((digest, _),) in by_place.values()}) == len(by_place) == 4


def test_an_older_run_goes_on_and_is_compared_shown_and_replayed(treegraft, run, done, monkeypatch, profile, tmp_path):
    from hardware_profiles.profile import write_profile

    assert run(*FLAGS, "--out", "new").code == 0
    aged(done)
    write_profile(profile, tmp_path / "plain.yaml")
    clock = ["--clock", f"profile:{tmp_path / 'plain.yaml'}"]
    question = f"mt_bench/{next(read_rows(done)).question_id}"
    assert treegraft("show", done, question, "--method", "all-small").code == 0
    assert treegraft("replay", done, *clock, "--out", "again").code == 0
    told = treegraft("compare", done, "new", "--mode", "replay", *clock, "--format", "json")
    assert json.loads(told.out)["obstacles"] == []
    without_last_block(done)
    assert run(*FLAGS, "--out", "out").code == 0
    assert [row.start for row in read_rows(done)] == [0] * 4 + [1] * 4


def test_a_run_continued_with_other_threads_says_so_in_rows_and_report(treegraft, run, done):
    without_last_block(done)
    assert "starts that differ" not in treegraft("report", done).out
    assert run(*FLAGS, "--out", "out", "--threads", "2").code == 0

    assert [row.start for row in read_rows(done)] == [0] * 4 + [1] * 4
    for format in ("table", "markdown", "latex", "json"):
        text = treegraft("report", done, "--format", format).out
        assert "2 starts that differ: threads (1, then 2)" in text


def test_rows_that_a_replay_drafts_are_of_its_own_start(treegraft, done, profile, tmp_path):
    from hardware_profiles.profile import write_profile

    write_profile(profile, tmp_path / "plain.yaml")
    clock = f"profile:{tmp_path / 'plain.yaml'}"
    assert treegraft("replay", done, "--clock", clock, "--methods", "all-small,all-mid", "--out", "again").code == 0

    starts = {(row.method, row.start) for row in read_rows(tmp_path / "again")}
    assert starts == {("autoregressive", 0), ("all-small", 0), ("all-mid", 1)}
    assert len(read_manifest(tmp_path / "again").starts) == 2


@pytest.mark.parametrize("template", ["plain", "chat"])
def test_every_report_says_where_prompts_have_no_template(treegraft, tmp_path, template):
    (tmp_path / "own.yaml").write_text(f"target: {{toy: {{seed: 0}}}}\ntemplate: {template}\n")
    flags = ["--data", "embedded", "--limit", "2", "--threads", "1", "--max-new-tokens", "8", "--tasks", "nq"]
    assert invoke(["run", "--pair", "own.yaml", *flags, "--methods", "all-small", "--out", "out"]) == 0
    for format in ("table", "markdown", "latex", "json"):
        assert ("no chat template" in treegraft("report", "out", "--format", format).out) == (template == "plain")


@pytest.mark.parametrize("template", ["{% if tools|length > 0 %}x{% endif %}hi", "{{ 1/0 }}"])
def test_whatever_a_template_raises_is_in_failed_rows(treegraft, run, monkeypatch, refused, tmp_path, template):
    def change(tokenizer):
        tokenizer.chat_template = template

    tokenizer_of(monkeypatch, change)
    result = run("--tasks", "nq", "--limit", "1", "--methods", "all-mid", "--out", "out")
    assert (result.code, "Traceback" in result.err) == (1, False)
    rows = [*read_rows(tmp_path / "out")]
    assert {(row.status, row.prompt_tokens, row.prompt_sha256) for row in rows} == {("failed", None, None)}
    assert all("chat template refuses" in row.error and "Error: " in row.error for row in rows)
    assert "chat template refuses" in refused("profile", "--pair", "toy", "--threads", "1", "--out", "mine.yaml")
