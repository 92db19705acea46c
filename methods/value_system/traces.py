"""Traced rounds as Parquet: one file an answer, one row a place. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from methods.core.generation import Forward, Round

if TYPE_CHECKING:
    import pyarrow as pa

    from methods.value_system.enumeration import TracedRound

SCHEMA_VERSION = "1"


@dataclass(frozen=True, slots=True)
class TracedAnswer:
    """The rounds that begin at every place of one answer but the last, under every schedule.

    Attributes:
        facts: what the answer is: task, question, digest of its question, prompt tokens, tokens.
        rounds: one mapping a round: `context`, `outcomes`, `signals`; see `TracedRound`.
    """

    facts: dict[str, str]
    rounds: list[dict[str, Any]]


def write_traces(file: Path, facts: Mapping[str, str], rounds: Iterable[TracedRound]) -> int:
    """Write an answer's rounds, whole or not at all; return how many they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = [
        {
            "context": one.context,
            "outcomes": [asdict(outcome) for outcome in one.outcomes],
            "signals": [{"prefix": prefix, "values": values} for prefix, values in one.signals.items()],
        }
        for one in rounds
    ]
    metadata = {"treegraft_schema": SCHEMA_VERSION, **facts}
    table = pa.Table.from_pylist(records, schema=_schema().with_metadata(metadata))
    scratch = file.with_suffix(".new")
    try:
        pq.write_table(table, scratch, compression="zstd")
        scratch.replace(file)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror}); make room and run the same again") from error
    return len(records)


def read_traces(file: Path) -> TracedAnswer:
    """Return an answer's rounds.

    Raises:
        UserError: the file cannot be read or holds something else.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{file}: no traces can be read ({str(error).splitlines()[0]}); remove it") from error
    facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    if facts.pop("treegraft_schema", None) != SCHEMA_VERSION or not table.schema.equals(_schema()):
        raise UserError(f"{file}: holds no traces of this version; remove it")
    rounds = table.to_pylist()
    for one in rounds:
        one["signals"] = {state["prefix"]: state["values"] for state in one["signals"]}
    return TracedAnswer(facts, rounds)


def recorded_round(record: Mapping[str, Any]) -> Round:
    """Return an outcome's round."""
    return Round(**{**record, "forwards": [Forward(**forward) for forward in record["forwards"]]})


def _schema() -> pa.Schema:
    import pyarrow as pa

    forward = pa.struct({"role": pa.string(), "step": pa.int16(), "tokens": pa.int32(), "context": pa.int32()})
    record = pa.struct(
        {
            "schedule": pa.list_(pa.int8()),
            "drafted": pa.int32(),
            "accepted": pa.int32(),
            "forwards": pa.list_(forward),
            "by_middle": pa.int32(),
        }
    )
    outcome = pa.struct({"asked": pa.string(), "committed": pa.int32(), "record": record})
    state = pa.struct({"prefix": pa.string(), "values": pa.list_(pa.float64())})
    return pa.schema(
        {
            "context": pa.int32(),
            "outcomes": pa.list_(outcome),
            "signals": pa.list_(state),
        }
    )
