"""One run, from configuration to a folder of rows. Imports torch only once the configuration is good."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware_profiles.profile import Profile
from harness.config import RunConfig, load_config, resolve_methods
from harness.errors import UserError
from harness.fitted import tell_fitted_elsewhere
from harness.method_checks import check_methods
from harness.pair import Pair, get_pair
from harness.plan import Block, load_blocks
from harness.results import Manifest, Row, TaskData, last_attempts
from harness.retiming import profile_of
from harness.store import Store
from methods.catalog import FAMILIES, PEERS, MethodSpec, needed_drafters

if TYPE_CHECKING:
    from methods.method import Method, Models

Progress = Callable[[Iterable[Block], int], AbstractContextManager[Iterator[Block]]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run will do, checked, before any model is loaded."""

    config: RunConfig
    pair: Pair
    methods: list[MethodSpec]
    blocks: list[Block]
    data: dict[str, TaskData]
    profile: Profile | None = None
    """What the clock charges; None measures."""

    @property
    def answers(self) -> int:
        """Rows that a whole run has."""
        return len(self.methods) * sum(len(block.question.turns) for block in self.blocks)


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
        """Rows whose output is not the baseline's, by more than rounding."""
        return [row for row in self.rows if row.verdict == "different"]

    @property
    def exit_code(self) -> int:
        """0 when all rows are good, else 1."""
        return int(bool(self.failed or self.different))


def make_plan(config_file: Path | None, flags: dict[str, Any]) -> Plan:
    """Check a configuration and load its questions.

    Args:
        config_file: a YAML file, or None.
        flags: what overrides it, by key.

    Raises:
        UserError: unusable input.
    """
    config, file_values = load_config(config_file, flags)
    pair = get_pair(config.pair)
    methods = resolve_methods(config, file_values, flags, pair.defaults)
    profile = profile_of(config.clock, pair)
    blind = [spec.name for spec in methods if profile is not None and spec.family in PEERS]
    if blind:
        raise UserError(
            f"clock {config.clock}: nobody sees the rounds of {', '.join(blind)}; leave them out of methods"
        )
    check_methods(pair, methods, profile)
    tell_fitted_elsewhere(pair, config.clock, methods)
    blocks, data = load_blocks(config)
    return Plan(config, pair, methods, blocks, data, profile)


def run(
    config: str | Path | None = None, *, progress: Progress | None = None, command: list[str] | None = None, **keys: Any
) -> Outcome:
    """Run a benchmark, or continue one that was stopped.

    Args:
        config: a YAML file with the keys of `RunConfig`.
        progress: wraps the blocks to show how far they are.
        command: what was typed, for the manifest.
        **keys: keys of `RunConfig`; they override the file's.

    Returns:
        The folder and its rows, earlier ones included.

    Raises:
        UserError: unusable input or environment.
    """
    plan = make_plan(None if config is None else Path(config), keys)
    return execute(plan, progress=progress, command=command or sys.argv)


def execute(plan: Plan, *, progress: Progress | None, command: list[str]) -> Outcome:
    """Carry out a plan; see `run`."""
    from harness import loading, provenance
    from harness.garbage import quick_collections
    from harness.gpus import gpu_uuids
    from harness.latency import run_latency
    from harness.runner import Runner
    from methods.catalog import load_family

    config = plan.config
    folder = Path(config.out or f"runs/{datetime.now(UTC):%Y%m%d-%H%M%S}")
    families = {spec.name: load_family(spec.family) for spec in plan.methods}
    with Store(folder) as store:
        loaded = loading.load_as_asked(plan.pair, config)
        methods = {spec.name: _make(spec, families[spec.name], loaded.models) for spec in plan.methods}
        manifest = Manifest(
            config={**config.model_dump(), "methods": [spec.name for spec in plan.methods]},
            pair=plan.pair.model_dump(),
            weights=loaded.weights,
            methods=[spec.model_dump() for spec in plan.methods],
            tasks=plan.data,
            profile=None if plan.profile is None else plan.profile.model_dump(mode="json"),
            starts=[provenance.this_start(command, gpu_uuids(loaded.models))],
        )
        rows = store.begin(manifest)
        attempts = _open_blocks(plan, rows)
        if attempts:
            runner = Runner(loaded, plan.methods, methods, config, plan.data, plan.profile)
            todo = [block for block in plan.blocks if block.id in attempts]
            with quick_collections(), (progress or _silent)(todo, len(todo)) as blocks:
                if store.latency is None and any("middle" in needed_drafters(spec) for spec in plan.methods):
                    prompts = list(runner.first_prompts(plan.blocks))
                    store.note_latency(run_latency(loaded, config, plan.profile, prompts))
                runner.tell_latency(store.latency)
                runner.warm_up(todo[0])
                for block in blocks:
                    new = runner.run_block(block, attempts[block.id])
                    store.append(new)
                    rows += new
    return Outcome(folder, last_attempts(rows))


def _make(spec: MethodSpec, family: type[Method], models: Models) -> Method:
    try:
        return family(models, spec.settings)
    except UserError:
        raise
    except Exception as error:  # the method may be a plug-in, which may raise anything
        raise UserError(
            f"method {spec.name!r} cannot be made ({type(error).__name__}: {error}); mend its settings or its plug-in"
        ) from error


def _silent(blocks: Iterable[Block], count: int) -> AbstractContextManager[Iterator[Block]]:
    return nullcontext(iter(blocks))


def _open_blocks(plan: Plan, rows: list[Row]) -> dict[tuple[str, int, int], int]:
    """Return the blocks still to run, each with its attempt: those without rows, or with a failed row."""
    open_blocks: dict[tuple[str, int, int], int] = {}
    by_block: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        by_block.setdefault((row.task, row.question_id, row.repeat), []).append(row)
    for block in plan.blocks:
        known = by_block.get(block.id, [])
        last = max((row.attempt for row in known), default=0)
        if any(row.status == "failed" for row in known if row.attempt == last) or _incomplete(plan, block, known, last):
            open_blocks[block.id] = last + 1
    return open_blocks


def _incomplete(plan: Plan, block: Block, rows: list[Row], attempt: int) -> bool:
    present = {(row.method, row.turn) for row in rows if row.attempt == attempt}
    return len(present) < len(plan.methods) * len(block.question.turns)


def check_environment(plan: Plan) -> None:
    """Raise `UserError` unless plug-ins load and there is something to run."""
    from methods.catalog import load_family

    for spec in plan.methods:
        if spec.family not in FAMILIES:  # our own need no check, and would import torch
            load_family(spec.family)
    if not plan.blocks:
        raise UserError("tasks: no question is left to run; raise --limit")
