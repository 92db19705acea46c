import jsonschema
import pytest
from pydantic import ValidationError

from foundation.errors import UserError
from harness.records.manifest import Manifest
from harness.records.rows import last_attempts, load_rows
from harness.records.schema import Row


@pytest.fixture
def rows_file(tmp_path):
    def write(*rows):
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(f"{row.model_dump_json()}\n" for row in rows))
        return file

    return write


def test_load_rows_has_the_columns_of_a_row_and_the_timed_tokens(rows_file, row):
    table = load_rows(str(rows_file(row(1), row(2))))
    assert list(table.columns) == [*Row.model_fields, "timed_tokens"]
    assert table["question_id"].tolist() == [1, 2]
    assert table["token_ids"].tolist() == [[5, 6, 7]] * 2
    assert table["decode_s"].tolist() == [0.5, 0.5]


def test_a_file_without_rows_is_a_table_without_lines(rows_file):
    table = load_rows(rows_file())
    assert len(table) == 0
    assert "timed_tokens" in table.columns


def test_the_last_attempt_of_each_key_is_kept_where_the_key_first_came(rows_file, row):
    first = row(1, attempt=1, status="failed", verdict=None, error="out of memory")
    again = row(1, attempt=2)
    assert last_attempts([first, row(2), again]) == [again, row(2)]
    assert last_attempts([again, first]) == [again]
    assert load_rows(rows_file(first, row(2), again))["attempt"].tolist() == [2, 1]


def test_the_tokens_of_a_peers_first_forward_leave_the_rate_and_ours_do_not(row):
    assert row(1).timed_tokens == 3
    assert row(1, rounds=None, spans=None, decode_forwards=1, prefill_tokens=2).timed_tokens == 1


def test_a_row_survives_its_json_and_obeys_the_published_schema(row):
    for one in (row(1), row(2, status="failed", verdict=None, error="x", rounds=None, spans=None, finish=None)):
        text = one.model_dump_json()
        assert Row.model_validate_json(text) == one
        jsonschema.validate(one.model_dump(mode="json"), Row.model_json_schema())


@pytest.mark.parametrize("model", [Row, Manifest])
def test_every_field_is_documented_in_the_schema(model):
    undocumented = [name for name, field in model.model_fields.items() if not field.description]
    assert undocumented == []


@pytest.mark.parametrize("change", [{"attempt": 0}, {"verdict": "fine"}, {"status": "late"}, {"colour": 1}])
def test_a_row_refuses_what_the_schema_does_not_know(row, change):
    with pytest.raises(ValidationError):
        row(1, **change)


def test_what_was_asked_leaves_out_when_and_where(manifest):
    one = manifest(out="a", threads=1)
    two = manifest(out="b", threads=2).model_copy(update={"starts": []})
    assert one.identity() == two.identity()
    assert one.identity() != manifest(seed=1).identity()


def test_rows_that_are_not_there_are_an_error_that_says_what_to_give(tmp_path):
    with pytest.raises(UserError, match="give the folder of a run"):
        load_rows(tmp_path / "nowhere")


def test_an_answer_whose_prompt_could_not_be_built_gives_way_to_the_attempt_that_had_one(row):
    place = {"question_id": 1, "turn": 1}
    without = row(1, **place, status="failed", verdict=None, error="turn 0 of the baseline failed", prompt_tokens=None)
    again = row(2, **place, attempt=2)
    assert last_attempts([without, again]) == [again]
    assert last_attempts([again, without]) == [again]


def test_an_attempt_that_stands_twice_is_refused_wherever_rows_are_read(rows_file, row):
    file = rows_file(row(1), row(2), row(1, decode_s=0.1))
    with pytest.raises(UserError, match=rf"{file}: attempt 1 of autoregressive on nq/1/0 stands twice; .* restore it"):
        load_rows(file)
