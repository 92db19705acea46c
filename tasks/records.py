"""Files to records: JSON lines (plain or gzipped), a JSON list, or CSV; errors name the file and the line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import UserError


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a source."""

    place: str
    """file:line, for errors."""
    row: int
    """Its number in the source, from 0."""
    fields: dict[str, Any]


def read_records(path: Path) -> list[Record]:
    """Return the records of a `.jsonl`, `.jsonl.gz`, `.json` or `.csv` file; raises UserError if broken or empty."""
    text = _read_text(path)
    parse = {".csv": _csv_records, ".json": _list_records}.get(path.suffix, _line_records)
    records = list(parse(path, text))
    if not records:
        raise UserError(f"{path}: holds no questions: fill it or remove it")
    return records


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: is broken gzip ({error}): fetch it again") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): fix its permissions or remove it") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The decoder counts positions from behind a BOM.
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: is not UTF-8 ({error.reason}): save it as UTF-8") from error


def _line_records(path: Path, text: str) -> Iterator[Record]:
    row = 0
    # Not splitlines(): it also cuts at U+2028 and U+0085, which may stand inside a JSON string.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{path}:{number}"
            yield Record(place, row, _object(_json(place, line), place))
            row += 1


def _list_records(path: Path, text: str) -> Iterator[Record]:
    value = _json(str(path), text)
    if not isinstance(value, list):
        raise UserError(f"{path}: is not a JSON list of records: fix it, or call it .jsonl if it has one record a line")
    for row, item in enumerate(value):
        place = f"{path}: record {row + 1}"
        yield Record(place, row, _object(item, place))


def _csv_records(path: Path, text: str) -> Iterator[Record]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row, fields in enumerate(reader):
            place = f"{path}:{reader.line_num}"  # the line on which the record ends: a quoted field may span several
            if None in fields or None in fields.values():
                raise UserError(f"{place}: has not as many fields as the header: fix its quotes and commas")
            yield Record(place, row, fields)
    except csv.Error as error:
        raise UserError(f"{path}:{reader.reader.line_num}: is broken CSV ({error}): fix its quotes") from error


def _json(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{place}: is not JSON ({error}): fix or remove it") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: is JSON that cannot be read ({error}): fix or remove it") from error


def _object(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{place}: is a JSON {type(value).__name__}, not an object: write {{...}}")
    return value
