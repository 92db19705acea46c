"""Whether two runs may be compared at all, and what else changed between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.results import DECODING_KEYS, Manifest, read_manifest
from reports.pairing import BASELINE
from reports.tally import Tally

MACHINE = ("system", "cpu", "cores", "allowed_cores", "threads", "gpus")


def manifest_of(run: Path) -> Manifest:
    """Return the manifest beside a run's rows.

    Args:
        run: the folder of a run, or its `rows.jsonl`.

    Raises:
        UserError: there is none, or it is not one: nobody could tell what the rows may be compared with.
    """
    return read_manifest(run.parent if run.is_file() else run)


def obstacles(base: Manifest, head: Manifest, *, measured: bool, retimed: bool = False) -> list[str]:
    """Return why two runs cannot be compared, one line a reason; empty where they can.

    Weights, data, decoding parameters and, where times were measured, the class of machine must agree;
    where they were modelled, the profile. Methods' own settings may differ: they are what is compared.

    Args:
        base: of the one run.
        head: of the other.
        measured: whether the times to be compared were measured.
        retimed: whether both runs get the times of one profile now, whatever the manifests say of one.
    """
    found = []
    if base.pair.get("performance") is False:
        found.append(f"pair {base.pair.get('name')} is for correctness alone, its speed means nothing")
    found += _differ("pair", base.pair.get("name"), head.pair.get("name"))
    found += _differ("template", base.pair.get("template"), head.pair.get("template"))
    for role in sorted(base.weights.keys() & head.weights.keys()):
        found += _differ(f"weights of the {role}", base.weights[role].get("sha256"), head.weights[role].get("sha256"))
    unknown = [run for run, one in (("BASE", base), ("HEAD", head)) if "sha256" not in one.weights.get("target", {})]
    if unknown:
        found.append(f"weights of the target unknown: the manifest of {' and '.join(unknown)} names none")
    for task in sorted(base.tasks.keys() & head.tasks.keys()):
        found += _differ(f"data of {task}", base.tasks[task].sha256, head.tasks[task].sha256)
        found += _differ(f"split of {task}", base.tasks[task].split, head.tasks[task].split)
    if not base.tasks.keys() & head.tasks.keys():
        found.append(f"no task in common: {_names(base.tasks)} and {_names(head.tasks)}")
    decoding = (_decoding(base), _decoding(head))
    for key in decoding[0]:
        found += _differ(key, decoding[0][key], decoding[1][key])
    if measured:
        found += _machines_differ(base, head)
    elif base.profile != head.profile and not retimed:
        found.append("hardware profile differs: replay both runs with the same one")
    return found


def _machines_differ(base: Manifest, head: Manifest) -> list[str]:
    unknown = [run for run, one in (("BASE", base), ("HEAD", head)) if not any(start.machine for start in one.starts)]
    if unknown:
        return [f"machine unknown: the manifest of {' and '.join(unknown)} names none"]
    machines = [start.machine for start in (*base.starts, *head.starts)]
    found = []
    for key in MACHINE:
        values = list(dict.fromkeys(str(machine.get(key, "none")) for machine in machines))
        if len(values) > 1:
            found.append(f"machine differs ({key}): {' and '.join(values)}; run both on one machine")
    return found


def _differ(what: str, base: object, head: object) -> list[str]:
    if base == head:
        return []
    one, other = (str(value) for value in (base, head))
    if "weights" in what or "data" in what:
        one, other = one[:12], other[:12]
    return [f"{what} differs: {one} in BASE, {other} in HEAD"]


def _decoding(manifest: Manifest) -> dict[str, Any]:
    values = {key: manifest.config.get(key) for key in DECODING_KEYS}
    values["follow"] = values["follow"] or "own"  # runs older than the key
    values["dtype"] = manifest.config.get("dtype") or manifest.pair.get("dtype")
    if values["temperature"]:
        values["seed"] = manifest.config.get("seed")
    return values


def changes(base: Manifest, head: Manifest) -> list[str]:
    """Return what differs between two runs that may be compared: code and versions of any start, methods' settings."""
    found = []
    if base.starts and head.starts:
        old_code, new_code = _code(base), _code(head)
        for what in dict.fromkeys(["commit", "source", *sorted(old_code.keys() | new_code.keys())]):
            found += _changed(what, old_code.get(what), new_code.get(what))
    if any(_weighs_times(spec) for spec in (*base.methods, *head.methods)):
        found += _changed("T_tgt, T_mid told to schedulers:", _told(base), _told(head))
    found += _changed("attention", base.pair.get("attention"), head.pair.get("attention"))
    before, after = ({spec.get("name"): spec for spec in manifest.methods} for manifest in (base, head))
    settings: dict[str, list[str]] = {}
    for name in before:
        if name in after and name != BASELINE:
            old, new = (
                {key: spec.get(key) for key in ("family", "artifact_sha256")} | (spec.get("settings") or {})
                for spec in (before[name], after[name])
            )
            for key in sorted(old.keys() | new.keys()):
                for change in _changed(key, old.get(key), new.get(key)):
                    settings.setdefault(change, []).append(str(name))
    return found + [f"{change} ({', '.join(names)})" for change, names in settings.items()]


def _code(manifest: Manifest) -> dict[str, str]:
    """Return a run's commit, source and versions; several values where its starts differ."""
    starts = [
        {"commit": _commit(start.git), "source": start.source[:12], **start.versions} for start in manifest.starts
    ]
    names = {name for start in starts for name in start}
    return {name: " and ".join(dict.fromkeys(start.get(name, "None") for start in starts)) for name in names}


def _weighs_times(spec: dict[str, Any]) -> bool:
    scheduler = (spec.get("settings") or {}).get("scheduler")
    return spec.get("family") == "treegraft" and scheduler not in ("never", "always", "fixed")


def _told(manifest: Manifest) -> str:
    latency = manifest.latency
    return "none" if latency is None else f"{latency.target_ms:g}, {latency.middle_ms:g} ms"


def _commit(git: dict[str, Any]) -> str:
    return f"{str(git.get('commit', 'unknown'))[:12]}{' with changes' if git.get('dirty') else ''}"


def _changed(what: str, base: object, head: object) -> list[str]:
    return [] if base == head else [f"{what} {base} → {head}"]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def check_rows(rows: Sequence[Tally], manifest: Manifest, run: Path, *, retimed: bool) -> None:
    """Check that rows are of the manifest's run.

    Args:
        rows: of a run.
        manifest: what lies beside them.
        run: where both lie.
        retimed: whether the rows' clock is not the run's own any more.

    Raises:
        UserError: they are not: files of different runs were put together, or edited.
    """
    known = {"pair": {str(manifest.pair.get("name"))}, "task": {*manifest.tasks}}
    known["method"] = {str(spec.get("name")) for spec in manifest.methods}
    if not retimed and isinstance(manifest.config.get("clock"), str):
        known["clock"] = {"wall" if manifest.profile is None else f"profile:{manifest.profile.get('name')}"}
    for kind, names in known.items():
        strangers = sorted({getattr(row, kind) for row in rows} - names)
        if strangers:
            raise UserError(
                f"{run}: rows of {kind} {', '.join(strangers)}, but the manifest is of {', '.join(sorted(names))}; "
                "restore the files of one run"
            )
