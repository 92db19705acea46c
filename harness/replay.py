"""Replay: a recorded run under another clock; methods that it did not run are drafted along its own text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardware_profiles.profile import Profile
from harness.config import METHOD_FLAGS, load_config, resolve_methods
from harness.errors import UserError
from harness.fitted import tell_fitted_elsewhere
from harness.latency import profile_latency, told
from harness.method_checks import check_methods
from harness.recorded import RecordedRun
from harness.registry import unknown_name
from harness.results import ROWS_FILE, Manifest, Row
from harness.retiming import profile_of, retimed
from harness.store import Store
from methods.catalog import (
    BASELINE,
    MethodSpec,
    catalogue,
    is_fitted,
    load_family,
    needed_drafters,
    resolve,
    weighs_times,
)
from methods.core.edge_tally import tally_edges
from methods.core.generation import Round
from methods.core.tree import DraftTree
from methods.tree_method import TreeMethod


@dataclass(frozen=True, slots=True)
class Replay:
    """A replayed run.

    Attributes:
        manifest: the run's own, with the clock and the methods of the replay.
        rows: one a recorded answer and method.
        left_out: methods of the run that show no rounds.
    """

    manifest: Manifest
    rows: list[Row]
    left_out: list[str]

    def write(self, folder: Path) -> None:
        """Write a run's folder.

        Raises:
            UserError: it holds something, or cannot be written.
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

    Methods of the run are timed again. Others, and those whose scheduler weighs T_tgt and T_mid, since these are others
    there, are drafted along the baseline's recorded text, which takes the pair's drafters and a greedy run; nobody
    verifies them, and their verdict says so.

    Args:
        run: the folder of a run.
        clock: `profile:NAME`.
        methods: names, of the run, of `config` or of the catalogue; None takes those of `config`, or else all
            of the run that show rounds.
        artifact: what fitted methods that the run did not hold were fitted to be; None takes the pair's.
        config: a configuration that defines methods; nothing else of it is read.

    Raises:
        UserError: no such run, profile or method, or one that cannot be timed.
    """
    recorded = RecordedRun(run)
    profile = profile_of(clock, recorded.pair)
    if profile is None:
        raise UserError("--clock wall: the run was measured so already; give profile:NAME")
    blind = {row.method for row in recorded.rows if row.status == "ok" and row.rounds is None}
    known = recorded.specs
    defined = _defined(config, recorded, profile) if config is not None else {}
    asked = methods or list(defined) or [name for name in known if name not in blind]
    names = list(dict.fromkeys([BASELINE, *asked]))
    specs: list[MethodSpec] = []
    rows: list[Row] = []
    for name in names:
        spec = known.get(name) or defined.get(name) or _new_spec(name, recorded, artifact)
        specs.append(spec)
        if name in known and not weighs_times(spec):
            neural = needed_drafters(spec)
            rows += [retimed(row, profile, neural) for row in recorded.rows if row.method == name]
        else:
            _check_greedy(recorded, name)
            rows += _drafted(recorded, spec, profile)
    fresh = [name for name in names if name not in known and name not in defined]
    if artifact is not None and not any(is_fitted(name) for name in fresh):
        raise UserError(f"--artifact {artifact}: no fitted method that neither the run nor --config holds; name one with --methods")
    tell_fitted_elsewhere(recorded.pair, clock, [spec for spec in specs if spec.name not in known])
    manifest = recorded.manifest.model_copy(
        update={
            "config": {**recorded.manifest.config, "clock": clock, "methods": names},
            "methods": [spec.model_dump() for spec in specs],
            "profile": profile.model_dump(mode="json"),
        }
    )
    return Replay(manifest, rows, sorted(blind - {*names}))


def _defined(file: Path, recorded: RecordedRun, profile: Profile) -> dict[str, MethodSpec]:
    """Return the methods of a configuration, with the run's parameters where it gives none."""
    config, values = load_config(file, {})
    specs = resolve_methods(config, {**_keys(recorded), **values}, {}, recorded.pair.defaults)
    for spec in specs:
        if spec.name != BASELINE and spec.name in recorded.specs and spec != recorded.specs[spec.name]:
            raise UserError(f"{file}: method {spec.name!r} is another one in the run; give it a name of its own")
    check_methods(recorded.pair, specs, profile)
    return {spec.name: spec for spec in specs if spec.name != BASELINE}


def _new_spec(name: str, recorded: RecordedRun, artifact: str | None) -> MethodSpec:
    if name not in catalogue():
        raise unknown_name("method", name, {*recorded.specs, *catalogue()})
    flags = {"artifact": artifact} if artifact is not None and is_fitted(name) else {}
    spec = resolve(name, definitions={}, pair=recorded.pair.defaults, config=_keys(recorded), flags=flags)
    if "middle" in needed_drafters(spec) and recorded.pair.middle is None:
        raise UserError(f"--methods {name}: pair {recorded.pair.name}: {recorded.pair.no_middle}")
    return spec


def _keys(recorded: RecordedRun) -> dict[str, Any]:
    return recorded.config.model_dump(include=set(METHOD_FLAGS), exclude_none=True)


def _check_greedy(recorded: RecordedRun, name: str) -> None:
    if recorded.config.temperature:
        raise UserError(
            f"--methods {name}: the run sampled, and only greedy text can be drafted along; leave it out, or run it "
            "with that clock"
        )


def _drafted(recorded: RecordedRun, spec: MethodSpec, profile: Profile) -> Iterator[Row]:
    method = load_family(spec.family)(recorded.drafting_models(spec), spec.settings)
    if not isinstance(method, TreeMethod):
        raise UserError(f"--methods {spec.name}: it drafts no trees of ours; give a tree method")
    rows = [row for row in recorded.rows if row.method == BASELINE and row.status == "ok"]
    if rows and "middle" in needed_drafters(spec):
        method.latency = told(profile_latency(profile, recorded.pair, recorded.median_prompt))
    for row in rows:
        prefill, rounds = method.redraft(recorded.prompt(row), row.token_ids, recorded.config.max_new_tokens)
        drafted = list(rounds)
        taken = [record for _, record in drafted]
        key = hashlib.sha256(f"{row.key} {spec.model_dump_json()}".encode()).hexdigest()[:32]
        changes: dict[str, Any] = {
            "key": key,
            "method": spec.name,
            "verdict": "unverified",
            "prefill": prefill,
            "rounds": taken,
            "edges": tally_edges(_committed(drafted, row.token_ids)),
            "flips": None,
        }
        yield retimed(row.model_copy(update=changes), profile, needed_drafters(spec))


def _committed(
    rounds: Sequence[tuple[DraftTree, Round]], token_ids: Sequence[int]
) -> Iterator[tuple[DraftTree, Sequence[int]]]:
    """Yield an answer's trees, each with the tokens that its round committed."""
    done = 0
    for tree, record in rounds:
        yield tree, token_ids[done : done + record.accepted + 1]
        done += record.accepted + 1
