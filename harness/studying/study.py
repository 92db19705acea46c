"""A study on two recorded runs: learned schedulers fitted to one, every policy judged on the other; modelled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from hardware_profiles.profile import Kind, Profile
from harness.errors import UserError
from harness.fitting.collect import first_questions, greedy_answers, traced_spec
from harness.fitting.fit import refuse_eval_questions
from harness.fitting.judging import check_decisions
from harness.flags import Bar
from harness.recorded import RecordedRun
from harness.retiming import CLOCK_PREFIX
from harness.studying.conditions import Timed, profiles_of, timed_conditions
from harness.studying.judging import Line, judged
from harness.studying.plan import Study, load_study
from harness.studying.settings import StudySettings
from methods.schedulers.artifact import DRAFTING_KEYS, Network
from methods.schedulers.signals import LOOKUP_SIGNALS
from methods.value_system.distilling import distil
from methods.value_system.values import FOLDS, fit_values
from tasks.known_eval import plain_digest

FEWEST_PROMPTS = 2
"""Of fewer, no interval can be resampled."""


@dataclass(frozen=True, slots=True)
class Found:
    """What every policy reaches under a condition."""

    condition: str
    clock: str
    """The profile's clock, a changed machine under the condition's name."""
    group: str
    """The clock as the study gives it, which conditions along an axis share."""
    place: float | None
    """Where it lies on the study's axis."""
    pair: str
    """Whose latencies they are."""
    device: str
    kind: Kind
    unknown: list[str]
    """What the profile knows nothing of and charges nothing for."""
    caption: str
    """All that in words."""
    target_ms: float
    middle_ms: float
    most_calls: int
    """B0."""
    lines: list[Line]


@dataclass(frozen=True, slots=True)
class Findings:
    """A whole study."""

    about: str
    clock: str
    """That nothing of it was measured: `modelled`."""
    acceptance_of: str
    """The pair that was traced."""
    fit_prompts: int
    prompts: int
    tasks: list[str]
    decision_ms: float | None
    axis: str | None
    """Its label."""
    conditions: list[Found]


def run_study(file: Path, settings: StudySettings, bar: Bar) -> Findings:
    """Fit a scheduler under each condition of a study and judge it and its rivals under each.

    Args:
        file: the study's YAML file.
        settings: what is asked.
        bar: shows how far tracing is.

    Raises:
        UserError: unusable input, a run for fitting that holds questions to be measured on, or two runs that share
            questions or are not of one pair.
    """
    study = load_study(file)
    if settings.figure is not None:
        check_figure(study, file, settings.figure)
    fit, on = RecordedRun(Path(settings.fit)), RecordedRun(Path(settings.on))
    _check_runs(fit, on)
    _check_drafting(study, file, fit, on)
    _check_questions(study, fit, on)
    profiles = profiles_of(study, str(file), on.pair)
    networks: dict[str, Network] = {}
    fit_prompts = 0
    for name, timed in timed_conditions(study, fit, _traces(settings.fit_traces, fit), profiles, bar):
        fit_prompts = len(np.unique(timed.priced.learned.prompts))
        networks[name] = _learned(timed, f"{file}: conditions.{name}", settings.seed)
    found: dict[str, Found] = {}
    prompts, tasks = 0, list[str]()
    for name, timed in timed_conditions(study, on, _traces(settings.traces, on), profiles, bar):
        judged_on = timed.priced.fixed
        prompts, tasks = len(np.unique(judged_on.prompts)), [str(task) for task in np.unique(judged_on.tasks)]
        running = {other: networks[other] for other in study.fitted_for(name)}
        lines = judged(timed, running, study.schedules, name, settings.seed)
        found[name] = _found(study, name, profiles[name], timed, lines, on.pair.name)
    return Findings(
        about=study.about,
        clock="modelled",
        acceptance_of=on.pair.name,
        fit_prompts=fit_prompts,
        prompts=prompts,
        tasks=tasks,
        decision_ms=study.decision_ms,
        axis=None if study.axis is None else study.axis.label,
        conditions=[found[name] for name in study.conditions],
    )


def check_figure(study: Study, file: Path, figure: str) -> None:
    """Refuse a figure that could not be drawn.

    Raises:
        UserError: the study has no axis, or the file is no SVG or could not be written.
    """
    if study.axis is None:
        raise UserError(f"{file}: axis: missing; a figure needs a number of the machine to be drawn along")
    if Path(figure).suffix != ".svg":
        raise UserError(f"--figure {figure}: figures are SVG; give a name that ends in .svg")
    try:
        with TemporaryFile(dir=Path(figure).parent):
            pass
    except OSError as error:
        raise UserError(f"--figure {figure}: cannot be written ({error.strerror}); give another folder") from error


def _check_runs(fit: RecordedRun, on: RecordedRun) -> None:
    """Refuse runs that no study can be made of."""
    refuse_eval_questions(fit)
    if _weights(fit) != _weights(on):
        raise UserError(f"{on.folder}: of other models than {fit.folder}; give two runs of one pair")
    known = {plain_digest(fit.question(row.task, row.question_id).turns[0]) for row in fit.rows}
    for row in on.rows:
        if plain_digest(on.question(row.task, row.question_id).turns[0]) in known:
            raise UserError(
                f"{on.folder}: {row.task}/{row.question_id} is fitted to in {fit.folder}; judge on other questions"
            )


def _check_drafting(study: Study, file: Path, fit: RecordedRun, on: RecordedRun) -> None:
    """Refuse runs that draft otherwise, and schedules that a condition has no steps for, before hours of tracing."""
    for name, condition in study.conditions.items():
        ours, theirs = (traced_spec(run, condition.settings).settings.model_dump() for run in (fit, on))
        other = sorted(key for key in DRAFTING_KEYS if ours[key] != theirs[key])
        if other:
            told = f"{other[0]} {theirs[other[0]]}, not {ours[other[0]]} as {fit.folder}"
            raise UserError(f"{on.folder}: drafts with {told} ({name}); give two runs that draft alike")
        for bits in study.schedules:
            if len(bits) != ours["steps"]:
                raise UserError(f"{file}: schedules: {bits!r} has {len(bits)} bits for {ours['steps']} steps ({name})")


def _check_questions(study: Study, fit: RecordedRun, on: RecordedRun) -> None:
    """Refuse runs with answers to too few questions, before hours of tracing."""
    for run, fewest in ((on, FEWEST_PROMPTS), (fit, FOLDS)):
        if len(first_questions(greedy_answers(run), study.limit)) < fewest:
            raise UserError(f"{run.folder}: answers to {fewest} questions at least are needed; raise limit")


def _weights(recorded: RecordedRun) -> dict[str, str | None]:
    return {role: facts.get("sha256") for role, facts in recorded.manifest.weights.items()}


def _traces(given: str | None, recorded: RecordedRun) -> Path:
    return recorded.folder / "traces" if given is None else Path(given)


def _learned(timed: Timed, origin: str, seed: int) -> Network:
    """Return the scheduler that `treegraft fit` would distil."""
    rounds = timed.priced.learned.without(LOOKUP_SIGNALS)
    check_decisions(rounds, origin)
    values = fit_values(rounds, seed, lambda line: None)
    return distil(rounds, values.margins, seed)


def _found(study: Study, name: str, profile: Profile, timed: Timed, lines: list[Line], acceptance_of: str) -> Found:
    condition = study.conditions[name]
    return Found(
        condition=name,
        clock=f"{CLOCK_PREFIX}{profile.name}",
        group=condition.clock,
        place=None if study.axis is None else float(condition.machine[study.axis.key]),
        pair=profile.pair,
        device=profile.device,
        kind=profile.kind,
        unknown=list(profile.unknown),
        caption=profile.caption(acceptance_of),
        target_ms=timed.latency.target_ms,
        middle_ms=timed.latency.middle_ms,
        most_calls=timed.priced.fixed.most_calls,
        lines=lines,
    )
