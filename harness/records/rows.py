"""Reading a run's rows."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from foundation.errors import UserError
from foundation.strict_model import first_fault
from harness.records.schema import Row

if TYPE_CHECKING:
    import pandas as pd

ROWS_FILE = "rows.jsonl"


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a run folder or a `rows.jsonl` file, every attempt, in file order.

    A torn last line (a run killed in mid-write) is skipped; a whole last line may lack its newline.

    Raises:
        UserError: no such file, or a line that is not a row of schema 1.
    """
    file = path / ROWS_FILE if path.is_dir() else path
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                row = _parse_row(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, file, number)
                if row is not None:
                    yield row
    except OSError as error:
        raise UserError(f"{file}: no rows to read ({error.strerror}); give the folder of a run") from error


def _parse_row(line: bytes, file: Path, number: int) -> Row | None:
    """Return a line's row; None where it is blank, or torn: broken and without a newline."""
    if not line.strip():
        return None
    try:
        return Row.model_validate_json(line)
    except ValidationError as error:
        if not line.endswith(b"\n"):
            return None
        line_fault = first_fault(error).line("line")
        raise UserError(
            f"{file}:{number}: not a row of schema 1 ({line_fault}); restore the file or remove the line"
        ) from error


_PLACE = attrgetter("pair", "clock", "seed", "repeat", "task", "question_id", "turn", "method")

OfRow = TypeVar("OfRow")
"""A row, or an object with its fields."""


def last_attempts(rows: Iterable[OfRow], where: str | Path = "rows") -> list[OfRow]:
    """Return the last attempt of each key, in the order the keys first came.

    A key holds the prompt. An answer to another prompt, or to one that could not be built, has a key of its own and
    also gives way to a later attempt at the same place of the run.

    Raises:
        UserError: the same attempt twice: files were joined or edited.
    """
    latest: dict[str, Any] = {}
    places: dict[Any, int] = {}
    for row in rows:
        one: Any = row
        earlier = latest.get(one.key)
        if earlier is not None and earlier.attempt == one.attempt:
            raise UserError(
                f"{where}: attempt {one.attempt} of {one.method} on {one.task}/{one.question_id}/{one.turn} stands "
                "twice; the file was joined or edited: restore it"
            )
        if earlier is None or one.attempt > earlier.attempt:
            latest[one.key] = one
        places[_PLACE(one)] = max(one.attempt, places.get(_PLACE(one), 0))
    return [one for one in latest.values() if one.attempt == places[_PLACE(one)]]


def load_rows(path: str | Path) -> pd.DataFrame:
    """Return the last attempt of each row as a data frame, with the columns of `Row` and `timed_tokens`.

    Args:
        path: the folder of a run, or a `rows.jsonl` file.

    Raises:
        UserError: no such file, a line that is not a row, or the same attempt twice.
    """
    import pandas as pd

    rows = last_attempts(read_rows(Path(path)), path)
    columns = [*Row.model_fields, "timed_tokens"]
    records = [{**dict(row), "timed_tokens": row.timed_tokens} for row in rows]
    return pd.DataFrame.from_records(records, columns=columns)
