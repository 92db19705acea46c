"""Whether two runs can be compared, and what else changed between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from harness.records.manifest import Manifest, read_manifest
from harness.records.schema import DECODING_KEYS
from reports.pairing import BASELINE
from reports.row_summary import Tally
from reports.run_facts import MACHINE


def manifest_of(run: Path) -> Manifest:
    """Return the manifest beside a run's rows, given its folder or its `rows.jsonl`."""
    return read_manifest(run.parent if run.is_file() else run)


def obstacles(base: Manifest, head: Manifest, *, measured: bool, retimed: bool = False) -> list[str]:
    """Return why two runs cannot be compared, one line a reason; empty where they can.

    Weights, data, what prompts depend on, decoding parameters and, where times were measured, the class of machine
    must agree; where they were modelled, the profile. Methods' own settings may differ: they are what is compared.

    Args:
        base: of the one run.
        head: of the other.
        measured: whether the times to be compared were measured.
        retimed: whether both runs get the times of one profile, whatever their manifests say.
    """
    lines = []
    if not base.pair.performance:
        lines.append(f"pair {base.pair.name} is for correctness alone, its speed means nothing")
    lines += _differ("pair", base.pair.name, head.pair.name)
    lines += _differ("template", base.pair.template, head.pair.template)
    for role in sorted(base.weights.keys() & head.weights.keys()):
        lines += _differ(f"weights of the {role}", base.weights[role].get("sha256"), head.weights[role].get("sha256"))
    for key, (ours, theirs) in _prompting(base, head):
        lines += _differ(key, ours, theirs)
    unknown = [run for run, one in (("BASE", base), ("HEAD", head)) if "sha256" not in one.weights.get("target", {})]
    if unknown:
        lines.append(f"weights of the target unknown: the manifest of {' and '.join(unknown)} names none")
    for task in sorted(base.tasks.keys() & head.tasks.keys()):
        lines += _differ(f"data of {task}", base.tasks[task].sha256, head.tasks[task].sha256)
        lines += _differ(f"split of {task}", base.tasks[task].split, head.tasks[task].split)
    if not base.tasks.keys() & head.tasks.keys():
        lines.append(f"no task in common: {_names(base.tasks)} and {_names(head.tasks)}")
    ours, theirs = _decoding(base), _decoding(head)
    for key in ours:
        lines += _differ(key, ours[key], theirs[key])
    if measured:
        lines += _machines_differ(base, head)
        for role in sorted(base.engines.keys() & head.engines.keys()):
            lines += _differ(f"engine of the {role}", base.engines[role], head.engines[role])
    elif base.profile != head.profile and not retimed:
        lines.append("hardware profile differs: replay both runs with the same one")
    return lines


def _machines_differ(base: Manifest, head: Manifest) -> list[str]:
    unknown = [run for run, one in (("BASE", base), ("HEAD", head)) if not any(start.machine for start in one.starts)]
    if unknown:
        return [f"machine unknown: the manifest of {' and '.join(unknown)} names none"]
    machines = [start.machine for start in (*base.starts, *head.starts)]
    lines = []
    for key in MACHINE:
        values = list(dict.fromkeys(str(machine.get(key, "none")) for machine in machines))
        if len(values) > 1:
            lines.append(f"machine differs ({key}): {' and '.join(values)}; run both on one machine")
    return lines


def _prompting(base: Manifest, head: Manifest) -> list[tuple[str, tuple[object, object]]]:
    """Return what both runs say of their prompts; older ones say nothing."""
    ours, theirs = (
        {} if one.prompting is None else one.prompting.model_dump(mode="json", exclude_none=True)
        for one in (base, head)
    )
    return [(key, (ours[key], theirs[key])) for key in ours if key in theirs]


def _differ(what: str, base: object, head: object) -> list[str]:
    if base == head:
        return []
    one, other = (str(value) for value in (base, head))
    if "weights" in what or "data" in what or what in ("chat_template", "tokenizer"):
        one, other = one[:12], other[:12]
    return [f"{what} differs: {one} in BASE, {other} in HEAD"]


def _decoding(manifest: Manifest) -> dict[str, Any]:
    values = {key: getattr(manifest.config, key) for key in DECODING_KEYS}
    values["dtype"] = manifest.config.dtype or manifest.pair.dtype
    if values["temperature"]:
        values["seed"] = manifest.config.seed
    return values


def changes(base: Manifest, head: Manifest) -> list[str]:
    """Return what differs between two comparable runs: code and versions of any start, methods' settings."""
    lines = []
    if base.starts and head.starts:
        old_code, new_code = _code(base), _code(head)
        for what in dict.fromkeys(["commit", "source", *sorted(old_code.keys() | new_code.keys())]):
            lines += _changed(what, old_code.get(what), new_code.get(what))
    if any(one.traits_of(name).weighs_times for one in (base, head) for name in one.specs):
        lines += _changed("T_tgt, T_mid of schedulers:", _latency(base), _latency(head))
    lines += _changed("attention", base.pair.attention, head.pair.attention)
    settings: dict[str, list[str]] = {}
    for name in base.specs:
        if name in head.specs and name != BASELINE:
            old, new = (_parameters(one, name) for one in (base, head))
            for key in sorted(old.keys() | new.keys()):
                for change in _changed(key, old.get(key), new.get(key)):
                    settings.setdefault(change, []).append(name)
    return lines + [f"{change} ({', '.join(names)})" for change, names in settings.items()]


def _parameters(manifest: Manifest, name: str) -> dict[str, Any]:
    spec = manifest.specs[name]
    return {"family": spec.family, "artifact_sha256": spec.artifact_sha256, **spec.settings.model_dump(mode="json")}


def _code(manifest: Manifest) -> dict[str, str]:
    """Return a run's commit, source and versions, joined where its starts differ."""
    starts = [
        {"commit": _commit(start.git), "source": start.source[:12], **start.versions} for start in manifest.starts
    ]
    names = {name for start in starts for name in start}
    return {name: " and ".join(dict.fromkeys(start.get(name, "None") for start in starts)) for name in names}


def _latency(manifest: Manifest) -> str:
    latency = manifest.latency
    return "none" if latency is None else f"{latency.target_ms:g}, {latency.middle_ms:g} ms"


def _commit(git: dict[str, Any]) -> str:
    return f"{str(git.get('commit', 'unknown'))[:12]}{' with changes' if git.get('dirty') else ''}"


def _changed(what: str, base: object, head: object) -> list[str]:
    return [] if base == head else [f"{what} {base} → {head}"]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def check_rows(rows: Sequence[Tally], manifest: Manifest, run: Path, *, retimed: bool) -> None:
    """Refuse rows of another run than the manifest's; retimed rows may have another clock."""
    allowed = {"pair": {manifest.pair.name}, "task": {*manifest.tasks}, "method": {*manifest.specs}}
    if not retimed:
        allowed["clock"] = {"wall" if manifest.profile is None else f"profile:{manifest.profile.name}"}
    for kind, names in allowed.items():
        strangers = sorted({getattr(row, kind) for row in rows} - names)
        if strangers:
            raise UserError(
                f"{run}: rows of {kind} {', '.join(strangers)}, but the manifest is of {', '.join(sorted(names))}; "
                "restore the files of one run"
            )
