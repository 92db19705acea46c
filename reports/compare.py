"""The regression gate: whether a method's speedup in one run is no worse than in another, beyond a margin.

A method's speedup over the baseline of the same run is compared, prompt by prompt: rates of two sessions are not
comparable, since machines drift, but each method drifts with its own interleaved baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foundation.errors import UserError
from foundation.gc_control import paused_collection
from foundation.registry import unknown_name
from harness.records.manifest import Manifest
from harness.records.rows import read_rows
from harness.records.schema import Row
from reports.comparability import changes, check_rows, manifest_of, obstacles
from reports.gate import MARGINS, GateLine, Mode, gate_line
from reports.pairing import BASELINE, pair_with_baseline, turns_of
from reports.row_summary import Tally, last_tallies
from reports.run_facts import profile_lines


@dataclass(frozen=True, slots=True)
class Retiming:
    """Gives a run's measured rows the times of a profile."""

    timed: Callable[[Row], Row | None]
    """Gives a row its times; None where the method would decide differently under the profile."""
    caption: str
    """The pairs of acceptance and latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The outcome of a comparison."""

    mode: Mode
    margin: float
    """Largest accepted loss of speedup, as a fraction."""
    obstacles: list[str]
    """Why nothing could be compared."""
    lines: list[GateLine]
    not_compared: list[str]
    """Methods of both runs without a prompt that both answered, and without a fault of HEAD's that is why."""
    left_out: list[str]
    """Methods, tasks and clocks of one run alone, and methods that cannot be timed."""
    changes: list[str]
    """What else differs: code, versions, settings."""
    embedded: list[str]
    """Tasks whose questions are the embedded ones."""
    modelled: list[str]
    """Of modelled times, the pairs of acceptance and latencies."""

    @property
    def exit_code(self) -> int:
        """0 every method is inside the margin, 1 one is not or could not be compared, 3 nothing comparable."""
        if self.obstacles:
            return 3
        return int(bool(self.not_compared) or any(line.verdict != "ok" for line in self.lines))


def parse_margin(text: str) -> float:
    """Return a margin such as `5%` or `0.05` as a fraction.

    Raises:
        UserError: not a share from 0 up to 100%.
    """
    try:
        value = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < 1.0:
        raise UserError(f"--margin {text}: not a share from 0% up to 100%; write for example 5%")
    return value


def compare(
    base: Path,
    head: Path,
    *,
    mode: Mode = "wall",
    margin: float | None = None,
    methods: Sequence[str] | None = None,
    retime: tuple[Retiming, Retiming] | None = None,
) -> Comparison:
    """Compare two runs, method by method.

    Every method must pass, so no correction is needed for a pass to be right in 95% of the cases.

    Args:
        base: the folder of a run.
        head: the folder of the run that must not be slower.
        mode: `wall` compares measured rows; `replay` modelled ones, exactly.
        margin: largest accepted loss of speedup, as a fraction; null takes the mode's.
        methods: names; null takes all that both runs have.
        retime: with `replay`, gives BASE's and HEAD's measured rows the times of a profile.

    Raises:
        UserError: unusable files, a method that a run lacks, or rows of the wrong clock.
    """
    margin = MARGINS[mode] if margin is None else margin
    manifests = manifest_of(base), manifest_of(head)
    reasons = obstacles(*manifests, measured=mode == "wall", retimed=retime is not None)
    outcome = Comparison(
        mode=mode,
        margin=margin,
        obstacles=reasons,
        lines=[],
        not_compared=[],
        left_out=[],
        changes=changes(*manifests),
        embedded=sorted(name for name, task in manifests[1].tasks.items() if task.source == "embedded"),
        modelled=_captions(manifests) if retime is None else list(dict.fromkeys(one.caption for one in retime)),
    )
    if reasons:
        return outcome
    with paused_collection():
        sides = [_read(run, mode, methods, own) for run, own in zip((base, head), retime or (None, None), strict=True)]
    for run, manifest, side in zip((base, head), manifests, sides, strict=True):
        check_rows(side.rows, manifest, run, retimed=retime is not None)
    names, left_out = _named(sides, methods, {*manifests[1].specs})
    left_out += [f"method {name}: {why}" for name, why in sorted({**sides[0].blind, **sides[1].blind}.items())]
    tasks, clocks = ([{getattr(row, kind) for row in side.rows} for side in sides] for kind in ("task", "clock"))
    left_out += [*_alone("task", *tasks), *_alone("clock", *clocks)]
    if reasons := _nothing_shared(sides, names):
        return replace(outcome, obstacles=reasons, left_out=left_out)
    lines = []
    for clock in sorted(clocks[0] & clocks[1]):
        of_clock = [[x for x in side.rows if x.clock == clock and x.task in tasks[0] & tasks[1]] for side in sides]
        lines += _lines(of_clock[0], of_clock[1], names, mode, margin)
    not_compared = sorted({*names} - {line.method for line in lines})
    return replace(outcome, lines=lines, left_out=left_out, not_compared=not_compared)


@dataclass(frozen=True, slots=True)
class _Side:
    rows: list[Tally]
    blind: dict[str, str]
    """Methods that no profile can time, and why."""


def _captions(manifests: Iterable[Manifest]) -> list[str]:
    profiles = ((one.profile.model_dump(), one.pair.name) for one in manifests if one.profile is not None)
    return list(dict.fromkeys(line for profile, pair in profiles for line in profile_lines(profile, pair)))


def _read(run: Path, mode: Mode, methods: Sequence[str] | None, retime: Retiming | None) -> _Side:
    blind: dict[str, str] = {}

    def timed() -> Iterator[Row]:
        for row in read_rows(run):
            if retime is None:
                yield row
            elif row.status == "ok" and row.rounds is None:
                blind[row.method] = "has no per-round data, so no profile can time it"
            elif methods is None or row.method in (BASELINE, *methods):
                again = retime.timed(row)
                if again is None:
                    blind[row.method] = "decides by its machine's times; replay both runs first, with --out"
                else:
                    yield again

    try:
        rows = [row for row in last_tallies(timed()) if row.method not in blind]
    except UserError as error:
        raise error if str(error).startswith(str(run)) else UserError(f"{run}: {error}") from error
    if not rows:
        raise UserError(f"{run}: no rows; let the run finish its first block")
    wrong = sorted({row.clock for row in rows if (row.clock == "wall") != (mode == "wall")})
    if wrong and mode == "replay":
        raise UserError(f"{run}: its times were measured; replay the run first, or give --clock profile:NAME")
    if wrong:
        raise UserError(f"{run}: its times are modelled (clock {wrong[0]}); compare with --mode replay")
    return _Side(rows, blind)


def _named(sides: Sequence[_Side], given: Sequence[str] | None, promised: set[str]) -> tuple[list[str], list[str]]:
    """Return the methods to compare, and a line for each that only one run has.

    A method that HEAD's manifest promises is HEAD's without a single row, too: its answers are missing.
    """
    base, head = ({row.method for row in side.rows} for side in sides)
    head |= (base & promised) - sides[1].blind.keys()
    baselines = {row.method for side in sides for row in side.rows if row.is_baseline}
    if given is None:
        return sorted((base & head) - baselines), _alone("method", base, head)
    for run, methods in (("BASE", base), ("HEAD", head)):
        for name in given:
            if name not in methods:
                raise UserError(f"--methods: {run}: {unknown_name('method', name, methods)}")
    for name in baselines.intersection(given):
        raise UserError(f"--methods {name}: the baseline has nothing to be compared with; leave it out")
    return sorted({*given}), []


def _nothing_shared(sides: Sequence[_Side], names: Sequence[str]) -> list[str]:
    """Return why rows of comparable runs cannot be compared, one line a reason; empty where they can."""
    lines = [] if names else ["no method beside baselines is in both runs and can be timed"]
    base, head = ({row.clock for row in side.rows} for side in sides)
    if not base & head:
        lines.append(f"no clock in common: {', '.join(sorted(base))} and {', '.join(sorted(head))}")
    prompts = [{(row.task, row.question_id) for row in side.rows} for side in sides]
    if not prompts[0] & prompts[1]:
        lines.append("no prompt in common: no question has rows in both runs")
    return lines


def _alone(kind: str, base: set[str], head: set[str]) -> list[str]:
    return [f"{kind} {name}: in {'BASE' if name in base else 'HEAD'} alone" for name in sorted(base ^ head)]


def _lines(base: list[Tally], head: list[Tally], names: Sequence[str], mode: Mode, margin: float) -> list[GateLine]:
    turns = turns_of([*base, *head])
    before, after = (pair_with_baseline(rows, turns) for rows in (base, head))
    lines = []
    for name in names:
        old, new = ({one.prompt: one for one in pairings.get(name, [])} for pairings in (before, after))
        shared = [(old[prompt], new[prompt]) for prompt in sorted(old.keys() & new.keys())]
        own = {row.baseline for row in (*base, *head) if row.method == name} | {name}
        sides = [[row for row in rows if row.method in own] for rows in (base, head)]
        line = gate_line(name, sides[0], sides[1], shared, mode, margin)
        if line is not None:
            lines.append(line)
    return lines
