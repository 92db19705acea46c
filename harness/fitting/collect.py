"""Traces of a recorded run: every schedule of its rounds, one Parquet file an answer, resumable."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UserError
from harness.flags import Bar
from harness.recorded import RecordedRun
from harness.results import Row
from methods.catalog import BASELINE, MethodSpec, resolve
from methods.schedulers.scheduler import Latency
from methods.value_system.enumeration import Enumerator
from methods.value_system.traces import TracedAnswer, read_traces, write_traces
from tasks.known_eval import question_digest

MIXED = ("never", "fixed", "random")
"""Policies that start rounds before anything is fitted: look-up alone, the pair's schedule, chance."""


class Collector:
    """Traces the baseline's answers of a run.

    Args:
        recorded: the run; greedy, of a pair with a middle drafter.
        folder: where traces are kept.
        latency: T_tgt and T_mid, as schedulers are told.
        every: of so many rounds one is traced.
        seed: of policies.

    Raises:
        UserError: a run that cannot be traced, or a folder that cannot be made.
    """

    def __init__(self, recorded: RecordedRun, folder: Path, latency: Latency, *, every: int, seed: int) -> None:
        if recorded.config.temperature:
            raise UserError("RUN: it sampled, and only greedy text can be traced; run again with temperature 0")
        if recorded.pair.middle is None:
            raise UserError(f"RUN: pair {recorded.pair.name}: {recorded.pair.no_middle}")
        self.answers = [row for row in recorded.rows if row.method == BASELINE and row.status == "ok" and row.committed]
        if not self.answers:
            raise UserError("RUN: holds no answer of the baseline to trace; run it first")
        self._recorded, self._folder, self._latency = recorded, folder, latency
        self._every, self._seed = every, seed
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: cannot be made ({error.strerror}); give another folder") from error

    @property
    def drafting(self) -> MethodSpec:
        """The method whose rounds are traced, with the pair's and the run's parameters."""
        return self._policy("fixed", None)

    def collect(self, policies: Sequence[str], artifact: Path | None, bar: Bar) -> list[Path]:
        """Trace what is not traced yet, each answer along one of the policies; return the files of all.

        Args:
            policies: names of schedulers; which of them an answer follows is drawn by its question.
            artifact: of the learned scheduler, where that is a policy.
            bar: shows progress.
        """
        specs = {name: self._policy(name, artifact) for name in policies}
        files = []
        with bar("answers traced", len(self.answers)) as advance:
            for row in self.answers:
                place = f"{row.task}-{row.question_id}-{row.turn}-{row.repeat}"
                name = random.Random(f"{self._seed} {place}").choice(list(policies))
                asked = f"{row.key} {_identity(specs[name])} {self._latency} {self._every}"
                file = self._folder / f"{place}-{name}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.parquet"
                if not file.exists():
                    self._trace(row, specs[name], name, file)
                files.append(file)
                advance(1, row.task)
        return files

    def _policy(self, name: str, artifact: Path | None) -> MethodSpec:
        config = self._recorded.config.model_dump(include={"steps", "width", "budget"}, exclude_none=True)
        own = {"scheduler": name} if name != "never" else {"scheduler": "fixed"}
        if artifact is not None:
            own["artifact"] = str(artifact)
        base = {"treegraft-fixed": own}
        spec = resolve("treegraft-fixed", definitions=base, pair=self._recorded.pair.defaults, config=config, flags={})
        if name == "never":
            settings = spec.settings.model_copy(update={"schedule": (0,) * spec.settings.steps})
            spec = spec.model_copy(update={"settings": settings})
        return spec

    def _trace(self, row: Row, spec: MethodSpec, policy: str, file: Path) -> None:
        enumerator = Enumerator(self._recorded.drafting_models(spec), spec.settings)
        enumerator.latency = self._latency
        facts = {
            "task": row.task,
            "question_id": str(row.question_id),
            "turn": str(row.turn),
            "question": question_digest(self._recorded.question(row.task, row.question_id)),
            "policy": policy,
            "prompt_tokens": str(row.prompt_tokens),
        }
        limit = self._recorded.config.max_new_tokens
        prompt = self._recorded.prompt(row)
        write_traces(file, facts, enumerator.trace(prompt, row.token_ids, limit, every=self._every))


def _identity(spec: MethodSpec) -> str:
    return spec.model_dump_json(exclude={"settings": {"artifact"}})  # what is in it counts, not where it lies


def traced(files: Sequence[Path]) -> list[TracedAnswer]:
    """Return the traced answers of files that hold rounds."""
    return [answer for answer in map(read_traces, files) if answer.rounds]
