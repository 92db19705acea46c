import codecs
import os

import pytest

from foundation.errors import UserError
from harness.records.manifest import read_manifest
from harness.records.rows import ROWS_FILE, last_attempts, load_rows, read_rows
from harness.records.store import Store


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def write(folder, manifest, rows):
    with Store(folder) as store:
        earlier = store.begin(manifest)
        store.append(rows)
    return earlier


def test_a_last_line_torn_at_any_byte_costs_that_line_alone(tmp_path, row, manifest):
    first, second, last = row(1), row(2), row(3, rounds=[], prefill=[], spans=None)  # short: each byte is tried
    write(tmp_path, manifest(), [first, second])
    kept = (tmp_path / ROWS_FILE).read_bytes()
    write(tmp_path, manifest(), [last])
    whole = (tmp_path / ROWS_FILE).read_bytes()
    for end in range(len(kept), len(whole) + 1):
        (tmp_path / ROWS_FILE).write_bytes(whole[:end])
        expected = [first, second, last] if end >= len(whole) - 1 else [first, second]
        assert list(read_rows(tmp_path)) == expected
        with Store(tmp_path) as store:
            assert store.begin(manifest()) == expected
            if last not in expected:
                store.append([last])
        assert (tmp_path / ROWS_FILE).read_bytes() == whole


def test_a_block_torn_at_any_byte_leaves_its_whole_lines_for_a_second_attempt(tmp_path, row, manifest):
    write(tmp_path, manifest(), [])
    block = [row(1), row(2, method="all-small")]
    lines = "".join(f"{part.model_dump_json()}\n" for part in block).encode()
    again = [part.model_copy(update={"attempt": 2}) for part in block]
    for end in range(0, len(lines), 31):
        (tmp_path / ROWS_FILE).write_bytes(lines[:end])
        write(tmp_path, manifest(), again)
        assert last_attempts(read_rows(tmp_path)) == again


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"{", b'{"key": "\xff', b"[]", b"garbage"])
def test_rubbish_behind_the_last_newline_is_passed_over_and_cut(tmp_path, row, manifest, tail):
    write(tmp_path, manifest(), [row(1)])
    good = (tmp_path / ROWS_FILE).read_bytes()
    (tmp_path / ROWS_FILE).write_bytes(good + tail)
    assert list(read_rows(tmp_path)) == [row(1)]
    assert write(tmp_path, manifest(), []) == [row(1)]
    assert (tmp_path / ROWS_FILE).read_bytes() == good


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data.replace(b"\n", b"\n\n"),
        lambda data: b"\n" + data + b" \n\t\n",
        lambda data: codecs.BOM_UTF8 + data,
        lambda data: codecs.BOM_UTF8 + data.rstrip(b"\n"),
        lambda data: data.rstrip(b"\n"),
        lambda data: data.replace(b"\n", b"\r\n"),
    ],
    ids=["blank lines", "blank ends", "BOM", "BOM and no newline", "no final newline", "CRLF"],
)
@pytest.mark.parametrize("count", [1, 3])
def test_rows_that_an_editor_saved_again_are_all_read_and_kept(tmp_path, row, manifest, edit, count):
    rows = [row(number) for number in range(count)]
    write(tmp_path, manifest(), rows)
    file = tmp_path / ROWS_FILE
    file.write_bytes(edit(file.read_bytes()))
    assert list(read_rows(tmp_path)) == rows
    assert write(tmp_path, manifest(), [row(9)]) == rows
    assert list(read_rows(file)) == [*rows, row(9)]


def test_line_separators_inside_a_string_do_not_split_a_row(tmp_path, row, manifest):
    write(tmp_path, manifest(), [row(1, error="a\u2028b\u0085c\x0bd\x1ce")])
    assert load_rows(tmp_path)["error"].tolist() == ["a\u2028b\u0085c\x0bd\x1ce"]


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"schema_version": 1}', b'"text"', b"\xff"])
def test_a_broken_line_before_the_last_is_an_error_that_names_it(tmp_path, row, manifest, line):
    write(tmp_path, manifest(), [row(1), row(2)])
    file = tmp_path / ROWS_FILE
    first, second, _ = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([first, line, second, b""]))
    before = file.read_bytes()
    with pytest.raises(UserError, match=rf"{ROWS_FILE}:2: not a row of schema 1"):
        write(tmp_path, manifest(), [])
    assert file.read_bytes() == before


def test_a_row_of_a_later_schema_is_not_mistaken_for_one_of_ours(tmp_path, row, manifest):
    write(tmp_path, manifest(), [row(1)])
    file = tmp_path / ROWS_FILE
    file.write_bytes(file.read_bytes().replace(b'"schema_version":1', b'"schema_version":2'))
    with pytest.raises(UserError, match="schema_version"):
        list(read_rows(tmp_path))


def test_a_file_joined_from_two_runs_is_not_gone_on_with(tmp_path, row, manifest):
    write(tmp_path, manifest(), [row(1), row(1)])
    with pytest.raises(UserError, match=rf"{ROWS_FILE}: attempt 1 of autoregressive on nq/1/0 stands twice"):
        write(tmp_path, manifest(), [])
    assert len(read_manifest(tmp_path).starts) == 1


def test_every_start_is_in_the_manifest(tmp_path, manifest):
    for _ in range(3):
        write(tmp_path, manifest(threads=2, out="elsewhere"), [])
    assert len(read_manifest(tmp_path).starts) == 3


def test_a_manifest_that_asks_for_something_else_is_refused_by_key(tmp_path, manifest):
    write(tmp_path, manifest(), [])
    with pytest.raises(UserError, match=r"another run \(seed, top_k differ\)"):
        write(tmp_path, manifest(seed=1, top_k=3), [])


def test_a_folder_in_which_nothing_was_begun_is_left_as_it_was_found(tmp_path):
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "there", tmp_path / "new"):
        with Store(folder):
            pass
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_two_runs_cannot_write_to_one_folder(tmp_path, row, manifest):
    with Store(tmp_path) as store:
        with pytest.raises(UserError, match="another run is writing there"), Store(tmp_path):
            pass
        store.begin(manifest())
        store.append([row(1)])
    assert write(tmp_path, manifest(), []) == [row(1)]
