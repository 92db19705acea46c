"""Replay: a recorded run under another clock; methods that it did not run are drafted along its own text."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardware_profiles.profile import Profile
from harness.config import load_config, resolve_methods
from harness.errors import UserError
from harness.fitted import tell_fitted_elsewhere
from harness.latency import profile_latency, told
from harness.method_checks import check_methods
from harness.provenance import this_start
from harness.recorded import RecordedRun
from harness.registry import unknown_name
from harness.results import ROWS_FILE, Latency, Manifest, Row
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
        manifest: the run's own, with the clock and the methods of the replay; where methods were drafted anew, with
            what their schedulers were told, and one start more: the code that drafted them.
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
        config: a configuration that defines methods; beside them its steps, width and budget are read.

    Raises:
        UserError: no such run, profile or method, or one that cannot be timed.
    """
    recorded = RecordedRun(run)
    profile = profile_of(clock, recorded.pair)
    if profile is None:
        raise UserError("--clock wall: the run was measured so already; give profile:NAME")
    blind = {row.method for row in recorded.rows if row.status == "ok" and row.rounds is None}
    known = recorded.specs
    defined = _defined(config, recorded) if config is not None else {}
    own = [name for name in known if name not in blind]
    asked = methods or (own if config is None else list(defined))
    names = list(dict.fromkeys([BASELINE, *asked]))
    specs = [known.get(name) or defined.get(name) or _new_spec(name, recorded, artifact) for name in names]
    new = [spec for spec in specs if spec.name not in known]
    check_methods(recorded.pair, new, profile)
    if artifact is not None:
        _check_artifact(artifact, [spec.name for spec in new if spec.name not in defined])
    tell_fitted_elsewhere(recorded.pair, clock, new)
    drafted = [spec for spec in specs if spec in new or weighs_times(spec)]
    for spec in drafted:
        _check_greedy(recorded, spec.name)
    latency = _latency(recorded, profile, drafted)
    rows = [
        row
        for spec in specs
        for row in (_drafted(recorded, spec, profile, latency) if spec in drafted else _kept(recorded, spec, profile))
    ]
    manifest = recorded.manifest.model_copy(
        update={
            "config": {**recorded.manifest.config, "clock": clock, "methods": names},
            "methods": [spec.model_dump() for spec in specs],
            "profile": profile.model_dump(mode="json"),
            "starts": [*recorded.manifest.starts, *([this_start(["treegraft", *sys.argv[1:]])] if drafted else [])],
            "latency": latency or recorded.manifest.latency,
        }
    )
    return Replay(manifest, rows, sorted(blind - {*names}))


def _check_artifact(artifact: str, fresh: Sequence[str]) -> None:
    """Refuse an artifact that no method of the catalogue is given."""
    if not any(map(is_fitted, fresh)):
        raise UserError(
            f"--artifact {artifact}: no fitted method that neither the run nor --config holds; name one with --methods"
        )


def _kept(recorded: RecordedRun, spec: MethodSpec, profile: Profile) -> Iterator[Row]:
    neural = needed_drafters(spec)
    yield from (retimed(row, profile, neural) for row in recorded.rows if row.method == spec.name)


def _latency(recorded: RecordedRun, profile: Profile, drafted: Sequence[MethodSpec]) -> Latency | None:
    """Return what schedulers of methods that are drafted anew are told; None where nobody has to be."""
    if not any("middle" in needed_drafters(spec) for spec in drafted):
        return None
    return profile_latency(profile, recorded.pair, recorded.config, recorded.median_prompt)


def _defined(file: Path, recorded: RecordedRun) -> dict[str, MethodSpec]:
    """Return the methods of a configuration, with the run's parameters where it gives none."""
    config, values = load_config(file, {})
    if "methods" not in values:
        raise UserError(f"{file}: defines no methods; write for example `methods: [{{name: mine, base: all-small}}]`")
    if "pair" in values and config.pair != recorded.config.pair:
        raise UserError(
            f"{file}: pair: {config.pair}, but {recorded.folder} is of {recorded.config.pair}; leave it out"
        )
    specs = resolve_methods(config, {**recorded.config.drafting, **values}, {}, recorded.pair.defaults)
    for spec in specs:
        if spec.name != BASELINE and spec.name in recorded.specs and spec != recorded.specs[spec.name]:
            raise UserError(f"{file}: method {spec.name!r} is another one in the run; give it a name of its own")
    return {spec.name: spec for spec in specs if spec.name != BASELINE}


def _new_spec(name: str, recorded: RecordedRun, artifact: str | None) -> MethodSpec:
    if name not in catalogue():
        raise unknown_name("method", name, {*recorded.specs, *catalogue()})
    flags = {"artifact": artifact} if artifact is not None and is_fitted(name) else {}
    return resolve(name, definitions={}, pair=recorded.pair.defaults, config=recorded.config.drafting, flags=flags)


def _check_greedy(recorded: RecordedRun, name: str) -> None:
    if recorded.config.temperature:
        raise UserError(
            f"--methods {name}: the run sampled, and only greedy text can be drafted along; leave it out, or run it "
            "with that clock"
        )


def _drafted(recorded: RecordedRun, spec: MethodSpec, profile: Profile, latency: Latency | None) -> Iterator[Row]:
    method = load_family(spec.family)(recorded.drafting_models(spec), spec.settings)
    if not isinstance(method, TreeMethod):
        raise UserError(f"--methods {spec.name}: it drafts no trees of ours; give a tree method")
    rows = [row for row in recorded.rows if row.method == BASELINE and row.status == "ok"]
    method.latency = told(latency)
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
