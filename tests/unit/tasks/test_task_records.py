import gzip
import json

import pytest

from foundation.errors import UserError
from tasks.records import read_records


def write(path, text):
    path.write_text(text, encoding="utf-8", newline="")
    return path


def fields(path):
    return [record.fields for record in read_records(path)]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_a_line_separator_inside_a_string_does_not_split_the_record(tmp_path, separator):
    text = f"one{separator}two"
    line = json.dumps({"a": text}, ensure_ascii=False)

    assert fields(write(tmp_path / "x.jsonl", f"{line}\n{line}\n")) == [{"a": text}, {"a": text}]


def test_blank_lines_are_skipped_but_counted_in_places(tmp_path):
    path = write(tmp_path / "x.jsonl", '\n{"a": 1}\n  \n{"a": 2}\n\n')

    records = read_records(path)

    assert [record.fields["a"] for record in records] == [1, 2]
    assert [record.row for record in records] == [0, 1]
    assert [record.place for record in records] == [f"{path}:2", f"{path}:4"]


@pytest.mark.parametrize("text", ['\ufeff{"a": 1}\n', '{"a": 1}', '{"a": 1}\r\n'])
def test_a_bom_a_missing_final_newline_and_windows_line_ends_are_tolerated(tmp_path, text):
    assert fields(write(tmp_path / "x.jsonl", text)) == [{"a": 1}]


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff"])
def test_an_empty_file_is_an_error_that_names_it(tmp_path, text):
    path = write(tmp_path / "x.jsonl", text)

    with pytest.raises(UserError, match=r"x\.jsonl: holds no questions"):
        read_records(path)


@pytest.mark.parametrize("bad", ['{"a": 1', "[1]", '"text"', "null", "3", '{"a": ' + "9" * 5000 + "}", "[" * 100_000])
def test_a_line_that_is_no_json_object_is_an_error_that_names_file_and_line(tmp_path, bad):
    path = write(tmp_path / "x.jsonl", f'{{"a": 1}}\n\n{bad}\n')

    with pytest.raises(UserError, match=r"x\.jsonl:3: is"):
        read_records(path)


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_bytes_that_are_not_utf8_are_an_error_that_names_file_and_line(tmp_path, bom):
    path = tmp_path / "x.jsonl"
    path.write_bytes(bom + b'{"a": 1}\n{"a": "caf\xe9"}\n')

    with pytest.raises(UserError, match=r"x\.jsonl:2: is not UTF-8"):
        read_records(path)


def test_gzipped_lines_are_read(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n'))

    assert fields(path) == [{"a": 1}]


WHOLE = gzip.compress(b'{"a": 1}\n' * 50)


@pytest.mark.parametrize(
    "data", [b'{"a": 1}\n', WHOLE[:-9], WHOLE[:12] + b"\xff\xff\xff" + WHOLE[15:]], ids=["plain", "cut", "garbled"]
)
def test_broken_gzip_is_an_error_that_names_the_file(tmp_path, data):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(data)

    with pytest.raises(UserError, match=r"x\.jsonl\.gz: is broken gzip"):
        read_records(path)


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    (tmp_path / "x.jsonl").mkdir()

    with pytest.raises(UserError, match=r"x\.jsonl: cannot be read"):
        read_records(tmp_path / "x.jsonl")


def test_a_json_list_gives_its_records(tmp_path):
    assert fields(write(tmp_path / "x.json", '[{"a": 1},\n {"a": 2}]')) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "is not a JSON list"),
        ('[{"a": 1}, 2]', "record 2: is a JSON int"),
        ("[{", "is not JSON"),
        ("[]", "holds no"),
    ],
)
def test_a_json_file_that_is_no_list_of_objects_is_an_error(tmp_path, text, message):
    path = write(tmp_path / "x.json", text)

    with pytest.raises(UserError, match=rf"x\.json: {message}"):
        read_records(path)


def test_a_quoted_csv_field_may_span_lines_and_hold_quotes_and_separators(tmp_path):
    text = 'article,highlights,id\n"One ""two"",\nthree\u2028four","a .\nb .",7\nplain,c,8\n'

    assert fields(write(tmp_path / "x.csv", text)) == [
        {"article": 'One "two",\nthree\u2028four', "highlights": "a .\nb .", "id": "7"},
        {"article": "plain", "highlights": "c", "id": "8"},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", r"x\.csv:3: has not as many fields"),
        ("a,b\n1,2,3\n", r"x\.csv:2: has not as many fields"),
        ('a,b\n"1,2\n', r"x\.csv:2: is broken CSV"),
        ("a,b\n", r"x\.csv: holds no questions"),
    ],
)
def test_broken_csv_is_an_error_that_names_file_and_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_records(write(tmp_path / "x.csv", text))
