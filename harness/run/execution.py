"""One run, from a plan to a folder of rows. Torch is imported only once the configuration is valid."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.errors import UserError
from foundation.progress import Bar, no_bar
from harness.records.manifest import Manifest, MethodTraits
from harness.records.rows import last_attempts
from harness.records.schema import Row
from harness.records.store import Store
from harness.run.plan import Plan, make_plan
from harness.run.workload import BlockId
from methods.catalog import MethodSpec, load_family

if TYPE_CHECKING:
    from harness.models.loading import LoadedPair
    from harness.run.block_runner import BlockRunner
    from methods.method import Method, Models

_LOG = logging.getLogger("treegraft")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    folder: Path
    rows: list[Row]

    @property
    def failed(self) -> list[Row]:
        """Rows that failed."""
        return [row for row in self.rows if row.status == "failed"]

    @property
    def different(self) -> list[Row]:
        """Rows whose output differs from the baseline's by more than rounding."""
        return [row for row in self.rows if row.verdict == "different"]

    @property
    def exit_code(self) -> int:
        """0 when no row failed or differs, else 1."""
        return int(bool(self.failed or self.different))


def run(
    config: str | Path | None = None, *, progress: Bar = no_bar, command: list[str] | None = None, **keys: Any
) -> Outcome:
    """Run a benchmark, or continue one that was stopped; return its folder and all its rows.

    Args:
        config: a YAML file with the keys of `RunConfig`.
        progress: shows how many blocks are done.
        command: the command line, for the manifest.
        **keys: keys of `RunConfig`; they override the file's.

    Raises:
        UserError: unusable input or environment.
    """
    plan = make_plan(None if config is None else Path(config), keys)
    return execute(plan, progress=progress, command=command or sys.argv)


def execute(plan: Plan, *, progress: Bar, command: list[str]) -> Outcome:
    """Carry out a plan; see `run`."""
    from harness.models import loading
    from harness.run.block_runner import BlockRunner

    folder = Path(plan.config.out or f"runs/{datetime.now(UTC):%Y%m%d-%H%M%S}")
    for spec in plan.methods:
        load_family(spec.family)  # a plug-in that does not load is refused before any model is loaded
    with Store(folder) as store:
        loaded = loading.load_for(plan.pair, plan.config)
        make = partial(_make, models=loaded.models)
        runner = BlockRunner(loaded, plan.methods, make, plan.config, plan.data, plan.profile)
        rows = store.begin(_manifest(plan, loaded, command))
        attempts = _open_blocks(plan, rows)
        if attempts:
            if rows:
                _tell_cold_starts(plan, store)
            rows += _run_blocks(plan, loaded, runner, store, attempts, progress)
    return Outcome(folder, last_attempts(rows))


def _manifest(plan: Plan, loaded: LoadedPair, command: list[str]) -> Manifest:
    from harness.models.gpus import gpu_uuids
    from harness.models.prompting import prompting_of
    from harness.records.provenance import this_start

    tokenizer = loaded.models.tokenizer
    return Manifest(
        config=plan.config.model_copy(update={"methods": [spec.name for spec in plan.methods]}),
        pair=plan.pair,
        weights=loaded.weights,
        engines=loaded.engines,
        prompting=prompting_of(tokenizer, plan.pair.template, loaded.eos_ids, plan.config.template_date),
        methods=plan.methods,
        traits={spec.name: MethodTraits.of(spec) for spec in plan.methods},
        tasks=plan.data,
        profile=plan.profile,
        starts=[this_start(command, gpu_uuids(loaded.models), loaded.engine_details)],
    )


def _run_blocks(
    plan: Plan,
    loaded: LoadedPair,
    runner: BlockRunner,
    store: Store,
    attempts: dict[BlockId, int],
    progress: Bar,
) -> list[Row]:
    """Run the open blocks, store each as soon as it is done, and return their rows."""
    from foundation.gc_control import quick_collections
    from harness.clocks.latency import run_latency

    todo = [block for block in plan.blocks if block.id in attempts]
    rows: list[Row] = []
    with quick_collections(), progress("blocks", len(todo)) as advance:
        if store.latency is None and any("middle" in spec.needed_drafters for spec in plan.methods):
            prompts = list(runner.first_prompts(plan.blocks))
            store.note_latency(run_latency(loaded, plan.config, plan.profile, prompts))
        runner.set_latency(store.latency)
        runner.warm_up(todo[0])
        for block in todo:
            ran = runner.run_block(block, attempts[block.id])
            new = [row.model_copy(update={"start": store.start}) for row in ran]
            store.append(new)
            rows += new
            advance(1, block.task)
    return rows


def _tell_cold_starts(plan: Plan, store: Store) -> None:
    """Tell of methods that would remember the blocks of earlier starts, in the log and in the manifest."""
    cold = [spec.name for spec in plan.methods if spec.facts.memory == "run"]
    if cold:
        note = f"{', '.join(cold)} (memory: run) start cold: what was learnt from the questions before is lost"
        _LOG.warning("%s: goes on; %s", store.folder, note)
        store.note_start(note)


def _make(spec: MethodSpec, models: Models) -> Method:
    try:
        return load_family(spec.family)(models, spec.settings)
    except UserError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise UserError(
            f"method {spec.name!r} cannot be made ({type(error).__name__}: {error}); fix its settings or its plug-in"
        ) from error


def _open_blocks(plan: Plan, rows: Iterable[Row]) -> dict[BlockId, int]:
    """Return the blocks still to run with the number of their next attempt: incomplete ones, or with a failed row."""
    open_blocks: dict[BlockId, int] = {}
    by_block: dict[BlockId, list[Row]] = {}
    for row in rows:
        by_block.setdefault((row.task, row.question_id, row.repeat), []).append(row)
    for block in plan.blocks:
        last = max((row.attempt for row in by_block.get(block.id, [])), default=0)
        latest = [row for row in by_block.get(block.id, []) if row.attempt == last]
        answers = len({(row.method, row.turn) for row in latest})
        is_incomplete = answers < len(plan.methods) * len(block.question.turns)
        if is_incomplete or any(row.status == "failed" for row in latest):
            open_blocks[block.id] = last + 1
    return open_blocks
