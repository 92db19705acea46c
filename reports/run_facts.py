"""A report's facts from `manifest.json`: labels, order and provenance; never a number of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from harness.records.manifest import MANIFEST_FILE

MACHINE = ("system", "cpu", "cores", "allowed_cores", "threads", "gpus")
"""Facts of a start that make the class of its machine."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of a run beside its rows; all may be missing."""

    embedded: frozenset[str] = frozenset()
    """Tasks whose questions are the embedded ones."""
    methods: tuple[str, ...] = ()
    """Methods in the order of the configuration."""
    sources: tuple[str, ...] = ()
    """One line a task: where its questions come from; others on prompts without a template, on engines, on starts that
    differ, and on the hardware profile, where times are modelled."""
    questions: Mapping[str, int] = field(default_factory=dict)
    """Questions of each task."""
    modelled: str | None = None
    """The clock of the configuration where it is a hardware profile's."""
    correctness_only: str | None = None
    """The pair's name where it is for correctness alone."""
    remembering: frozenset[str] = frozenset()
    """Methods that keep what they learnt for the whole run."""


def read_facts(run: Path) -> RunFacts:
    """Read the manifest beside a run's rows, if any, given the run's folder or its `rows.jsonl`; see `run_facts_of`."""
    file = (run if run.is_dir() else run.parent) / MANIFEST_FILE
    if not file.is_file():
        return RunFacts()
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
        json.dumps(content, ensure_ascii=False).encode()  # half a character could not be printed
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: not readable as JSON ({error}); restore the file or remove it") from error
    return run_facts_of(content)


def run_facts_of(content: object) -> RunFacts:
    """Return the facts of a manifest's content; keys that are missing or of another shape are skipped."""
    manifest = _mapping(content)
    tasks = {name: _mapping(task) for name, task in sorted(_mapping(manifest.get("tasks")).items())}
    pair = _mapping(manifest.get("pair"))
    clock = _mapping(manifest.get("config")).get("clock")
    return RunFacts(
        embedded=frozenset(name for name, task in tasks.items() if task.get("source") == "embedded"),
        methods=_names(_mapping(manifest.get("config")).get("methods")),
        sources=(
            *(_source(name, task) for name, task in tasks.items()),
            *(["prompts: bare text, no chat template (template: plain)"] if pair.get("template") == "plain" else []),
            *engine_lines(manifest),
            *start_lines(manifest),
            *profile_lines(_mapping(manifest.get("profile")), str(pair.get("name"))),
        ),
        questions={name: task["n"] for name, task in tasks.items() if _is_count(task.get("n"))},
        modelled=clock if isinstance(clock, str) and clock != "wall" else None,
        correctness_only=str(pair.get("name")) if pair.get("performance") is False else None,
        remembering=frozenset(
            name for name, traits in _mapping(manifest.get("traits")).items() if _mapping(traits).get("memory") == "run"
        ),
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _names(methods: object) -> tuple[str, ...]:
    """Return names from a list of names, a list of objects with a `name`, or a mapping by name."""
    if not isinstance(methods, list | dict):
        return ()
    names = (_mapping(entry).get("name", entry) for entry in methods)
    return tuple(name for name in names if isinstance(name, str))


def _source(name: str, task: dict[str, Any]) -> str:
    where = " ".join(str(task[key]) for key in ("source", "origin") if task.get(key))
    digest = f"sha256 {str(task['sha256'])[:12]}" if task.get("sha256") else ""
    number = f"{task['n']} questions" if task.get("n") is not None else ""
    return f"{name}: " + ", ".join(part for part in (where, number, digest) if part)


def engine_lines(manifest: dict[str, Any]) -> Iterator[str]:
    """Yield each role's engine and how it computed, if the manifest tells; starts that differ are all named."""
    for role, engines in _over_starts(_mapping(start.get("engines")) for start in _starts(manifest)).items():
        yield f"{role} engine: {', then '.join(engines)}"


def start_lines(manifest: dict[str, Any]) -> Iterator[str]:
    """Yield in what the starts of a run differ, if they do: machine, code, versions, engines."""
    starts = _starts(manifest)
    values = {
        **_over_starts(
            {key: fact for key, fact in _mapping(start.get("machine")).items() if key in MACHINE} for start in starts
        ),
        **_over_starts({"source": str(start["source"])[:12]} for start in starts if start.get("source")),
        **_over_starts(_mapping(start.get("versions")) for start in starts),
    }
    differing = [f"{name} ({', then '.join(found)})" for name, found in values.items() if len(found) > 1]
    engines = _over_starts(_mapping(start.get("engines")) for start in starts)
    differing += [f"{role} engine" for role, found in engines.items() if len(found) > 1]
    if differing:
        yield f"{len(starts)} starts that differ: {', '.join(differing)}; each row names its start"


def _starts(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    starts = manifest.get("starts")
    return [_mapping(start) for start in starts] if isinstance(starts, list) else []


def _over_starts(facts: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Return by name the values that starts tell, each once, in order."""
    values: dict[str, dict[str, None]] = {}
    for one in facts:
        for name, value in one.items():
            values.setdefault(str(name), {})[str(value)] = None
    return {name: [*found] for name, found in values.items()}


def profile_lines(profile: dict[str, Any], pair: str) -> Iterator[str]:
    """Yield the pair of a hardware profile's latencies and its unknown costs, if there is a profile."""
    if not profile:
        return
    name, kind, device, whose = (str(profile.get(key, "unknown")) for key in ("name", "kind", "device", "pair"))
    acceptance = "" if whose == pair else f", with the acceptance of pair {pair}"
    kind = f"{kind} with random weights" if profile.get("weights") == "random" else kind
    costs = profile.get("unknown")
    unknown = ", ".join(map(str, costs)) if isinstance(costs, list) else ""
    free = f"; unknown, so charged nothing: {unknown}" if unknown else ""
    yield f"profile {name} ({kind}; {device}): latencies of pair {whose}{acceptance}{free}"
