"""The plan of a run: a checked configuration and its workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from hardware_profiles.profile import Profile
from harness.clocks.cost_model import profile_of
from harness.config.configuration import load_configuration
from harness.config.run_config import RunConfig
from harness.models.pair import Pair, get_pair
from harness.records.schema import TaskData
from harness.run.preflight import check_gguf_readers, check_methods, warn_of_other_uses
from harness.run.workload import Block, load_blocks
from methods.catalog import FAMILIES, MethodSpec, load_family


@dataclass(frozen=True, slots=True)
class Plan:
    """A run's methods and workload, checked before any model is loaded."""

    config: RunConfig
    pair: Pair
    methods: list[MethodSpec]
    blocks: list[Block]
    data: dict[str, TaskData]
    profile: Profile | None
    """The clock's profile; None measures."""
    origins: Mapping[str, str]
    """Origins of the configuration's values, by key; keys with their defaults are missing."""
    method_origins: Mapping[str, Mapping[str, str]]
    """Origins of each method's parameters, by method and key; keys with their defaults are missing."""

    @property
    def answers(self) -> int:
        """Rows of the whole run."""
        return len(self.methods) * sum(len(block.question.turns) for block in self.blocks)


def make_plan(config_file: Path | None, flags: Mapping[str, Any]) -> Plan:
    """Check a YAML configuration, if any, under flags that override its keys, and load its questions.

    Raises:
        UserError: unusable input.
    """
    configuration = load_configuration(config_file, flags)
    config = configuration.config
    pair = get_pair(config.pair)
    resolved = configuration.methods(pair.defaults)
    methods = [one.spec for one in resolved]
    profile = profile_of(config.clock, pair)
    blind = [spec.name for spec in methods if profile is not None and not spec.facts.visible_rounds]
    if blind:
        raise UserError(
            f"clock {config.clock}: {', '.join(blind)} have no per-round data to charge; leave them out of methods"
        )
    check_gguf_readers(pair, methods, config)
    check_methods(pair, methods, profile)
    warn_of_other_uses(pair, config.clock, methods)
    blocks, data = load_blocks(config)
    origins = {one.spec.name: one.origins for one in resolved}
    return Plan(config, pair, methods, blocks, data, profile, configuration.origins, origins)


def check_environment(plan: Plan) -> None:
    """Raise `UserError` unless plug-ins load and there is something to run."""
    for spec in plan.methods:
        if spec.family not in FAMILIES:  # our own load, and would import torch
            load_family(spec.family)
    if not plan.blocks:
        raise UserError("tasks: no question is left to run; raise --limit")
