"""Traces of a recorded run: every schedule at every place, one Parquet file an answer, resumable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.progress import Bar
from harness.records.schema import Row
from harness.replay.recorded_run import RecordedRun
from harness.training.enumeration import Enumerator
from harness.training.traces import SCHEMA_VERSION, TracedAnswer, fault_in, read_traces, traced_places, write_traces
from methods.catalog import BASELINE, MethodSpec, resolve
from methods.settings import DRAFTING_KEYS
from methods.treegraft.method import SMALL_DRAFTERS
from tasks.known_eval import question_digest

MOST_STEPS = 8
"""Most steps of a traced round: it has 2^steps schedules."""


def greedy_answers(recorded: RecordedRun) -> list[Row]:
    """Return the baseline's greedy answers of a run, without repeats."""
    if recorded.config.temperature:
        raise UserError(
            f"{recorded.folder}: it sampled, and only greedy text can be traced; run again with temperature 0"
        )
    if recorded.pair.middle is None:
        raise UserError(f"{recorded.folder}: pair {recorded.pair.name}: {recorded.pair.no_middle}")
    rows = [row for row in recorded.rows if row.method == BASELINE and row.status == "ok" and row.committed]
    answers: dict[tuple[str | int, ...], Row] = {}
    for row in rows:
        answers.setdefault((row.task, row.question_id, row.turn, *row.token_ids), row)
    if not answers:
        raise UserError(f"{recorded.folder}: holds no answer of the baseline to trace; run it first")
    return list(answers.values())


def traced_spec(recorded: RecordedRun, settings: Mapping[str, Any]) -> MethodSpec:
    """Return the method to trace, with `settings` over the pair's and the run's parameters."""
    pair, config = recorded.pair, recorded.config.drafting
    spec = resolve("treegraft-fixed", pair=pair.defaults, config=config, flags=settings)
    small = spec.settings.small
    if not SMALL_DRAFTERS[small].is_traceable:
        raise UserError(
            f"{recorded.folder}: pair {pair.name}: rounds of small {small} cannot be traced; leave its small out"
        )
    if spec.settings.steps > MOST_STEPS:
        raise UserError(
            f"{recorded.folder}: {spec.settings.steps} steps have {2**spec.settings.steps} schedules, too many to "
            f"trace; give steps {MOST_STEPS} at most"
        )
    return spec


class Collector:
    """Traces the baseline's answers of a run.

    Args:
        recorded: the run; greedy, of a pair with a middle drafter.
        folder: of the traces.
        settings: drafting settings over those of the pair and the run.
        limit: most questions a task, those with the lowest ids; None takes all.

    Raises:
        UserError: a run that cannot be traced, or a folder that cannot be made.
    """

    def __init__(
        self,
        recorded: RecordedRun,
        folder: Path,
        settings: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> None:
        answers = greedy_answers(recorded)
        chosen = first_questions(answers, limit)
        self.answers = [row for row in answers if (row.task, row.question_id) in chosen]
        self._recorded, self._folder, self._settings = recorded, folder, dict(settings or {})
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: cannot be made ({error.strerror}); give another folder") from error

    def collect(self, bar: Bar) -> list[TracedAnswer]:
        """Trace the answers that lack a trace; return the traces of all."""
        files = []
        with bar("answers traced", len(self.answers)) as advance:
            for row in self.answers:
                identity = f"{row.key} {_digest_of(row)} {json.dumps(self.drafting, sort_keys=True)} {SCHEMA_VERSION}"
                name = f"{row.task}-{row.question_id}-{row.turn}-{row.repeat}"
                files.append(self._folder / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.parquet")
                if not files[-1].exists():
                    most, prompt = self._recorded.config.max_new_tokens, self._recorded.prompt(row)
                    write_traces(files[-1], self._facts(row), self._enumerator.trace(prompt, row.token_ids, most))
                advance(1, row.task)
        return [self._checked(row, file) for row, file in zip(self.answers, files, strict=True)]

    def _checked(self, row: Row, file: Path) -> TracedAnswer:
        answer, facts = read_traces(file), self._facts(row)
        strange = sorted(dict(facts.items() ^ answer.facts.items()))
        if strange:
            raise UserError(f"{file}: {strange[0]}: not that of the run's answer; remove it, and it is traced anew")
        places = traced_places(answer.tokens, self._recorded.config.max_new_tokens)
        fault = fault_in(answer, self.spec.settings.steps, places)
        if fault is not None:
            raise UserError(f"{file}: {fault}; it was edited: remove it, and it is traced anew")
        return answer

    def _facts(self, row: Row) -> dict[str, str]:
        return {
            "task": row.task,
            "question_id": str(row.question_id),
            "turn": str(row.turn),
            "repeat": str(row.repeat),
            "question": question_digest(self._recorded.question(row.task, row.question_id)),
            "prompt_tokens": str(row.prompt_tokens),
            "tokens": str(row.committed),
            "text": _digest_of(row),
        }

    @cached_property
    def spec(self) -> MethodSpec:
        """The traced method; see `traced_spec`."""
        return traced_spec(self._recorded, self._settings)

    @property
    def drafting(self) -> dict[str, Any]:
        """The settings that determine what its schedules draft, none of them fitted."""
        return self.spec.settings.model_dump(mode="json", include=set(DRAFTING_KEYS))

    @cached_property
    def _enumerator(self) -> Enumerator:
        return Enumerator(self._recorded.drafting_models(self.spec), self.spec.settings)


def _digest_of(row: Row) -> str:
    """Return the SHA-256 (hex) of an answer's token ids: another machine's may differ under the same key."""
    return hashlib.sha256(" ".join(map(str, row.token_ids)).encode()).hexdigest()


def first_questions(answers: Sequence[Row], limit: int | None) -> set[tuple[str, int]]:
    """Return the questions with the lowest ids, `limit` a task."""
    ids: dict[str, set[int]] = {}
    for row in answers:
        ids.setdefault(row.task, set()).add(row.question_id)
    return {(task, one) for task, own in ids.items() for one in sorted(own)[:limit]}
