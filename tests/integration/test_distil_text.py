"""Text on disk: batch after batch, whole or not at all, and the same again wherever it stopped."""

import pytest

from foundation.errors import UserError
from harness.distil.batched_generation import Writer
from harness.distil.prompt_seeds import Steering
from harness.distil.sequence_templates import TokenLimits
from harness.distil.shards import Author, TextFolder

pytestmark = pytest.mark.torch

OWN = ("Why is the sky blue?", "How so?", "Name three birds.")


@pytest.fixture(scope="module")
def author(one_thread):
    """Build an author over the toy target, a few tokens a turn; two batches hold the user's three questions."""
    from harness.models.toy import toy_model, toy_tokenizer

    writer = Writer(toy_model(0), frozenset({256}))

    def build(seed=0):
        return Author(writer, toy_tokenizer(), "chat", 2, seed, TokenLimits(question=6, answer=5, article=7), OWN)

    return build


@pytest.fixture
def write(tmp_path, author):
    """Write some tokens of text into a folder; return the files' bytes by name, and what progress was told."""

    def write(tokens, name="text", seed=0):
        told = []
        text = TextFolder(tmp_path / name)
        text.write(author(seed), tokens, lambda *news: told.append(news))
        return {file.name: file.read_bytes() for file in sorted(text.folder.glob("*.safetensors"))}, told

    return write


ENOUGH = 900  # tokens; the last batches quote articles, which are requests of a hundred bytes


def test_text_that_was_stopped_goes_on_with_the_same_bytes(tmp_path, write):
    whole, told = write(ENOUGH, "whole")
    half, _ = write(ENOUGH // 2)
    (tmp_path / "text" / f"{len(half):05d}.partial").write_bytes(b"half a batch")

    resumed, retold = write(ENOUGH)

    assert len(half) < len(resumed)
    assert resumed == whole
    assert retold == told


def test_a_batch_that_was_deleted_is_written_again_as_it_was(tmp_path, write):
    whole, _ = write(ENOUGH)
    for name in list(whole)[::2]:
        (tmp_path / "text" / name).unlink()

    assert write(ENOUGH)[0] == whole


def test_text_that_is_there_is_not_written_again(tmp_path, write):
    write(ENOUGH)
    before = [file.stat().st_mtime_ns for file in sorted((tmp_path / "text").glob("*.safetensors"))]

    write(ENOUGH)

    assert [file.stat().st_mtime_ns for file in sorted((tmp_path / "text").glob("*.safetensors"))] == before


def test_another_seed_writes_other_text_of_the_same_kinds(write):
    (one, told), (other, retold) = write(ENOUGH, "one"), write(ENOUGH, "other", seed=1)

    assert all(first[1] == second[1] for first, second in zip(told, retold, strict=False))  # one may need fewer
    assert one["00000.safetensors"] == other["00000.safetensors"]  # the user's questions are answered greedily
    assert one["00002.safetensors"] != other["00002.safetensors"]


def test_progress_is_told_of_every_batch_until_there_is_enough(write):
    files, told = write(ENOUGH)

    assert len(told) == len(files)
    assert [kind for _, kind in told][:2] == ["own", "own"]
    assert sum(count for count, _ in told[:-1]) < ENOUGH <= sum(count for count, _ in told)


def text_of(author, number):
    kind, batch = author.write(number)
    return kind, [author.tokenizer.decode(written.tokens, skip_special_tokens=True) for written in batch]


def test_the_users_own_questions_come_first_each_once(author):
    batches = [text_of(author(), number) for number in range(3)]

    assert [kind for kind, _ in batches[:2]] == ["own", "own"]
    assert [text.partition("\n")[0] for _, texts in batches[:2] for text in texts] == [f"[user] {one}" for one in OWN]
    assert batches[2][0] != "own"


def test_an_article_is_kept_and_quoted_to_be_summarised(author):
    steering = Steering(0)
    number = next(batch for batch in range(99) if steering.kind(batch) == "article")

    kind, texts = text_of(author(), 2 + number)

    assert kind == "article"
    assert len(texts) == 4
    for written, quoting in zip(texts[:2], texts[2:], strict=True):
        request, _, article = written.partition("\n[assistant] ")
        assert request.startswith("[user] Write a")
        assert article.strip()
        assert article.strip() in quoting
        assert "ummar" in quoting.partition("\n[assistant] ")[0]


@pytest.mark.parametrize("size", [0, 7, 200])
def test_a_damaged_batch_is_named_with_the_mend(tmp_path, write, size):
    write(ENOUGH)
    file = tmp_path / "text" / "00001.safetensors"
    file.write_bytes(file.read_bytes()[:size])

    with pytest.raises(UserError, match=r"00001.safetensors: damaged \(.*\); delete it"):
        write(ENOUGH)
