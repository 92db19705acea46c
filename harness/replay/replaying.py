"""Replay: a recorded run under another clock, with new methods drafted along its text."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.registry import unknown_name
from hardware_profiles.profile import Profile
from harness.clocks.cost_model import profile_of, retimed
from harness.clocks.latency import profile_latency
from harness.config.configuration import load_configuration
from harness.records.manifest import Manifest, MethodTraits
from harness.records.provenance import this_start
from harness.records.rows import ROWS_FILE
from harness.records.schema import Row
from harness.records.store import Store
from harness.replay.recorded_run import RecordedRun
from harness.run.preflight import check_methods, warn_of_other_uses
from methods.catalog import BASELINE, MethodSpec, catalogue, is_fitted, load_family, resolve
from methods.core.edge_tally import tally_edges
from methods.latency import Latency
from methods.tree_method import TreeMethod

_REMEMBERS = "it keeps what it learnt from earlier questions (memory: run), so it cannot be drafted anew"


@dataclass(frozen=True, slots=True)
class Replay:
    """A replayed run.

    Attributes:
        manifest: the run's own, with the clock and methods of the replay; if methods were drafted anew, also with the
            latencies of their schedulers and a further start, the code that drafted them.
        rows: one a recorded answer and method.
        left_out: methods of the run that it cannot time, each with the reason.
    """

    manifest: Manifest
    rows: list[Row]
    left_out: dict[str, str]

    def write(self, folder: Path) -> None:
        """Write a run's folder.

        Raises:
            UserError: it is not empty, or cannot be written.
        """
        with Store(folder) as store:
            if (folder / ROWS_FILE).stat().st_size:
                raise UserError(f"{folder}: holds rows already; give a new or empty folder as --out")
            store.begin(self.manifest)
            store.append(self.rows)


def replay(
    run: Path,
    clock: str,
    methods: Sequence[str] | None = None,
    artifact: str | None = None,
    config: Path | None = None,
) -> Replay:
    """Time a recorded run by a profile; the same call gives the same rows, to the last digit.

    Methods of the run are timed again. Others, and those whose scheduler weighs T_tgt and T_mid, are drafted along the
    baseline's recorded text, which takes the pair's drafters and a greedy run; their verdict is `unverified`.

    Args:
        run: the folder of a run.
        clock: `profile:NAME`.
        methods: names, of the run, of `config` or of the catalogue; None takes those of `config`, or else all
            of the run with per-round data, but for those that would have to be drafted anew and remember the whole run.
        artifact: trained artifact of fitted methods that the run lacks; None takes the pair's.
        config: a configuration that defines methods; its steps, width and budget count too.

    Raises:
        UserError: no such run, profile or method, or one that cannot be timed.
    """
    recorded = RecordedRun(run)
    profile = profile_of(clock, recorded.pair)
    if profile is None:
        raise UserError("--clock wall: the run was measured so already; give profile:NAME")
    ran = recorded.specs
    unfit = _left_out(recorded)
    defined = _defined(config, recorded) if config is not None else {}
    chosen = methods or (defined if config is not None else [name for name in ran if name not in unfit])
    names = list(dict.fromkeys([BASELINE, *chosen]))
    specs = [ran.get(name) or defined.get(name) or _new_spec(name, recorded, artifact) for name in names]
    new = [spec for spec in specs if spec.name not in ran]
    check_methods(recorded.pair, new, profile)
    if artifact is not None:
        _check_artifact(artifact, [spec.name for spec in new if spec.name not in defined])
    warn_of_other_uses(recorded.pair, clock, new)
    drafted = [spec for spec in specs if spec in new or recorded.manifest.traits_of(spec.name).weighs_times]
    if drafted and recorded.config.temperature:
        raise UserError(
            f"--methods {drafted[0].name}: the run sampled, and only greedy text can be drafted along; leave it out, "
            "or run it with that clock"
        )
    for spec in drafted:
        if _traits(recorded, spec).memory == "run":
            raise UserError(f"--methods {spec.name}: {_REMEMBERS}; leave it out, or run it with that clock")
    latency = _latency(recorded, profile, drafted)
    rows = [
        row
        for spec in specs
        for row in (_drafted(recorded, spec, profile, latency) if spec in drafted else _kept(recorded, spec, profile))
    ]
    manifest = recorded.manifest.model_copy(
        update={
            "config": recorded.config.model_copy(update={"clock": clock, "methods": names}),
            "methods": specs,
            "traits": {spec.name: _traits(recorded, spec) for spec in specs},
            "profile": profile,
            "starts": [*recorded.manifest.starts, *([this_start(["treegraft", *sys.argv[1:]])] if drafted else [])],
            "latency": latency or recorded.manifest.latency,
        }
    )
    return Replay(manifest, rows, {name: unfit[name] for name in sorted(unfit.keys() - {*names})})


def _left_out(recorded: RecordedRun) -> dict[str, str]:
    """Return the methods of a run that are not replayed unless named, each with the reason."""
    remembering = {name for name, own in recorded.manifest.traits.items() if own.memory == "run" and own.weighs_times}
    blind = {row.method for row in recorded.rows if row.status == "ok" and row.rounds is None}
    return {**dict.fromkeys(remembering, _REMEMBERS), **dict.fromkeys(blind, "it has no per-round data")}


def _traits(recorded: RecordedRun, spec: MethodSpec) -> MethodTraits:
    """Return a method's facts at the time of the run, or today's for a new method."""
    return recorded.manifest.traits_of(spec.name) if spec.name in recorded.specs else MethodTraits.of(spec)


def _check_artifact(artifact: str, fresh: Sequence[str]) -> None:
    """Refuse an artifact that no new method of the catalogue takes."""
    if not any(map(is_fitted, fresh)):
        raise UserError(
            f"--artifact {artifact}: no fitted method that neither the run nor --config holds; name one with --methods"
        )


def _kept(recorded: RecordedRun, spec: MethodSpec, profile: Profile) -> Iterator[Row]:
    neural = recorded.manifest.traits_of(spec.name).drafters
    yield from (retimed(row, profile, neural) for row in recorded.rows if row.method == spec.name)


def _latency(recorded: RecordedRun, profile: Profile, drafted: Sequence[MethodSpec]) -> Latency | None:
    """Return T_tgt and T_mid for methods that are drafted anew; None where none of them needs a middle drafter."""
    if not any("middle" in spec.needed_drafters for spec in drafted):
        return None
    return profile_latency(profile, recorded.pair, recorded.config, recorded.median_prompt)


def _defined(file: Path, recorded: RecordedRun) -> dict[str, MethodSpec]:
    """Return the methods of a configuration, with the run's parameters where it gives none."""
    configuration = load_configuration(file, {})
    if "methods" not in configuration.origins:
        raise UserError(f"{file}: defines no methods; write for example `methods: [{{name: mine, base: all-small}}]`")
    pair = configuration.config.pair
    if "pair" in configuration.origins and pair != recorded.config.pair:
        raise UserError(f"{file}: pair: {pair}, but {recorded.folder} is of {recorded.config.pair}; leave it out")
    specs = [one.spec for one in configuration.beside(recorded.config).methods(recorded.pair.defaults)]
    for spec in specs:
        if spec.name != BASELINE and spec.name in recorded.specs and spec != recorded.specs[spec.name]:
            raise UserError(f"{file}: method {spec.name!r} is another one in the run; give it a name of its own")
    return {spec.name: spec for spec in specs if spec.name in configuration.method_names and spec.name != BASELINE}


def _new_spec(name: str, recorded: RecordedRun, artifact: str | None) -> MethodSpec:
    if name not in catalogue():
        raise unknown_name("method", name, {*recorded.specs, *catalogue()})
    flags = {"artifact": artifact} if artifact is not None and is_fitted(name) else {}
    return resolve(name, pair=recorded.pair.defaults, config=recorded.config.drafting, flags=flags)


def _drafted(recorded: RecordedRun, spec: MethodSpec, profile: Profile, latency: Latency | None) -> Iterator[Row]:
    method = load_family(spec.family)(recorded.drafting_models(spec), spec.settings)
    if not isinstance(method, TreeMethod):
        raise UserError(f"--methods {spec.name}: it drafts no trees of ours; give a tree method")
    method.latency = latency
    for row in recorded.rows:
        if row.method != BASELINE or row.status != "ok":
            continue
        prefill, rounds = method.redraft(recorded.prompt(row), row.token_ids, recorded.config.max_new_tokens)
        drafted = list(rounds)
        changes: dict[str, Any] = {
            "key": hashlib.sha256(f"{row.key} {spec.model_dump_json()}".encode()).hexdigest()[:32],
            "start": len(recorded.manifest.starts),
            "method": spec.name,
            "verdict": "unverified",
            "prefill": prefill,
            "rounds": [one.record for one in drafted],
            "edges": tally_edges((one.tree, one.new) for one in drafted),
            "flips": None,
        }
        yield retimed(row.model_copy(update=changes), profile, spec.needed_drafters)
