"""Traced rounds as Parquet: one file an answer, one row a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.atomic_write import write_whole
from foundation.errors import UserError
from harness.training.policy_rollout import schedules_behind
from methods.core.generation import Forward, Round
from methods.schedulers.signals import LOOKUP_SIGNALS, TREE_SIGNALS

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = "2"
"""Raise it whenever drafting or the content of traces changes: kept traces of the same version are reused."""


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """The outcome of one schedule in a round."""

    asked: str
    """The schedule as far as drafting went, one bit a step, the step that ended it included."""
    committed: int
    """Tokens committed, the bonus token among them."""
    record: Round
    """The round, as decoding would have recorded it."""


@dataclass(frozen=True, slots=True)
class TracedRound:
    """A round that begins at one place of an answer, under every schedule."""

    context: int
    """Committed tokens before it, the prompt's included."""
    outcomes: list[ScheduleOutcome]
    """One for each schedule; schedules that coincide after drafting ended early stand once."""
    signals: dict[str, list[float]]
    """For each prefix of a schedule before a decision: the signals of the tree."""
    lookup: list[float]
    """The signals of the root's look-up."""


@dataclass(frozen=True, slots=True)
class TracedAnswer:
    """The rounds that begin at every place of one answer where something may be drafted, under every schedule.

    Attributes:
        facts: task, question and its digest, prompt tokens, tokens.
        rounds: one mapping a round: `context`, `outcomes`, `signals`, `lookup`; see `TracedRound`.
    """

    facts: dict[str, str]
    rounds: list[dict[str, Any]]

    @property
    def tokens(self) -> int:
        """Tokens of the answer."""
        return int(self.facts["tokens"])


def traced_places(tokens: int, max_new_tokens: int) -> int:
    """Return the number of places of an answer where decoding drafts: not where one token more may come."""
    return min(tokens, max_new_tokens - 1)


def write_traces(file: Path, facts: Mapping[str, str], rounds: Iterable[TracedRound]) -> None:
    """Write an answer's rounds, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = [
        {
            "context": one.context,
            "outcomes": [asdict(outcome) for outcome in one.outcomes],
            "signals": [{"prefix": prefix, "values": values} for prefix, values in one.signals.items()],
            "lookup": one.lookup,
        }
        for one in rounds
    ]
    metadata = {"treegraft_schema": SCHEMA_VERSION, **facts}
    table = pa.Table.from_pylist(records, schema=_schema().with_metadata(metadata))
    write_whole(
        file, lambda scratch: pq.write_table(table, scratch, compression="zstd"), "make room and run the same again"
    )


def read_traces(file: Path) -> TracedAnswer:
    """Return an answer's rounds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{file}: no traces can be read ({reason}); remove it") from error
    facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    if facts.pop("treegraft_schema", None) != SCHEMA_VERSION or not table.schema.equals(_schema()):
        raise UserError(f"{file}: holds no traces of this version; remove it")
    rounds = table.to_pylist()
    for one in rounds:
        one["signals"] = {state["prefix"]: state["values"] for state in one["signals"] or [] if state is not None}
    return TracedAnswer(facts, rounds)


def fault_in(answer: TracedAnswer, steps: int, places: int) -> str | None:
    """Return why an answer's rounds cannot be of a trace, None where they can.

    Args:
        answer: as read.
        steps: drafting steps (D).
        places: number of places where decoding drafts.
    """
    if len(answer.rounds) != places:
        return f"{len(answer.rounds)} rounds for {places} places"
    for place, one in enumerate(answer.rounds):
        fault = _fault_in_round(one, steps, answer.tokens - place)
        if fault is not None:
            return f"round {place}: {fault}"
    return None


def _fault_in_round(one: Mapping[str, Any], steps: int, left: int) -> str | None:
    outcomes, signals = one["outcomes"] or [], one["signals"]
    if None in outcomes:
        return "an outcome that is none"
    asked = [outcome["asked"] for outcome in outcomes]
    if not all(isinstance(bits, str) and len(bits) <= steps and not bits.strip("01") for bits in asked):
        return "a schedule that is none"
    numbers = (range(2 ** (steps + 1))[schedules_behind(bits, steps)] for bits in asked)
    if sorted(number for part in numbers for number in part) != [*range(2**steps, 2 ** (steps + 1))]:
        return "its schedules are not each there once"
    if {*signals} != {bits[:size] for bits in asked for size in range(len(bits))}:
        return "signals of other states than were decided in"
    if not all(_are_numbers(values, len(TREE_SIGNALS)) for values in signals.values()):
        return f"signals that are not {len(TREE_SIGNALS)} numbers"
    if not _are_numbers(one["lookup"], len(LOOKUP_SIGNALS)):
        return f"signals of look-up that are not {len(LOOKUP_SIGNALS)} numbers"
    for outcome in outcomes:
        record, committed = outcome["record"], outcome["committed"]
        if committed is None or not 1 <= committed <= left:
            return f"{committed} tokens committed where {left} are left"
        if record is None or not _is_record(record):
            return "an outcome without a whole record"
        if not _is_of_round(record, outcome["asked"], one["context"], committed):
            return "a record of another round"
    return None


def _are_numbers(values: Sequence[float | None] | None, count: int) -> bool:
    return values is not None and len(values) == count and all(one is not None and isfinite(one) for one in values)


def _is_record(record: Mapping[str, Any]) -> bool:
    schedule, forwards = record["schedule"], record["forwards"]
    if None in (schedule, forwards, record["drafted"], record["accepted"]) or None in schedule or None in forwards:
        return False
    roles = [forward["role"] for forward in forwards]
    sizes = [forward["tokens"] is not None and forward["tokens"] > 0 for forward in forwards]
    contexts = [forward["context"] is not None and forward["context"] >= 0 for forward in forwards]
    return {*roles} <= {"small", "middle", "target"} and roles.count("target") == 1 and all(sizes) and all(contexts)


def _is_of_round(record: Mapping[str, Any], asked: str, context: int | None, committed: int) -> bool:
    schedule, (target,) = record["schedule"], [one for one in record["forwards"] if one["role"] == "target"]
    return (
        schedule == [int(bit) for bit in asked[: len(schedule)]]
        and len(schedule) >= len(asked) - 1  # the step that ended drafting is not taken
        and target["tokens"] == record["drafted"] + 1
        and context is not None
        and target["context"] == context - 1
        and 0 <= committed - 1 <= record["accepted"] <= record["drafted"]
    )


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
            "lookup": pa.list_(pa.float64()),
        }
    )
